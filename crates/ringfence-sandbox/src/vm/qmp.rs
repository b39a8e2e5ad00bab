//! QEMU's control protocol (QMP): one line of JSON each way.
//!
//! QEMU is in a sandbox because it is not trusted: answers are bounded, and waited for only so long.

use ringfence_sys::socket;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest line.
const LONGEST: u64 = 64 * 1024;

/// A connection to a QEMU.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    patience: Duration,
}

impl Qmp {
    /// Waits until QEMU is there.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(socket: UnixStream, patience: Duration) -> Result<Qmp, String> {
        let mut qmp = Qmp { reader: BufReader::new(socket), patience };
        qmp.line()?;
        qmp.call("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> Result<Value, String> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => "QEMU does not answer in time".to_owned(),
            _ => format!("QEMU is gone: {error}"),
        };
        self.reader.get_ref().set_read_timeout(Some(self.patience)).map_err(failed)?;
        let mut line = Vec::new();
        (&mut self.reader).take(LONGEST).read_until(b'\n', &mut line).map_err(failed)?;
        if line.is_empty() {
            return Err("QEMU has ended".to_owned());
        }
        serde_json::from_slice(&line).map_err(|error| format!("QEMU's answer is odd: {error}"))
    }

    /// Calls a command and waits for its answer.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn call(&mut self, name: &str, arguments: Value) -> Result<Value, String> {
        self.call_with(name, arguments, None)
    }

    fn call_with(
        &mut self,
        name: &str,
        arguments: Value,
        pass: Option<BorrowedFd<'_>>,
    ) -> Result<Value, String> {
        let mut text = json!({ "execute": name, "arguments": arguments }).to_string();
        text.push('\n');
        let mut socket = self.reader.get_ref();
        let sent = match pass {
            Some(fd) => socket::send_with(socket.as_fd(), text.as_bytes(), &[fd])
                .map_err(|errno| format!("{errno:?}")),
            None => socket.write_all(text.as_bytes()).map_err(|error| error.to_string()),
        };
        sent.map_err(|error| format!("QEMU is gone: {error}"))?;
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            let answer = self.line()?;
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            if let Some(error) = answer.get("error") {
                let why = error.get("desc").and_then(Value::as_str).unwrap_or("no reason");
                return Err(format!("QEMU refuses {name}: {why}"));
            }
        }
        Err(format!("QEMU does not answer {name} in time"))
    }

    /// Gives QEMU a descriptor under a name.
    ///
    /// # Errors
    /// As [`Qmp::call`].
    pub fn pass(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), String> {
        self.call_with("getfd", json!({ "fdname": name }), Some(fd)).map(drop)
    }

    /// Adds the port of the guest's stream, which comes out of a listening socket.
    ///
    /// # Errors
    /// As [`Qmp::call`].
    pub fn add_port(&mut self, name: &str, socket: BorrowedFd<'_>) -> Result<(), String> {
        self.pass(name, socket)?;
        let address = json!({ "type": "fd", "data": { "str": name } });
        let data = json!({ "addr": address, "server": true, "wait": false });
        let backend = json!({ "type": "socket", "data": data });
        self.call("chardev-add", json!({ "id": name, "backend": backend }))?;
        let port = json!({
            "driver": "virtserialport", "id": "port", "nr": 1, "name": "ringfence", "chardev": name,
        });
        self.call("device_add", port).map(drop)
    }

    /// Memory that is a file is not part of the state, and changes of the state are told.
    ///
    /// # Errors
    /// As [`Qmp::call`].
    pub fn state_only(&mut self) -> Result<(), String> {
        let on = |name: &str| json!({ "capability": name, "state": true });
        let list = json!({ "capabilities": [on("x-ignore-shared"), on("events")] });
        self.call("migrate-set-capabilities", list).map(drop)
    }

    /// Waits until the state has come or gone.
    ///
    /// # Errors
    /// It failed.
    pub fn migrated(&mut self) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            let event = self.line()?;
            if event.get("event").and_then(Value::as_str) != Some("MIGRATION") {
                continue;
            }
            match event.pointer("/data/status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed") => return Err("QEMU could not move the machine's state".to_owned()),
                _ => {}
            }
        }
        Err("QEMU did not move the machine's state in time".to_owned())
    }
}
