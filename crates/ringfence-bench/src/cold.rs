//! Making a program cold: dropping the cached pages of the files that it reads.
//!
//! Writing to `/proc/sys/vm/drop_caches` empties the cache of the whole machine, wants root, and makes
//! everyone else's next minute slow. Dropping just the files that the program opens has the same
//! effect on the program. (Neither drops pages that another process has mapped, such as the C library's.)

use crate::bench::Bench;
use crate::error::Result;
use crate::sys::process::drop_cached_pages;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

/// The files that a command reads.
pub struct Files {
    paths: Vec<PathBuf>,
    /// How they were found out.
    pub method: &'static str,
}

impl Files {
    /// Finds out which files `argv` opens, by tracing it once; without strace, only the program itself.
    pub fn of(bench: &mut Bench, argv: &[OsString]) -> Result<Files> {
        let program: Vec<PathBuf> = argv.first().map(PathBuf::from).into_iter().collect();
        let Some(strace) = crate::work::find("strace") else {
            return Ok(Files { paths: program, method: "the program's own file only (no strace)" });
        };
        let log = bench.work.root.join("opened");
        let mut line: Vec<OsString> = vec![strace.into()];
        line.extend(["-f", "-qq", "-e", "trace=open,openat,execve", "-o"].map(OsString::from));
        line.push(log.clone().into());
        line.extend(argv.iter().cloned());
        let command = bench.plain(&line)?;
        bench.run(&command, false)?;
        let text = std::fs::read(&log).unwrap_or_default();
        let mut paths = opened(&String::from_utf8_lossy(&text));
        paths.extend(program);
        Ok(Files {
            paths: paths.into_iter().collect(),
            method: "every file it opens, as traced by strace",
        })
    }

    /// Drops their cached pages.
    pub fn drop_cached(&self) {
        for path in &self.paths {
            if let Ok(file) = File::open(path) {
                drop_cached_pages(&file);
            }
        }
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.paths.len()
    }
}

/// The regular files that a trace shows being opened with success.
fn opened(trace: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let (call, result) = line.rsplit_once(" = ")?;
        let name = call.split('"').nth(1)?;
        (!result.starts_with('-')).then(|| PathBuf::from(name))
    };
    trace.lines().filter_map(path).filter(|path| path.is_absolute() && path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_were_opened_count() {
        let trace = "1 execve(\"/proc/self/exe\", [\"x\"], 0x7 /* 9 vars */) = 0\n\
                     1 openat(AT_FDCWD, \"/etc/nosuchfile\", O_RDONLY) = -1 ENOENT (No such file)\n\
                     1 openat(AT_FDCWD, \"/etc\", O_RDONLY|O_DIRECTORY) = 3\n\
                     1 openat(AT_FDCWD, \"/proc/version\", O_RDONLY) = 3\n";
        let found: Vec<_> = opened(trace).into_iter().collect();
        assert_eq!(found, [PathBuf::from("/proc/self/exe"), PathBuf::from("/proc/version")]);
    }
}
