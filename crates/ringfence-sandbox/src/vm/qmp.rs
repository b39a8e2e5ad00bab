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
/// How long an answer may take of a machine that is copied: its launcher does nothing else meanwhile.
const COPYING: Duration = Duration::from_secs(60);

/// A connection to a QEMU.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    patience: Duration,
    /// Lines that were met and are no answers.
    said: String,
}

impl Qmp {
    /// Over a socket, whose other end a QEMU has, or will have.
    pub fn new(socket: UnixStream, patience: Duration) -> Qmp {
        Qmp { reader: BufReader::new(socket), patience, said: String::new() }
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
        if !line.starts_with(b"{") && self.said.len() < LONGEST as usize {
            // A complaint of a clone's.
            self.said.push_str(&String::from_utf8_lossy(&line));
            return Ok(Value::Null);
        }
        serde_json::from_slice(&line).map_err(|error| format!("QEMU's answer is odd: {error}"))
    }

    fn call_with(
        &mut self,
        name: &str,
        arguments: Value,
        pass: Option<BorrowedFd<'_>>,
    ) -> Result<Value, String> {
        self.ask(name, arguments, pass)?;
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            if let Some(result) = self.answer(name)? {
                return Ok(result);
            }
        }
        Err(format!("QEMU does not answer {name} in time"))
    }

    /// Sends a command, and does not wait for the answer. QEMU takes one after the
    /// other, and the next one only when the one before it is done.
    fn ask(
        &mut self,
        name: &str,
        arguments: Value,
        pass: Option<BorrowedFd<'_>>,
    ) -> Result<(), String> {
        let none = arguments.as_object().is_some_and(serde_json::Map::is_empty);
        let mut text = if none {
            json!({ "execute": name }).to_string()
        } else {
            json!({ "execute": name, "arguments": arguments }).to_string()
        };
        text.push('\n');
        self.send(&text, pass)
    }

    fn send(&mut self, text: &str, pass: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let mut socket = self.reader.get_ref();
        let sent = match pass {
            Some(fd) => socket::send_with(socket.as_fd(), text.as_bytes(), &[fd])
                .map_err(|errno| format!("{errno:?}")),
            None => socket.write_all(text.as_bytes()).map_err(|error| error.to_string()),
        };
        sent.map_err(|error| format!("QEMU is gone: {error}"))
    }

    /// The next line, if it is an answer.
    fn answer(&mut self, name: &str) -> Result<Option<Value>, String> {
        let answer = self.line()?;
        refused(name, &answer)?;
        Ok(answer.get("return").cloned())
    }

    /// Asks for the port of the guest's stream, whose other end is a connected socket; and that memory that is
    /// a file is no part of a state, and changes of the state are told. The port is open before a state is
    /// restored, as it was when that was saved: so a guest is told of no change. To open it while a state is being restored
    /// would be to tell the guest by a queue that is only half there: QEMU calls the device broken then
    /// ("Region caches not initialized"), and never serves it again.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn prepare(&mut self, name: &str, socket: BorrowedFd<'_>) -> Result<(), String> {
        self.ask("qmp_capabilities", json!({}), None)?;
        self.ask("getfd", json!({ "fdname": name }), Some(socket))?;
        let address = json!({ "type": "fd", "data": { "str": name } });
        let data = json!({ "addr": address, "server": false });
        let backend = json!({ "type": "socket", "data": data });
        self.ask("chardev-add", json!({ "id": name, "backend": backend }), None)?;
        let port = json!({
            "driver": "virtserialport", "id": "port", "nr": 1, "name": "ringfence", "chardev": name,
        });
        self.ask("device_add", port, None)?;
        self.ask("migrate-set-capabilities", capabilities(&["x-ignore-shared", "events"]), None)
    }

    /// Asks a clone for its state to be restored, from a descriptor. Nobody waits for the answers.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn restore(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        self.incoming(state, "x-ignore-shared")
    }

    /// Asks a new machine for a state that is read from a descriptor, in a way that QEMU calls a capability.
    fn incoming(&mut self, state: BorrowedFd<'_>, capability: &str) -> Result<(), String> {
        self.ask("qmp_capabilities", json!({}), None)?;
        self.ask("migrate-set-capabilities", capabilities(&[capability]), None)?;
        self.ask("getfd", json!({ "fdname": "state" }), Some(state))?;
        self.ask("migrate-incoming", json!({ "uri": "fd:state" }), None)
    }

    /// Lets a machine go on that was saved as a process. Nobody waits for the answer.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn go_on(&mut self) -> Result<(), String> {
        self.ask("cont", json!({}), None)
    }

    /// Asks a new machine for a state that another one had, and all of its memory.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn take_over(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        self.incoming(state, "events")
    }

    /// Waits until that is there, and lets the machine go on.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn took_over(&mut self) -> Result<(), String> {
        self.migrated()?;
        self.go_on()
    }

    /// Stops a machine that runs, and saves its state and all of its memory.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn copy(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        let usual = std::mem::replace(&mut self.patience, COPYING);
        let copied = self.copied(state);
        self.patience = usual;
        copied
    }

    fn copied(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        // A clone's memory is its own, whatever it was started as; and there is no network to be spared.
        let off = json!({ "capability": "x-ignore-shared", "state": false });
        let on = json!({ "capability": "events", "state": true });
        let fast = json!({ "max-bandwidth": 1u64 << 40 });
        self.marked("stop", json!({}), None)?;
        self.marked("migrate-set-capabilities", json!({ "capabilities": [off, on] }), None)?;
        self.marked("migrate-set-parameters", fast, None)?;
        self.marked("getfd", json!({ "fdname": "state" }), Some(state))?;
        self.marked("migrate", json!({ "uri": "fd:state" }), None)?;
        self.migrated()?;
        // It says so before it is done: to go on before that would be to be stopped again.
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            let state = self.marked("query-status", json!({}), None)?;
            if state.get("status").and_then(Value::as_str) == Some("postmigrate") {
                return Ok(());
            }
        }
        Err("QEMU does not come to rest".to_owned())
    }

    /// Calls by a name that the answer has, since nobody has heard the answers to what a clone was asked before.
    fn marked(
        &mut self,
        name: &str,
        arguments: Value,
        pass: Option<BorrowedFd<'_>>,
    ) -> Result<Value, String> {
        const MARK: &str = "fork";
        let call = json!({ "execute": name, "arguments": arguments, "id": MARK });
        self.send(&format!("{call}\n"), pass)?;
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            let answer = self.line()?;
            if answer.get("id").and_then(Value::as_str) == Some(MARK) {
                refused(name, &answer)?;
                return Ok(answer.get("return").cloned().unwrap_or_default());
            }
        }
        Err(format!("QEMU does not answer {name} in time"))
    }

    /// As [`Qmp::restore`], of a machine that will be saved again; returns when its state is there.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn restore_and_wait(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        self.call_with("qmp_capabilities", json!({}), None)?;
        let wanted = capabilities(&["x-ignore-shared", "events"]);
        self.call_with("migrate-set-capabilities", wanted, None)?;
        self.call_with("getfd", json!({ "fdname": "state" }), Some(state))?;
        self.call_with("migrate-incoming", json!({ "uri": "fd:state" }), None)?;
        self.migrated()
    }

    /// What was said by now that is no answer, of a clone: its complaints come the same way.
    pub fn complaints(&mut self) -> String {
        let socket = self.reader.get_ref();
        if socket.set_nonblocking(true).is_err() {
            return String::new();
        }
        let mut text = Vec::new();
        // It ends with an error where the other end is open still: what came before is there.
        let _ = (&mut self.reader).take(LONGEST).read_to_end(&mut text);
        let _ = self.reader.get_ref().set_nonblocking(false);
        let text = format!("{}{}", self.said, String::from_utf8_lossy(&text));
        let words = text.lines().filter(|line| !line.starts_with('{'));
        words.collect::<Vec<_>>().join("; ")
    }

    /// Takes the answers to what [`Qmp::prepare`] asked for.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn prepared(&mut self) -> Result<(), String> {
        let mut left = 5;
        let until = Instant::now() + self.patience;
        while left > 0 {
            if Instant::now() > until {
                return Err("QEMU does not answer in time".to_owned());
            }
            left -= usize::from(self.answer("what it is asked for")?.is_some());
        }
        Ok(())
    }

    /// Saves the machine's state, without its memory, and stops it.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn save(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        self.call_with("getfd", json!({ "fdname": "state" }), Some(state))?;
        self.call_with("migrate", json!({ "uri": "fd:state" }), None)?;
        self.migrated()
    }

    /// Waits until the state has come or gone.
    fn migrated(&mut self) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            let event = self.line()?;
            refused("to move the machine's state", &event)?;
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

/// QEMU's words, where an answer is a refusal.
fn refused(name: &str, answer: &Value) -> Result<(), String> {
    let Some(error) = answer.get("error") else { return Ok(()) };
    let why = error.get("desc").and_then(Value::as_str).unwrap_or("no reason");
    Err(format!("QEMU refuses {name}: {why}"))
}

/// What `migrate-set-capabilities` is told to switch on.
fn capabilities(names: &[&str]) -> Value {
    let on = |name| json!({ "capability": name, "state": true });
    json!({ "capabilities": names.iter().map(on).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Qmp, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Qmp::new(ours, Duration::from_secs(1)), theirs)
    }

    #[test]
    fn a_clone_is_asked_for_its_state_alone() {
        let (mut qmp, theirs) = pair();
        let state = std::fs::File::open("/dev/null").expect("opened");
        qmp.restore(state.as_fd()).expect("asked");
        drop(qmp);
        let asked = BufReader::new(theirs).lines().map(|line| line.expect("a line"));
        let words: Vec<Value> =
            asked.map(|line| serde_json::from_str(&line).expect("JSON")).collect();
        let names: Vec<&str> =
            words.iter().filter_map(|one| one.get("execute").and_then(Value::as_str)).collect();
        let all = ["qmp_capabilities", "migrate-set-capabilities", "getfd", "migrate-incoming"];
        assert_eq!(names, all);
        assert_eq!(words[0].get("arguments"), None, "QEMU reads it byte by byte");
    }

    #[test]
    fn a_copy_hears_its_own_answers_and_waits_until_it_is_done() {
        let (mut qmp, theirs) = pair();
        let answers = [
            "{\"QMP\": {}}\n{\"return\": {}}\nqemu: a complaint\n{\"return\": {}, \"id\": \"fork\"}",
            "{\"return\": {}, \"id\": \"fork\"}",
            "{\"return\": {}, \"id\": \"fork\"}",
            "{\"return\": {}, \"id\": \"fork\"}",
            "{\"return\": {}, \"id\": \"fork\"}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}",
            "{\"return\": {\"status\": \"finish-migrate\"}, \"id\": \"fork\"}",
            "{\"return\": {\"status\": \"postmigrate\"}, \"id\": \"fork\"}",
        ];
        let other = std::thread::spawn(move || {
            let mut asked = BufReader::new(theirs.try_clone().expect("a copy")).lines();
            let (mut names, mut theirs) = (Vec::new(), theirs);
            for answer in answers {
                let line = asked.next().expect("asked").expect("a line");
                let call: Value = serde_json::from_str(&line).expect("JSON");
                names.push(call["execute"].as_str().expect("a name").to_owned());
                theirs.write_all(format!("{answer}\n").as_bytes()).expect("answered");
            }
            names
        });
        let state = std::fs::File::open("/dev/null").expect("opened");
        assert_eq!(qmp.copy(state.as_fd()), Ok(()));
        let names = other.join().expect("its names");
        assert_eq!(names[0], "stop");
        assert_eq!(names[4..], ["migrate", "query-status", "query-status"]);
        assert_eq!(qmp.complaints(), "qemu: a complaint");
    }

    #[test]
    fn what_a_clone_complains_of_is_told_apart_from_its_answers() {
        let (mut qmp, mut theirs) = pair();
        assert_eq!(qmp.complaints(), "", "and nobody waits");
        let said = "{\"QMP\": {}}\nqemu: no such thing\n{\"return\": {}}\nqemu: \u{1b}[2Jgone";
        theirs.write_all(said.as_bytes()).expect("said");
        assert_eq!(qmp.complaints(), "qemu: no such thing; qemu: \u{1b}[2Jgone");
        drop(theirs);
        assert_eq!(qmp.complaints(), "");
    }
}
