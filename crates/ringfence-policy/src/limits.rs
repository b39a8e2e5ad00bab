//! The limits of a policy.

use crate::error::PolicyError;
use crate::key::Key;
use crate::merge::Merged;
use crate::policy::Limits;
use crate::resolve::choice;
use crate::size::{count, cpus, duration, size};

pub(crate) fn resolve(merged: &Merged) -> Result<Limits, PolicyError> {
    Ok(Limits {
        memory: one(merged, Key::Memory, size)?,
        pids: one(merged, Key::Pids, count)?,
        cpus: one(merged, Key::Cpus, cpus)?,
        open_files: one(merged, Key::OpenFiles, count)?,
        disk: one(merged, Key::Disk, size)?,
        timeout: one(merged, Key::Timeout, duration)?,
    })
}

fn one<T>(
    merged: &Merged,
    key: Key,
    read: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, PolicyError> {
    let Some((text, source)) = choice(merged, key) else { return Ok(None) };
    read(&text).map(Some).map_err(|reason| PolicyError::value(&source, reason))
}
