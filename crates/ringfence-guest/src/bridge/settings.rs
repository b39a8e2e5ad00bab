//! What a bridge is told by its command line, and how it describes a command.

use crate::line;
use crate::wire::{Exec, MOST, MOST_WORDS};
use ringfence_sys::signal::Outset;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Directories whose content the guest has of its own.
const OWN: [&[u8]; 3] = [b"/proc", b"/dev", b"/sys"];

/// What a bridge needs to know beside what it has inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The virtual machine's socket.
    pub socket: PathBuf,
    /// The guest's connections go out through the sandbox's network.
    pub network: bool,
    /// Ports of the loopback that lead to the host's, as ranges.
    pub loopback: Vec<(u16, u16)>,
    /// Ports that the host may connect in to.
    pub publish: Vec<u16>,
    /// The most processes in the guest.
    pub processes: Option<u64>,
    /// The most open files of a process in the guest.
    pub files: Option<u64>,
    /// The most bytes in directories of the guest's own that its programs may write.
    pub disk: Option<u64>,
    /// The guest's memory: what is kept here for a guest is bounded by it.
    pub memory: u64,
    /// Directories of the sandbox's own, which a fork of the session gets a copy of.
    pub private: Vec<PathBuf>,
    /// Directories and files whose changes are kept apart: a fork has layers of its own.
    pub apart: Vec<PathBuf>,
    /// The command.
    pub argv: Vec<Vec<u8>>,
}

impl Settings {
    /// As words for a command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = vec![OsString::from("--socket"), self.socket.clone().into()];
        let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
        if self.network {
            add("--network", "filtered".to_owned());
        }
        for (first, last) in &self.loopback {
            add("--loopback", format!("{first}-{last}"));
        }
        for port in &self.publish {
            add("--publish", port.to_string());
        }
        if let Some(count) = self.processes {
            add("--pids", count.to_string());
        }
        if let Some(count) = self.files {
            add("--open-files", count.to_string());
        }
        if let Some(bytes) = self.disk {
            add("--disk", bytes.to_string());
        }
        add("--memory", self.memory.to_string());
        for (name, places) in [("--private", &self.private), ("--apart", &self.apart)] {
            let place = |place: &PathBuf| [OsString::from(name), place.clone().into()];
            words.extend(places.iter().flat_map(place));
        }
        words.push("--".into());
        words.extend(self.argv.iter().cloned().map(OsString::from_vec));
        words
    }

    /// From such words; `None` when they are none.
    pub fn of(words: impl IntoIterator<Item = OsString>) -> Option<Settings> {
        let mut words = words.into_iter();
        let mut settings = Settings::default();
        loop {
            let name = words.next()?;
            if name == "--" {
                break;
            }
            let value = words.next()?;
            let text = value.to_str();
            match name.to_str()? {
                "--socket" => settings.socket = value.into(),
                "--apart" => settings.apart.push(value.into()),
                "--private" => settings.private.push(value.into()),
                "--network" => settings.network = true,
                "--loopback" => {
                    let (first, last) = text?.split_once('-')?;
                    settings.loopback.push((first.parse().ok()?, last.parse().ok()?));
                }
                "--publish" => settings.publish.push(text?.parse().ok()?),
                "--pids" => settings.processes = Some(text?.parse().ok()?),
                "--open-files" => settings.files = Some(text?.parse().ok()?),
                "--disk" => settings.disk = Some(text?.parse().ok()?),
                "--memory" => settings.memory = text?.parse().ok()?,
                _ => return None,
            }
        }
        settings.argv = words.map(OsString::into_vec).collect();
        (!settings.argv.is_empty()).then_some(settings)
    }

    /// The limits of open files of a process in the guest, where it would have inherited these.
    pub(super) fn files(&self, inherited: (u64, u64)) -> (u64, u64) {
        let most = self.files.unwrap_or(u64::MAX);
        (inherited.0.min(most), inherited.1.min(most))
    }
}

/// The limit of open files as it was inherited; this process takes all it may have.
pub(super) fn inherited_files() -> (u64, u64) {
    static LIMIT: OnceLock<(u64, u64)> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile);
        let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, all);
        // The guest kernel's own ceiling (fs.nr_open).
        let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX).min(1 << 20);
        (number(limit.current), number(limit.maximum))
    })
}

/// What this process has changed of what its command is to have.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// The file creation mask.
    pub umask: u32,
    /// Signals.
    pub signals: Outset,
}

/// A command with this process's directory, user, limits and environment, and what it had before.
pub(super) fn exec(
    terminal: ((bool, bool), (u16, u16)),
    argv: Vec<Vec<u8>>,
    before: Before,
) -> Exec {
    let join =
        |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let given = std::env::vars_os().filter(|(name, _)| name != line::VARIABLE);
    let workdir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    Exec {
        terminal: terminal.0,
        size: terminal.1,
        user: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        umask: before.umask,
        files: inherited_files(),
        signals: (before.signals.ignored.bits(), before.signals.blocked.bits()),
        workdir: workdir.into_os_string().into_vec(),
        program: found(&argv[0]).unwrap_or_default(),
        argv,
        environment: given.map(join).collect(),
    }
}

/// Whether a guest can be given a command; its frame has bounds.
///
/// # Errors
/// A sentence.
pub(super) fn carried(exec: &Exec) -> Result<(), String> {
    // Numbers, and the lengths of all.
    const BESIDE: usize = 128;
    let instead = "give them by a file or by standard input (xargs), or use --tier namespace";
    let words = exec.argv.len().max(exec.environment.len());
    if words > MOST_WORDS {
        return Err(format!(
            "the command has {words} words or variables, and a virtual machine takes {MOST_WORDS}: \
             {instead}"
        ));
    }
    let texts = exec.argv.iter().chain(&exec.environment).chain([&exec.workdir, &exec.program]);
    let bytes = BESIDE + texts.map(|text| text.len() + size_of::<u32>()).sum::<usize>();
    if bytes > MOST {
        return Err(format!(
            "the command's words and variables have {bytes} bytes, and a virtual machine takes \
             {MOST}: {instead}"
        ));
    }
    Ok(())
}

/// Where a command is, by PATH: what this process sees, the guest sees. Here each look is a system call, there it is
/// a question to this process. Nothing where the guest may see something else, or where there is a doubt.
fn found(name: &[u8]) -> Option<Vec<u8>> {
    let search = std::env::var_os("PATH")?;
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    for directory in search.as_bytes().split(|&byte| byte == b':') {
        let own = OWN.iter().any(|own| directory.starts_with(own));
        if own || !directory.starts_with(b"/") {
            return None;
        }
        let path = PathBuf::from(OsString::from_vec([directory, b"/", name].concat()));
        let executable = rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS);
        match executable {
            Ok(()) if path.is_file() => return Some(path.into_os_string().into_vec()),
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_their_words() {
        let settings = Settings {
            socket: "/run/a b".into(),
            network: true,
            loopback: vec![(1, 2), (80, 80)],
            publish: vec![6379],
            processes: Some(64),
            files: Some(48),
            disk: Some(1 << 20),
            memory: 1 << 30,
            apart: vec!["/home/a b/c".into()],
            private: vec!["/tmp".into(), "/home/a b".into()],
            argv: vec![b"--".to_vec(), b"--socket".to_vec()],
        };
        assert_eq!(Settings::of(settings.words()), Some(settings));
    }

    #[test]
    fn words_that_say_something_else_are_none() {
        for words in
            [&["--"][..], &["--socket"], &["--pids", "many", "--", "x"], &["--odd", "1", "--", "x"]]
        {
            assert_eq!(Settings::of(words.iter().map(OsString::from)), None, "{words:?}");
        }
    }
}
