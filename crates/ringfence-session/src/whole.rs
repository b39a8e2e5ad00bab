//! Files of our own that are whole or not there, whatever ends us or the machine.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes one, for its owner alone (mode 0600), in the place of what was there. Beside it, by the ending `new`, stands what
/// is not whole yet.
///
/// # Errors
/// The file system's.
pub fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = std::fs::File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
