//! `ringfence cp`: files between the host and a session that runs, whatever its tier.
//!
//! What is inside is read and written by programs inside (`cat`, `tar`), under the session's own rules: nothing is
//! copied that its commands could not reach. What comes out is not trusted: a file is written under the
//! name that the user gave, and directories as [`unpack`](crate::unpack) says. What goes in is what the user named,
//! and not what a link of the program's leads to. Bytes pass through here: a file that was lent could be kept, and read
//! or written later.

use crate::error::Fault;
use crate::heard::Heard;
use crate::help;
use crate::options::{Spec, flag, parse};
use crate::unpack::{Fresh, Place};
use ringfence_policy::host_program;
use ringfence_session::live;
use ringfence_session::outside::{self, Part, Source};
use ringfence_sys::{self as sys, file::time_mark};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

const USAGE: &str = "ringfence cp SESSION:PATH PATH, or ringfence cp PATH SESSION:PATH";

/// Its options.
pub const OPTIONS: [Spec; 2] = [
    flag("with-protected", None, "Copy what programs outside run or trust by themselves, too"),
    flag("help", Some('h'), "Print help"),
];

/// A place inside a session.
struct Inside {
    session: OsString,
    path: OsString,
}

impl Inside {
    /// `SESSION:PATH`; `None` for a path of the host's.
    fn of(word: &OsStr) -> Option<Inside> {
        let at = word.as_bytes().iter().position(|&byte| byte == b':')?;
        let (session, path) = (&word.as_bytes()[..at], &word.as_bytes()[at + 1..]);
        let named = !session.is_empty() && !session.contains(&b'/') && !path.is_empty();
        let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        named.then(|| Inside { session: os(session), path: os(path) })
    }

    /// A script that gets the path as `$1` and another word as `$2`, in the session.
    fn script(&self, script: &str, more: &OsStr) -> Result<Command, Fault> {
        let mut command = ringfence_sandbox::itself::command();
        command.arg("exec").arg(&self.session).args(["--", "sh", "-c", script, "cp"]);
        command.arg(&self.path).arg(more);
        Ok(command)
    }

    fn name(&self) -> String {
        format!("{}:{}", self.session.to_string_lossy(), self.path.to_string_lossy())
    }
}

/// `ringfence cp SESSION:PATH PATH | PATH SESSION:PATH`
///
/// # Errors
/// There is no such session or file, or it cannot be read or written.
pub fn cp(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&OPTIONS, arguments, true)?;
    if let Some(done) = help::asked("cp", &parsed) {
        return done;
    }
    let [from, to] = &parsed.rest[..] else { return Err(Fault::usage(USAGE)) };
    match (Inside::of(from), Inside::of(to)) {
        (Some(from), None) => out(&from, Path::new(to), parsed.has("with-protected")),
        (None, Some(to)) => into(Path::new(from), &to),
        _ => Err(Fault::usage(format!("one of the two is in a session: {USAGE}"))),
    }
}

/// What has come of an end; `failed` says of what.
fn done(status: ExitStatus, heard: Heard, failed: &str) -> Result<(), Fault> {
    heard.told(status).map_err(|why| Fault::usage(format!("{failed}: {why}")))
}

/// The last part of a path, which a copy in a directory is called.
fn last(path: &Path) -> Result<&OsStr, Fault> {
    let none = || Fault::usage(format!("{} has no name of its own: name the copy", path.display()));
    path.file_name().ok_or_else(none)
}

fn out(from: &Inside, to: &Path, whole: bool) -> Result<u8, Fault> {
    let name = from.name();
    // A directory, a file, or nothing that can be copied.
    let mut kind = from.script(
        "if [ -d \"$1\" ]; then echo d; elif [ -f \"$1\" ]; then echo f; elif [ -e \"$1\" ]; then echo o; \
         else echo n; fi",
        OsStr::new(""),
    )?;
    let kind = kind.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut asked = kind.spawn().map_err(Fault::of)?;
    let heard = Heard::of(&mut asked)?;
    // One letter: what answers may be the program's own, and say more than there is memory.
    let mut answer = Vec::new();
    let out = asked.stdout.take().map(|out| out.take(1).read_to_end(&mut answer));
    out.transpose().map_err(Fault::of)?;
    let ended = asked.wait().map_err(Fault::of)?;
    if answer.is_empty() {
        done(ended, heard, &format!("{name} was not copied"))?;
    }
    // `x/..` has no last part, and is a directory.
    let (directory, called) = match to.file_name() {
        Some(called) if !to.is_dir() => (to.parent().unwrap_or(Path::new("")), called),
        _ => (to, last(Path::new(&from.path))?),
    };
    match answer.first() {
        Some(b'f') => file_out(from, &name, &Place::of(&from.session, directory)?, called),
        Some(b'd') => tree_out(from, &name, (&Place::of(&from.session, directory)?, called), whole),
        Some(b'o') => Err(Fault::usage(format!("{name} is neither a file nor a directory"))),
        Some(_) => Err(Fault::usage(format!("{name} does not exist there"))),
        None => Err(Fault::usage(format!("{name} was not copied"))),
    }
}

/// Without a name first: what is half copied replaces nothing, and is gone with us.
fn file_out(from: &Inside, name: &str, place: &Place, called: &OsStr) -> Result<u8, Fault> {
    let target = place.path.join(called);
    let failed = |error: std::io::Error| Fault::usage(format!("{}: {error}", target.display()));
    let directory = place.at(OsStr::new(""));
    let (mut part, began) = (Part::new(&directory, called).map_err(failed)?, time_mark());
    take(from.script("exec cat <\"$1\"", OsStr::new(""))?, &mut part, name)?;
    part.settle(&directory, called).map_err(failed)?;
    noted(&target, began);
    Ok(0)
}

/// Runs a command, and keeps what it prints.
fn take(mut command: Command, part: &mut Part, name: &str) -> Result<(), Fault> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Fault::of)?;
    let heard = Heard::of(&mut child)?;
    let Some(pipe) = child.stdout.take() else { return Err(Fault::of("there is no pipe")) };
    let ended = sys::process::pidfd(child.id() as i32).map_err(Fault::of)?;
    let taken = sys::pipe::read(pipe.as_fd(), ended.as_fd(), |bytes| part.add(bytes));
    // Who still prints has nobody to print to.
    drop(pipe);
    done(child.wait().map_err(Fault::of)?, heard, &format!("{name} was not copied"))?;
    taken.map_err(|error| Fault::usage(format!("{name} was not copied whole: {error}")))
}

/// What a program gave is judged later as what it wrote itself is.
fn noted(target: &Path, began: i128) {
    if let Ok(path) = target.canonicalize() {
        ringfence_sandbox::written(&path, began);
    }
}

/// With `whole` the user has said that he wants what programs run or trust by themselves, too.
fn tree_out(
    from: &Inside,
    name: &str,
    (place, called): (&Place, &OsStr),
    whole: bool,
) -> Result<u8, Fault> {
    let fresh = Fresh::make()?;
    let mut pack = from.script("exec tar -C \"$1\" -cf - .", OsStr::new(""))?;
    pack.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut pack = pack.spawn().map_err(Fault::of)?;
    let heard = Heard::of(&mut pack)?;
    let unpacked = fresh.unpack(pack.stdout.take().map_or_else(Stdio::null, Stdio::from));
    let packed = pack.wait().map_err(Fault::of)?;
    let (unpacked, began) = (unpacked?, time_mark());
    if !whole {
        fresh.judge(place, called)?;
    }
    let settled = fresh.settle(place, called);
    noted(&place.path.join(called), began);
    settled?;
    let whole = |why| Fault::usage(format!("{name} was not copied whole: {why}"));
    heard.told(packed).map_err(whole)?;
    let (unpacked, heard) = unpacked;
    heard.told(unpacked).map_err(whole).map(|()| 0)
}

fn into(from: &Path, to: &Inside) -> Result<u8, Fault> {
    let fault = |error: ringfence_session::SessionError| Fault::usage(error.to_string());
    let name = from.display().to_string();
    let failed = format!("{name} was not copied to {}", to.name());
    let (known, _) = live::find(&to.session.to_string_lossy()).map_err(fault)?;
    let file = match outside::open(&known, from, &ringfence_sandbox::made_by_a_run)
        .map_err(fault)?
    {
        Source::File(file) => file,
        Source::Directory(open) => {
            let mut pack = host_program::command("tar").map_err(Fault::usage)?;
            pack.args(["-cf", "-", "."]).stdin(Stdio::null()).stdout(Stdio::piped());
            // The directory that was opened, whatever its path means by now.
            pack.current_dir(format!("/proc/self/fd/{}", open.as_raw_fd()));
            let mut pack = pack.spawn().map_err(|error| Fault::usage(format!("tar: {error}")))?;
            let called = last(from).unwrap_or_default();
            let mut unpack = to.script(
                "if [ -d \"$1\" ] && [ -n \"$2\" ]; then set -- \"$1/$2\"; fi; mkdir -p \"$1\" && \
                 exec tar --warning=no-timestamp --no-same-owner -xf - -C \"$1\"",
                called,
            )?;
            unpack.stdin(pack.stdout.take().map_or_else(Stdio::null, Stdio::from));
            let mut unpacking = unpack.stderr(Stdio::piped()).spawn().map_err(Fault::of)?;
            let heard = Heard::of(&mut unpacking)?;
            // The command has its copy of the pipe: without ours tar ends when nobody reads.
            drop(unpack);
            let unpacked = unpacking.wait().map_err(Fault::of)?;
            let packed = pack.wait().map_err(Fault::of)?;
            done(unpacked, heard, &failed)?;
            if !packed.success() {
                return Err(Fault::usage(format!("{name} was not copied whole: tar: {packed}")));
            }
            return Ok(0);
        }
    };
    let command =
        to.script("if [ -d \"$1\" ]; then set -- \"$1/$2\"; fi; exec cat >\"$1\"", last(from)?)?;
    give(command, file, &name, &failed).map(|()| 0)
}

/// Runs a command that reads a file.
fn give(mut command: Command, mut file: File, name: &str, failed: &str) -> Result<(), Fault> {
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Fault::of)?;
    let heard = Heard::of(&mut child)?;
    let Some(pipe) = child.stdin.take() else { return Err(Fault::of("there is no pipe")) };
    sys::fd::never_wait(pipe.as_fd()).map_err(Fault::of)?;
    let ended = sys::process::pidfd(child.id() as i32).map_err(Fault::of)?;
    let (mut buffer, mut given) = (vec![0; 1 << 16], Ok(()));
    loop {
        let count = match file.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            count => count,
        };
        match count {
            Ok(0) => break,
            // Who stops reading early says so by its code, or wants no more.
            Ok(count) => {
                let bytes = &buffer[..count];
                if !sys::pipe::write(pipe.as_fd(), ended.as_fd(), bytes).map_err(Fault::of)? {
                    break;
                }
            }
            Err(error) => {
                given = Err(Fault::usage(format!("{name} was not copied whole: {error}")));
                break;
            }
        }
    }
    // Its end is the end of the file.
    drop(pipe);
    done(child.wait().map_err(Fault::of)?, heard, failed)?;
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_inside_is_a_session_and_a_path() {
        let of = |word: &str| Inside::of(OsStr::new(word)).map(|inside| inside.name());
        assert_eq!(of("a1:/etc/hosts").as_deref(), Some("a1:/etc/hosts"));
        assert_eq!(of("a1:b:c").as_deref(), Some("a1:b:c"));
        for host in ["file", "./a:b", "/a:b", ":b", "a:"] {
            assert_eq!(of(host), None, "{host}");
        }
    }
}
