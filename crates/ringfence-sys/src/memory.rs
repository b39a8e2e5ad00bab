//! The memory that a program takes by being there.

/// Bytes of a page (x86-64, and most kernels elsewhere).
pub const PAGE: usize = 4096;

/// Gives memory back that was allocated and freed (`malloc_trim(3)`).
pub fn give_back() {
    // SAFETY: takes a number only, and the allocator is locked while it works.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use crate::fd::{self, Ready, Watched};
    use std::os::fd::AsFd;

    #[test]
    fn a_program_goes_on_without_its_code() {
        let text = "constants and code are there again when they are needed".to_owned();
        let (read, write) = fd::pipe().expect("a pipe");
        assert_eq!(fd::rest_until_readable(&[read.as_fd()], 0), Ok(vec![false]));
        assert_eq!(format!("{text}!").len(), text.len() + 1);
        fd::write_all(write.as_fd(), text.as_bytes()).expect("written");
        assert_eq!(fd::rest_until_readable(&[read.as_fd()], -1), Ok(vec![true]));
        let watched = [Watched { fd: read.as_fd(), read: true, write: false }];
        assert_eq!(fd::rest(&watched, -1), Ok(vec![Ready { read: true, write: false }]));
    }
}
