//! Paths in the JSON of a plan: as they are, for a plan that is read back, or as they are shown.

use super::Plan;
use ringfence_net::inspect::Content;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::cell::Cell;
use std::path::{Path, PathBuf};

thread_local! {
    /// What is written is for somebody to read, and no plan again.
    static SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// A plan as JSON that is shown: what is no text in a name is U+FFFD there, as in other JSON of ours.
///
/// # Errors
/// None is known.
pub fn shown(plan: &Plan) -> serde_json::Result<serde_json::Value> {
    SHOWN.set(true);
    let json = serde_json::to_value(plan);
    SHOWN.set(false);
    json
}

/// Writes what holds paths.
pub(crate) fn write<T: Paths, S: Serializer>(paths: &T, serializer: S) -> Result<S::Ok, S::Error> {
    if SHOWN.get() { paths.shown().serialize(serializer) } else { paths.serialize(serializer) }
}

/// What holds paths.
pub(crate) trait Paths: Serialize {
    /// As text.
    fn shown(&self) -> impl Serialize;
}

fn text(path: &Path) -> Cow<'_, str> {
    path.to_string_lossy()
}

impl Paths for PathBuf {
    fn shown(&self) -> impl Serialize {
        text(self)
    }
}

impl Paths for Option<PathBuf> {
    fn shown(&self) -> impl Serialize {
        self.as_deref().map(text)
    }
}

impl Paths for Vec<PathBuf> {
    fn shown(&self) -> impl Serialize {
        self.iter().map(|path| text(path)).collect::<Vec<_>>()
    }
}

impl Paths for Vec<(PathBuf, PathBuf)> {
    fn shown(&self) -> impl Serialize {
        self.iter().map(|(path, to)| (text(path), text(to))).collect::<Vec<_>>()
    }
}

/// Of paths with something else.
macro_rules! with {
    ($($else:ty),*) => {
        $(impl Paths for Vec<(PathBuf, $else)> {
            fn shown(&self) -> impl Serialize {
                self.iter().map(|(path, with)| (text(path), with)).collect::<Vec<_>>()
            }
        })*
    };
}

with!(Content, String, bool);
