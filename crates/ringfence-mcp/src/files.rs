//! The tools for files. Programs inside do it: the kernel decides, not the server.

use crate::server::State;
use crate::text::{fitting, without_begun};
use crate::tools::{Answer, Given, json_of};
use crate::within::Ran;
use ringfence_session::said;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

/// What `why` says of a name at which nothing new stays.
const TAKEN_AWAY: &str = "a new one does not survive the run";

/// Runs a program of the sandbox on a path; why it could not is the error.
fn on_path(
    state: &State,
    given: &Given<'_>,
    path: &OsStr,
    argv: &[&OsStr],
    input: Vec<u8>,
) -> Result<Ran, String> {
    let argv: Vec<OsString> = argv.iter().map(|word| (*word).to_owned()).collect();
    let ran = state.sandbox.exec(None, Duration::from_secs(60), &argv, input, given.cancelled)?;
    // What it says besides (a shell without its locale, a note of ours) is no failure.
    if ran.code == 0 {
        return Ok(ran);
    }
    let why = said::reason(&ran.stderr).unwrap_or_else(|| format!("exit code {}", ran.code));
    Err(format!("{}: {why}; `why` says which rule decides", path.to_string_lossy()))
}

/// An absolute path; relative ones are the directory's.
fn path(state: &State, given: &Given<'_>) -> Result<OsString, String> {
    let path = given.text("path")?;
    Ok(state.sandbox.config().workdir.join(path).into_os_string())
}

pub(crate) fn read_file(state: &State, given: &Given<'_>) -> Answer {
    let path = path(state, given)?;
    let (offset, most) = (given.number("offset")?.unwrap_or(0), 1 << 20);
    let length = given.number("length")?.unwrap_or(most).min(most);
    // Of two programs in a pipe only the last one's code is known, and a directory can be opened: so it is asked for first.
    let script = "if test -d \"$1\"; then echo \"$1: Is a directory\" >&2; exit 1; fi; \
                  exec < \"$1\" && tail -c +\"$2\" | head -c \"$3\"";
    // The kernel knows no files that are longer.
    let from = offset.min(i64::MAX as u64 - 1) + 1;
    let (from, wanted) = (from.to_string(), length.to_string());
    let argv: [&OsStr; 7] = [
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        "sh".as_ref(),
        &path,
        from.as_ref(),
        wanted.as_ref(),
    ];
    let ran = on_path(state, given, &path, &argv, Vec::new())?;
    // Less than was wanted is the file's end.
    let more = ran.stdout.len() as u64 == length;
    let read = if more { without_begun(&ran.stdout) } else { &ran.stdout };
    let (text, bytes) = fitting(read);
    let whole = std::str::from_utf8(&read[..bytes]).is_ok();
    Ok(json!({"path": path.to_string_lossy(), "text": text, "bytes": bytes, "utf8": whole}))
}

pub(crate) fn write_file(state: &State, given: &Given<'_>) -> Answer {
    let (path, text) = (path(state, given)?, given.text("text")?);
    let note = protected(state, &path)?;
    let parent = Path::new(&path).parent().unwrap_or(Path::new("/")).as_os_str();
    let script = "mkdir -p -- \"$2\" && cat > \"$1\"";
    let argv: [&OsStr; 6] =
        ["sh".as_ref(), "-c".as_ref(), script.as_ref(), "sh".as_ref(), &path, parent];
    let bytes = text.len();
    on_path(state, given, &path, &argv, text.into_bytes())?;
    let mut answer = json!({"path": path.to_string_lossy(), "bytes": bytes});
    if let Some(note) = note {
        answer["protected"] = note.into();
    }
    Ok(answer)
}

/// What becomes of a file of this name, where that is something else than to stay as it was written. One that would be
/// taken away again is not written: a program of the host runs what it finds there.
fn protected(state: &State, path: &OsStr) -> Result<Option<String>, String> {
    let found = json_of(&state.sandbox.why(&["write".as_ref(), path])?).unwrap_or_default();
    let Some(effect) = found["effect"].as_str() else { return Ok(None) };
    let why = found["explanation"].as_str().unwrap_or("it is protected");
    let note = format!("{why}; {effect}");
    match effect {
        TAKEN_AWAY => {
            let remedy = found["remedy"].as_str().unwrap_or("nothing");
            Err(format!("{note}. Not written; the user can allow it: {remedy}"))
        }
        _ => Ok(Some(note)),
    }
}

pub(crate) fn list_directory(state: &State, given: &Given<'_>) -> Answer {
    let path = path(state, given)?;
    // A link to a directory is looked into, as `ls` does; names are the program's.
    let place = Path::new(&path).join(".").into_os_string();
    let form = "%y\\t%s\\t%f\\0";
    let argv: [&OsStr; 8] = [
        "find".as_ref(),
        &place,
        "-mindepth".as_ref(),
        "1".as_ref(),
        "-maxdepth".as_ref(),
        "1".as_ref(),
        "-printf".as_ref(),
        form.as_ref(),
    ];
    let ran = on_path(state, given, &path, &argv, Vec::new())?;
    let mut entries: Vec<(String, Value)> = Vec::new();
    // What was cut has no end, and its name is none.
    for line in ran.stdout.split_inclusive(|&byte| byte == 0) {
        let Some(line) = line.strip_suffix(b"\0") else { continue };
        let line = String::from_utf8_lossy(line).into_owned();
        let parts: Vec<&str> = line.splitn(3, '\t').collect();
        let [kind, size, name] = parts[..] else { continue };
        let kind = match kind {
            "f" => "file",
            "d" => "directory",
            "l" => "symlink",
            _ => "other",
        };
        let size: u64 = size.parse().unwrap_or(0);
        entries.push((name.to_owned(), json!({"name": name, "kind": kind, "size": size})));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    let mut answer = json!({"path": path.to_string_lossy(), "entries": entries});
    if ran.left_out > 0 {
        answer["bytes_left_out"] = ran.left_out.into();
    }
    Ok(answer)
}
