//! The tops of writable trees, held by the launcher from before the command can run: where each is by the end can be asked
//! of the kernel, whatever it is called by then (`/proc/self/fd`).

use crate::bytes::{from, position};
use crate::call::{close, sys};
use crate::image::Image;
use crate::stamp::AT_FDCWD;
use crate::{Errno, flags};

/// The most trees.
pub const MOST: usize = 8;

/// `O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC` (open(2)).
const FLAGS: usize = (0o10_000_000 | flags::DIRECTORY | flags::NO_FOLLOW | 0o2_000_000) as usize;

/// Descriptors, in the order of the image's list.
#[derive(Clone, Copy)]
pub struct Tops([i32; MOST]);

impl Tops {
    /// None held. All zeroes, so that a static one takes no place in the file.
    pub const NONE: Tops = Tops([0; MOST]);

    /// Holds those of an image; nothing where one cannot be.
    pub(crate) fn hold(&mut self, image: &Image) -> Option<()> {
        let paths = image.bytes(image.header().tops);
        let (mut start, mut count) = (0, 0);
        while start < paths.len() {
            let path = from(paths, start);
            // SAFETY: strings in the data end within it.
            let opened = unsafe { sys!(openat, AT_FDCWD, path.as_ptr(), FLAGS, 0) };
            *self.0.get_mut(count)? = match opened {
                Ok(top) => top as i32 + 1,
                // Nor was it when the plan was made, or its stamps do not hold.
                Err(Errno::ENOENT) => 0,
                Err(_) => return None,
            };
            count += 1;
            start += position(path, 0)? + 1;
        }
        Some(())
    }

    /// Lets go of them.
    pub(crate) fn let_go(&mut self) {
        self.held().for_each(|(_, top)| close(top));
        *self = Tops::NONE;
    }

    /// Those that are held: which of the list, and the descriptor.
    pub fn held(&self) -> impl Iterator<Item = (usize, i32)> {
        let held = self.0.iter().enumerate().filter(|(_, top)| **top > 0);
        held.map(|(which, top)| (which, top - 1))
    }
}
