//! Asking the gateway, from inside.

use super::VARIABLE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Where this sandbox's gateway is, if this is a sandbox that has one.
pub fn socket() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()).map(PathBuf::from)
}

/// Asks for one thing and gives the answer, which holds what was asked for.
///
/// # Errors
/// One sentence: the gateway cannot be reached, or its own words.
pub fn ask(request: &Value) -> Result<Value, String> {
    let socket = socket().ok_or_else(|| {
        "this sandbox has no gateway for snapshots: the user starts it with --gateway".to_owned()
    })?;
    let failed = |call: &str, error| {
        format!("the gateway for snapshots: {call}({}): {error}", socket.display())
    };
    let mut stream = UnixStream::connect(&socket).map_err(|error| failed("connect", error))?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(|error| failed("write", error))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(|error| failed("read", error))?;
    let answer: Value = serde_json::from_str(&line)
        .map_err(|_| "the gateway for snapshots ended the connection".to_owned())?;
    match answer["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}
