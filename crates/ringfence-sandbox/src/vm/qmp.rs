//! QEMU's control protocol (QMP): one line of JSON each way.
//!
//! QEMU is in a sandbox because it is not trusted: answers are bounded, and waited for only so long.

use ringfence_sys::socket;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest line.
const LONGEST: usize = 64 * 1024;
/// How long a machine that is copied, or takes a copy over, may take for all that it is asked: its launcher does nothing else
/// meanwhile.
const COPYING: Duration = Duration::from_secs(60);
/// How long there may be no room for what it is asked: one that listens at all has some.
const ROOM: Duration = Duration::from_secs(1);
const LATE: &str = "QEMU does not answer in time";

/// A connection to a QEMU.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    patience: Duration,
    /// Lines that were met and are no answers.
    said: String,
    /// How many calls had a number.
    calls: u64,
}

impl Qmp {
    /// Over a socket, whose other end a QEMU has, or will have.
    pub fn new(socket: UnixStream, patience: Duration) -> Qmp {
        Qmp { reader: BufReader::new(socket), patience, said: String::new(), calls: 0 }
    }

    /// The next line, however slowly it comes: until then, all of it.
    fn line(&mut self, until: Instant) -> Result<Value, String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => LATE.to_owned(),
            _ => format!("QEMU is gone: {error}"),
        };
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if Instant::now() >= until {
                return Err(LATE.to_owned());
            }
            self.reader.get_ref().set_read_timeout(Some(left(until))).map_err(failed)?;
            let found = match self.reader.fill_buf() {
                // A read with a time limit is interrupted by a stop (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                found => found.map_err(failed)?,
            };
            let end = found.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
            let count = end.unwrap_or(found.len());
            line.extend(&found[..count]);
            self.reader.consume(count);
            if line.len() > LONGEST {
                return Err("QEMU's answer is too long".to_owned());
            }
            if count == 0 {
                break;
            }
        }
        if line.is_empty() {
            return Err("QEMU has ended".to_owned());
        }
        if !line.starts_with(b"{") {
            // A complaint of a clone's.
            if self.said.len() < LONGEST {
                self.said.push_str(&String::from_utf8_lossy(&line));
            }
            return Ok(Value::Null);
        }
        serde_json::from_slice(&line).map_err(|error| format!("QEMU's answer is odd: {error}"))
    }

    fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// The same where a launcher waits.
    fn soon(&self) -> Instant {
        Instant::now() + self.patience.min(COPYING)
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
        let limited = socket.set_write_timeout(Some(ROOM));
        limited.map_err(|error| format!("setsockopt: {error}"))?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => LATE.to_owned(),
            _ => format!("QEMU is gone: {error}"),
        };
        match pass {
            Some(fd) => socket::send_with(socket.as_fd(), text.as_bytes(), &[fd])
                .map(drop)
                .map_err(|errno| failed(io::Error::from_raw_os_error(errno.into_raw()))),
            None => socket.write_all(text.as_bytes()).map_err(failed),
        }
    }

    /// The next line, if it is an answer.
    fn answer(&mut self, name: &str, until: Instant) -> Result<Option<Value>, String> {
        let answer = self.line(until)?;
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
        self.migrated(self.soon())?;
        self.go_on()
    }

    /// Stops a machine that runs, and saves its state and all of its memory. Where that fails, it can go on.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn copy(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        let copied = self.copied(state, self.soon());
        if copied.is_err() {
            // What is still being saved would stop it again in the end.
            let _ = self.ask("migrate_cancel", json!({}), None);
        }
        copied
    }

    fn copied(&mut self, state: BorrowedFd<'_>, until: Instant) -> Result<(), String> {
        // A clone's memory is its own, whatever it was started as; and there is no network to be spared.
        let off = json!({ "capability": "x-ignore-shared", "state": false });
        let on = json!({ "capability": "events", "state": true });
        let fast = json!({ "max-bandwidth": 1u64 << 40 });
        self.call("stop", json!({}), None, until)?;
        self.call("migrate-set-capabilities", json!({ "capabilities": [off, on] }), None, until)?;
        self.call("migrate-set-parameters", fast, None, until)?;
        self.saved(state, until)
    }

    /// Saves a machine's state, and waits until that is done.
    fn saved(&mut self, state: BorrowedFd<'_>, until: Instant) -> Result<(), String> {
        self.call("getfd", json!({ "fdname": "state" }), Some(state), until)?;
        self.call("migrate", json!({ "uri": "fd:state" }), None, until)?;
        self.migrated(until)?;
        // It says so before it is done: to go on before that would be to be stopped again.
        while Instant::now() < until {
            let state = self.call("query-status", json!({}), None, until)?;
            if state.get("status").and_then(Value::as_str) == Some("postmigrate") {
                return Ok(());
            }
        }
        Err("QEMU does not come to rest".to_owned())
    }

    /// Calls by a number that the answer has, since nobody has heard the answers to what a clone was asked before, or what
    /// came too late.
    fn call(
        &mut self,
        name: &str,
        arguments: Value,
        pass: Option<BorrowedFd<'_>>,
        until: Instant,
    ) -> Result<Value, String> {
        self.calls += 1;
        let number = self.calls;
        let call = json!({ "execute": name, "arguments": arguments, "id": number });
        self.send(&format!("{call}\n"), pass)?;
        while Instant::now() < until {
            let answer = self.line(until)?;
            if answer.get("id").and_then(Value::as_u64) == Some(number) {
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
        let until = self.until();
        self.call("qmp_capabilities", json!({}), None, until)?;
        let wanted = capabilities(&["x-ignore-shared", "events"]);
        self.call("migrate-set-capabilities", wanted, None, until)?;
        self.call("getfd", json!({ "fdname": "state" }), Some(state), until)?;
        self.call("migrate-incoming", json!({ "uri": "fd:state" }), None, until)?;
        self.migrated(until)
    }

    /// What was said by now that is no answer, of a clone: its complaints come the same way.
    pub fn complaints(&mut self) -> String {
        let socket = self.reader.get_ref();
        if socket.set_nonblocking(true).is_err() {
            return String::new();
        }
        let mut text = Vec::new();
        // It ends with an error where the other end is open still: what came before is there.
        let _ = (&mut self.reader).take(LONGEST as u64).read_to_end(&mut text);
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
        let until = self.until();
        while left > 0 {
            if Instant::now() > until {
                return Err(LATE.to_owned());
            }
            left -= usize::from(self.answer("what it is asked for", until)?.is_some());
        }
        Ok(())
    }

    /// Saves the machine's state, without its memory, and stops it.
    ///
    /// # Errors
    /// QEMU's own words.
    pub fn save(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        let until = self.until();
        self.saved(state, until)
    }

    /// Waits until the state has come or gone.
    fn migrated(&mut self, until: Instant) -> Result<(), String> {
        while Instant::now() < until {
            let event = self.line(until)?;
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

/// How long it is until then; no time at all would be taken for no limit.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
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
            "{\"QMP\": {}}\n{\"return\": {}}\nqemu: a complaint\n{\"return\": {}, \"id\": 1}",
            "{\"return\": {}, \"id\": 2}",
            "{\"return\": {}, \"id\": 3}",
            "{\"return\": {}, \"id\": 4}",
            "{\"return\": {}, \"id\": 5}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}",
            "{\"return\": {\"status\": \"finish-migrate\"}, \"id\": 6}",
            "{\"return\": {\"status\": \"postmigrate\"}, \"id\": 7}",
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

    /// What one that was taken over says, who listens or does not.
    fn hostile(say: impl Fn(u64) -> String + Send + 'static) -> String {
        let (mut qmp, mut theirs) = pair();
        let other = std::thread::spawn(move || {
            let mut number = 0;
            // Until the other end is gone, which does not wait for that.
            while theirs.write_all(say(number).as_bytes()).is_ok() {
                number += 1;
            }
        });
        let state = std::fs::File::open("/dev/null").expect("opened");
        let why = qmp.copy(state.as_fd()).expect_err("no copy");
        assert!(qmp.said.len() <= 2 * LONGEST, "{}", qmp.said.len());
        drop(qmp);
        other.join().expect("ended");
        why
    }

    #[test]
    fn nothing_that_qemu_says_keeps_its_launcher_for_long_or_fills_it() {
        // A line without an end, one byte at a time.
        let drop_by_drop = |_| {
            std::thread::yield_now();
            "x".to_owned()
        };
        assert!(matches!(
            &hostile(drop_by_drop)[..],
            "QEMU does not answer in time" | "QEMU's answer is too long"
        ));
        assert_eq!(hostile(|_| "x".repeat(LONGEST)), "QEMU's answer is too long");
        hostile(|_| "a complaint\n".to_owned());
        hostile(|_| "{\"event\": \"MIGRATION\"}\n".to_owned());
        assert!(hostile(|_| "{".repeat(1000) + "\n").contains("odd"));
        // Answers to all that it may ever be asked for, which it does not take.
        let completed = "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}";
        let why = hostile(move |number| {
            let answer = format!("{{\"return\": {{\"status\": \"running\"}}, \"id\": {number}}}\n");
            if number == 5 { format!("{answer}{completed}\n") } else { answer }
        });
        assert!(why.contains("in time") || why.contains("rest"), "{why}");
    }

    #[test]
    fn a_copy_that_fails_is_given_up_before_its_machine_goes_on() {
        let (mut qmp, mut theirs) = pair();
        // Of an earlier one, which came too late.
        theirs
            .write_all(b"{\"return\": {}, \"id\": 9}\n{\"id\": 1, \"error\": {\"desc\": \"no\"}}\n")
            .expect("said");
        let state = std::fs::File::open("/dev/null").expect("opened");
        assert_eq!(qmp.copy(state.as_fd()), Err("QEMU refuses stop: no".to_owned()));
        qmp.go_on().expect("asked");
        drop(qmp);
        let asked = BufReader::new(theirs).lines().map(|line| line.expect("a line"));
        let words: Vec<Value> =
            asked.map(|line| serde_json::from_str(&line).expect("JSON")).collect();
        let names: Vec<_> = words.iter().map(|one| one["execute"].as_str()).collect();
        assert_eq!(names, [Some("stop"), Some("migrate_cancel"), Some("cont")]);
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
