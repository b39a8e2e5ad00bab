//! `ringfence import`: a peer's settings as a profile.

use crate::error::Fault;
use crate::generate::print;
use crate::help;
use crate::options::{PLAIN, Spec, one, parse};
use ringfence_policy::import::{Peer, import as convert};
use ringfence_policy::suggest::nearest;
use ringfence_session::outside;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

/// Settings are never larger.
const LARGEST: u64 = 16 << 20;
const PEERS: [&str; 4] = ["claude", "srt", "fence", "greywall"];

/// Its options.
pub const IMPORT: [Spec; PLAIN.len() + 1] = {
    let [json, help] = PLAIN;
    let output = one("output", "FILE", "Write the profile to FILE");
    [json, Spec { short: Some('o'), ..output }, help]
};

/// `ringfence import claude|srt|fence|greywall FILE [-o FILE]`: the profile goes to standard
/// output or the file, what could not be carried over to standard error.
///
/// # Errors
/// An unknown peer, a file that cannot be read or is not of that peer.
pub fn import(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&IMPORT, arguments, false)?;
    if let Some(done) = help::asked("import", &parsed) {
        return done;
    }
    let [peer, file] = &parsed.rest[..] else {
        return Err(Fault::usage(
            "name a peer and its settings: ringfence import claude|srt|fence|greywall FILE",
        ));
    };
    let name = peer.to_string_lossy();
    let peer: Peer = name.parse().map_err(|_| {
        let near =
            nearest(&name, &PEERS).map_or(String::new(), |near| format!("; did you mean {near}?"));
        Fault::usage(format!("unknown peer {name}{near} (claude, srt, fence, greywall)"))
    })?;
    let shown = file.display();
    let mut text = String::new();
    let opened = outside::open_named(Path::new(file)).map(|file| file.take(LARGEST + 1));
    opened
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|error| Fault::usage(format!("cannot read {shown}: {error}")))?;
    if text.len() as u64 > LARGEST {
        return Err(Fault::usage(format!("{shown} is too large for settings (16 MiB)")));
    }
    let imported =
        convert(peer, &text).map_err(|error| Fault::usage(format!("{shown}: {error}")))?;
    for note in &imported.notes {
        ringfence_sys::say!("ringfence: {}", ringfence_policy::shown::bytes(note.as_bytes()));
    }
    match parsed.last("output") {
        None => print(imported.toml.as_bytes()),
        Some(output) => {
            let written = outside::write(None, Path::new(output), imported.toml.as_bytes());
            written.map_err(|error| {
                Fault::usage(format!("cannot write {}: {error}", output.display()))
            })?;
            Ok(0)
        }
    }
}
