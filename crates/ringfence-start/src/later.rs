//! Stamps that are looked at while the view is built.
//!
//! A set of exact libraries (`--libs exact`) has a hundred files and more, most of them in a few
//! directories. To look at them takes as long as a quarter of the view, and the process that
//! makes the network namespace ([`crate::beside`]) looks at them when that is made. The
//! directories are opened before, by the one who is about to exchange the root, and each file is
//! looked for in them by its name alone. Nothing is executed before all of them held; what does not
//! is a failed step, and the start is done over in the ordinary way.

use crate::call::{close, sys};
use crate::image::{Image, Stamp, stamp_kind};
use crate::stamp::{AT_FDCWD, Looked, look, same};
use crate::{Errno, Result, flags};

/// The most directories.
pub const MOST: usize = 8;
/// From so many files in one directory on it pays: opening it takes longer than a look.
pub const ENOUGH: usize = 8;

/// `O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC` (open(2)).
const FLAGS: usize = (0o10_000_000 | flags::DIRECTORY | flags::NO_FOLLOW | 0o2_000_000) as usize;

/// The stamps of an image, and the directories that they name, in their order.
pub(crate) struct Later {
    image: Option<Image>,
    directories: [i32; MOST],
    opened: usize,
}

/// Not as it was.
const STALE: Errno = Errno::ESTALE;

impl Later {
    /// None to be looked at. All zeroes.
    pub(crate) const NONE: Later = Later { image: None, directories: [0; MOST], opened: 0 };

    /// Those of this image are to be looked at.
    pub(crate) fn set(&mut self, image: Image) {
        self.image = Some(image);
    }

    /// Opens the directories.
    pub(crate) fn open(&mut self) -> Result<()> {
        let Some(image) = self.image else { return Ok(()) };
        let (mut at, mut last) = (0, 0);
        while let Some(stamp) = image.later().get(at) {
            if at == 0 || stamp.text != last {
                let path = image.pointer(u64::from(stamp.text), 1).ok_or(STALE)?;
                let place = self.directories.get_mut(self.opened).ok_or(STALE)?;
                // SAFETY: strings in the data end within it.
                *place = unsafe { sys!(openat, AT_FDCWD, path, FLAGS, 0) }? as i32;
                self.opened += 1;
                last = stamp.text;
            }
            at += 1;
        }
        Ok(())
    }

    /// Whether all is as it was; lets go of the directories.
    pub(crate) fn hold(&self) -> Result<()> {
        let Some(image) = self.image else { return Ok(()) };
        let (mut at, mut directory, mut last) = (0, 0, 0);
        let mut held = Ok(());
        while let Some(stamp) = image.later().get(at) {
            if at > 0 && stamp.text != last {
                directory += 1;
            }
            last = stamp.text;
            if held.is_ok() {
                held = self.holds(&image, stamp, directory);
            }
            at += 1;
        }
        let mut at = 0;
        while at < self.opened
            && let Some(&directory) = self.directories.get(at)
        {
            close(directory);
            at += 1;
        }
        held
    }

    fn holds(&self, image: &Image, stamp: &Stamp, directory: usize) -> Result<()> {
        let name = image.pointer(u64::from(stamp.name), 1).ok_or(STALE)?;
        let directory = self.directories.get(directory).ok_or(STALE)?;
        let mut looked = Looked::new();
        let stat = look(&mut looked, *directory, name, 0)?;
        let holds = stamp.kind == stamp_kind::SAME && same(stat, &stamp.identity);
        if holds { Ok(()) } else { Err(STALE) }
    }
}
