//! Which names a snapshot leaves out, by the rules of `.gitignore` files.
//!
//! When a snapshot is compared with the workspace, the rules are those that the snapshot holds,
//! not those on disk: else a program inside could hide what it did by one more line in a
//! `.gitignore`.

use super::beneath::shown;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The rules from the workspace down to the directory at hand.
#[derive(Default)]
pub(super) struct Rules {
    levels: Vec<Gitignore>,
}

impl Rules {
    /// Goes down into a directory, with the text of its `.gitignore`.
    pub fn enter(&mut self, directory: &[u8], text: &[u8]) {
        let mut builder = GitignoreBuilder::new(shown(directory));
        for line in String::from_utf8_lossy(text).lines() {
            // A line that is no pattern ignores nothing, as with git.
            let _ = builder.add_line(None, line);
        }
        self.levels.push(builder.build().unwrap_or_else(|_| Gitignore::empty()));
    }

    /// Comes up again.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// The name is left out. The nearest rule that says anything decides.
    pub fn ignore(&self, path: &[u8], directory: bool) -> bool {
        for level in self.levels.iter().rev() {
            match level.matched(shown(path), directory) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}
