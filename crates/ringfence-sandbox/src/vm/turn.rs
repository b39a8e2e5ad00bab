//! Who makes a template: one at a time, and what is left of those who did not finish.

use super::machine;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What directories are called in which a template is being made.
pub(super) const UNFINISHED: &str = "new-";
/// The file that is locked by who makes one.
const LOCK: &str = "making";
/// Between two looks whether somebody else is done, who takes seconds: a lock that is waited for has no limit.
const MOMENT: Duration = Duration::from_millis(20);

/// The turn to make a template here: as long as it lives, nobody else makes one. It ends with the process, however that ends.
#[derive(Debug)]
pub(super) struct Turn {
    _file: File,
    /// It is a lock, which some file systems do not have.
    locked: bool,
}

impl Turn {
    /// Waits for it, but not for one who never gets done: a process that is stopped, for example.
    ///
    /// # Errors
    /// A sentence.
    pub fn wait(cache: &Path, most: Duration) -> Result<Turn, String> {
        let path = cache.join(LOCK);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed)?;
        let until = Instant::now() + most;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Turn { _file: file, locked: true }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(MOMENT);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(format!(
                        "another ringfence makes the saved guest, and is not done after {most:?}: let it go on if it \
                         was stopped, or end it (lsof {} says which process it is)",
                        path.display()
                    ));
                }
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Turn { _file: file, locked: false });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }

    /// Removes what was left by those whose making was interrupted: nobody's by now. Without locks that of dead processes.
    pub fn remove_unfinished(&self, cache: &Path) {
        if !self.locked {
            return machine::remove_dead(cache, UNFINISHED);
        }
        for entry in unfinished(cache) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn unfinished(cache: &Path) -> impl Iterator<Item = fs::DirEntry> {
    let entries = cache.read_dir().into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()))
}

/// Removes what was left here, unless somebody makes a template.
pub(super) fn tidy(cache: &Path) {
    if unfinished(cache).next().is_some()
        && let Ok(turn) = Turn::wait(cache, Duration::ZERO)
    {
        turn.remove_unfinished(cache);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_makes_a_template_at_a_time_and_what_was_left_goes() {
        let cache = std::env::temp_dir().join(machine::name("ringfence-turn-"));
        machine::make_directory(&cache).expect("a directory");
        // The number is that of a process that lives: it may be anybody's by now.
        let left = cache.join(machine::name(UNFINISHED));
        fs::create_dir(&left).expect("made");
        fs::write(left.join("memory"), "some").expect("written");
        let other = cache.join("template-0");
        fs::create_dir(&other).expect("made");
        let first = Turn::wait(&cache, Duration::ZERO).expect("its turn");
        let why = Turn::wait(&cache, Duration::ZERO).expect_err("another's turn");
        assert!(why.contains("not done"), "{why}");
        tidy(&cache);
        assert!(left.exists(), "somebody is at it");
        drop(first);
        tidy(&cache);
        assert!(!left.exists() && other.exists());
        Turn::wait(&cache, Duration::ZERO).expect("the next one's");
        fs::remove_dir_all(&cache).expect("removed");
    }
}
