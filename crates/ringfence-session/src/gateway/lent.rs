//! The standard streams that are lent to clones. A terminal never is: the template, and whatever it leaves
//! behind, could keep it, and go on reading what is typed when the clones have ended. A descriptor of a terminal
//! can be read from by whichever number it has, since all of them are usually one that is open both ways. So what
//! would be read from one is empty, and what is printed comes by a pipe, and is printed here.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::IsTerminal;

/// Whether a descriptor may go inside. By a directory the template could list what is in it, and change modes and
/// times there and around it, whatever is granted; one that was opened by `O_PATH` is a place, and no stream.
pub(super) fn may_be_lent(fd: BorrowedFd<'_>) -> bool {
    let place = rustix::fs::fcntl_getfl(fd).map(|flags| flags.contains(OFlags::PATH));
    let directory = rustix::fs::fstat(fd)
        .map(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    place == Ok(false) && directory == Ok(false)
}

/// What is printed on a terminal in the clones' place.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: BorrowedFd<'static>,
    /// Where it comes from, until nobody can write to it any more.
    pipe: Option<OwnedFd>,
}

/// The three streams as they are lent, and what is to be printed meanwhile.
pub(super) fn streams() -> Result<(Vec<OwnedFd>, Option<Screen>), Errno> {
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    if !own.iter().all(|stream| may_be_lent(*stream)) {
        return Err(Errno::ISDIR);
    }
    // Output and errors on a terminal go by one pipe, so that they stay in their order.
    let terminal = own[1..].iter().copied().find(IsTerminal::is_terminal);
    let (from, to) = match terminal {
        Some(_) => {
            let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::fs::fcntl_setfl(&from, OFlags::NONBLOCK)?;
            (Some(from), Some(to))
        }
        None => (None, None),
    };
    let mut lent = Vec::new();
    for (at, stream) in own.into_iter().enumerate() {
        lent.push(match (stream.is_terminal(), &to) {
            (false, _) => rustix::io::fcntl_dupfd_cloexec(stream, 3)?,
            (true, Some(to)) if at > 0 => rustix::io::fcntl_dupfd_cloexec(to, 3)?,
            (true, _) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::open(c"/dev/null", flags, Mode::empty())?
            }
        });
    }
    Ok((lent, terminal.map(|terminal| Screen { terminal, pipe: from })))
}

impl Screen {
    /// What to watch.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Prints what there is, once; false when there is no more now.
    pub fn print(&mut self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; 16 * 1024];
        match rustix::io::read(pipe, &mut buffer) {
            Ok(count @ 1..) => {
                let mut rest = &buffer[..count];
                // A terminal that is gone sends SIGHUP.
                while let Ok(written @ 1..) = rustix::io::write(self.terminal, rest) {
                    rest = &rest[written..];
                }
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Ok(_) | Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    /// Prints what the clones left. What others print into the pipe is nobody's: an end that never comes
    /// is not waited for.
    pub fn print_rest(&mut self) {
        let _ = (0..256).find(|_| !self.print());
    }
}
