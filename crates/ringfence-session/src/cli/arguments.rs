//! The arguments of these commands: words, switches, and options with a value.

use super::text;
use ringfence_policy::suggest;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// What a command knows.
pub(super) struct Known {
    /// Options without a value, without their dashes.
    pub switches: &'static [&'static str],
    /// Options with one.
    pub valued: &'static [&'static str],
}

/// What was given.
#[derive(Default)]
pub(super) struct Given {
    pub words: Vec<OsString>,
    switches: Vec<&'static str>,
    values: Vec<(&'static str, OsString)>,
}

impl Given {
    /// A switch was given.
    pub fn has(&self, name: &str) -> bool {
        self.switches.contains(&name)
    }

    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&OsString> {
        self.values.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| value)
    }

    /// The last value of an option, as text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, String> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value
            .to_str()
            .map(Some)
            .ok_or_else(|| format!("--{name}: {} is no valid text", value.display()))
    }

    /// A word that a command has no use for was meant for something.
    pub fn at_most(&self, most: usize, usage: &str) -> Result<(), String> {
        match self.words.get(most) {
            None => Ok(()),
            Some(word) => {
                Err(format!("{} is one word too many: {usage}", text::safe(word.as_bytes())))
            }
        }
    }

    /// A word as text.
    pub fn word(&self, at: usize) -> Result<Option<&str>, String> {
        let Some(word) = self.words.get(at) else { return Ok(None) };
        word.to_str().map(Some).ok_or_else(|| format!("{} is no valid text", word.display()))
    }
}

/// Reads arguments. `--` ends the options.
pub(super) fn parse(known: &Known, arguments: Vec<OsString>) -> Result<Given, String> {
    let mut given = Given::default();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            given.words.extend(rest);
            break;
        }
        let Some(option) = bytes.strip_prefix(b"--") else {
            if bytes.len() > 1 && bytes[0] == b'-' {
                return Err(unknown(known, &argument.to_string_lossy()));
            }
            given.words.push(argument);
            continue;
        };
        let cut = option.iter().position(|&byte| byte == b'=');
        let name = &option[..cut.unwrap_or(option.len())];
        let is = |listed: &&&'static str| listed.as_bytes() == name;
        if let Some(switch) = known.switches.iter().find(is).filter(|_| cut.is_none()) {
            given.switches.push(switch);
        } else if let Some(valued) = known.valued.iter().find(is) {
            let value = match cut {
                Some(cut) => Some(std::ffi::OsStr::from_bytes(&option[cut + 1..]).to_owned()),
                None => rest.next(),
            };
            let value = value.ok_or_else(|| format!("--{valued} needs a value"))?;
            given.values.push((valued, value));
        } else {
            return Err(unknown(known, &argument.to_string_lossy()));
        }
    }
    Ok(given)
}

fn unknown(known: &Known, option: &str) -> String {
    let all = known.switches.iter().chain(known.valued);
    let all: Vec<String> = all.map(|name| format!("--{name}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let name = option.split('=').next().unwrap_or_default();
    let tail = suggest::meant(name, &all, &format!("; there are: {}", all.join(", ")));
    format!("unknown option {option}{tail}")
}
