//! Whether a template is what was made: how long its files were then is written down beside them.
//!
//! Less of a guest's memory than there was ends QEMU, or the guest, where it looks for the rest. What belongs to a saved process
//! its restorer looks at, and clones do without.

use std::fs;
use std::io;
use std::path::Path;

/// Where it is written down: a line for each file.
const SIZES: &str = "sizes";
/// The files, and what they are called until all are there.
const FILES: [(&str, &str); 3] =
    [("kernel", "kernel"), ("memory", "memory"), ("state", "state.new")];

/// Writes down how long the files in a directory are, which is about to be a template.
///
/// # Errors
/// The kernel's.
pub(super) fn write(place: &Path) -> io::Result<()> {
    let mut text = String::new();
    for (name, found) in FILES {
        let size = place.join(found).metadata()?.len();
        text.push_str(&format!("{name} {size}\n"));
    }
    fs::write(place.join(SIZES), text)
}

/// What is not as it was made, in words.
pub(super) fn fault(place: &Path) -> Option<String> {
    let lines = fs::read_to_string(place.join(SIZES)).unwrap_or_default();
    let size = |wanted: &str| {
        let mut words = lines.lines().filter_map(|line| line.split_once(' '));
        words.find(|(name, _)| *name == wanted)?.1.parse::<u64>().ok()
    };
    FILES.into_iter().find_map(|(name, _)| match (place.join(name).metadata(), size(name)) {
        (Err(error), _) => Some(format!("its {name}: {error}")),
        (Ok(data), Some(size)) if data.len() == size => None,
        (Ok(data), Some(size)) => {
            Some(format!("its {name} has {} bytes, and had {size}", data.len()))
        }
        (Ok(_), None) => Some(format!("it is not known how long its {name} was")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::{make_directory, name};
    use super::*;

    #[test]
    fn what_was_cut_off_or_is_gone_is_found() {
        let place = std::env::temp_dir().join(name("ringfence-whole-"));
        make_directory(&place).expect("a directory");
        FILES.iter().for_each(|(_, file)| fs::write(place.join(file), "bytes").expect("written"));
        write(&place).expect("written down");
        assert!(fault(&place).is_some_and(|why| why.starts_with("its state: ")), "no state yet");
        fs::rename(place.join("state.new"), place.join("state")).expect("renamed");
        assert_eq!(fault(&place), None);
        for (file, _) in FILES {
            let path = place.join(file);
            for other in ["by", "bytes and more"] {
                fs::write(&path, other).expect("written");
                let why = fault(&place).expect("found");
                assert_eq!(why, format!("its {file} has {} bytes, and had 5", other.len()));
            }
            fs::remove_file(&path).expect("removed");
            assert!(fault(&place).is_some(), "{file}");
            fs::write(&path, "bytes").expect("written");
        }
        assert_eq!(fault(&place), None);
        fs::write(place.join(SIZES), "").expect("written");
        assert!(fault(&place).is_some_and(|why| why.contains("not known")));
        fs::remove_dir_all(&place).expect("removed");
    }
}
