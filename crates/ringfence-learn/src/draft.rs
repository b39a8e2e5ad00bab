//! The beginning of a profile for a program, from its files alone: which features its libraries
//! and its interpreter call for. Nothing is executed.

use crate::program::Answer;
use crate::supplies::fits;
use std::path::{Path, PathBuf};

/// A feature that a library or an interpreter calls for.
struct Sign {
    /// Names of files, with `*`.
    files: &'static [&'static str],
    feature: &'static str,
    /// Why it is left to the user; empty for one that is proposed.
    reason: &'static str,
    /// A program that has it shows windows.
    window: bool,
}

const fn sign(files: &'static [&'static str], feature: &'static str) -> Sign {
    Sign { files, feature, reason: "", window: false }
}

const fn toolkit(files: &'static [&'static str], feature: &'static str) -> Sign {
    Sign { files, feature, reason: "", window: true }
}

const fn left(files: &'static [&'static str], feature: &'static str, reason: &'static str) -> Sign {
    Sign { files, feature, reason, window: false }
}

/// The table.
const SIGNS: [Sign; 19] = [
    toolkit(&["libgtk-3.so*", "libgtk-4.so*", "libgtk-x11-2.0.so*"], "gtk"),
    toolkit(&["libQt5Gui.so*", "libQt6Gui.so*"], "qt"),
    toolkit(
        &["libX11.so*", "libxcb.so*", "libwayland-client.so*", "libSDL2-2.0.so*", "libSDL3.so*"],
        "display",
    ),
    sign(&["libfontconfig.so*"], "fonts"),
    sign(&["libdconfsettings.so"], "dconf"),
    sign(&["libenchant-2.so*", "libhunspell-*.so*", "libaspell.so*"], "dictionaries"),
    sign(&["libGL.so*", "libEGL.so*", "libvulkan.so*", "libva.so*"], "gpu"),
    sign(&["libasound.so*"], "alsa"),
    left(&["libpulse.so*"], "pulseaudio", "with it, it can listen to the microphone"),
    left(&["libpipewire-0.3.so*"], "pipewire", "with it, it can listen to the microphone"),
    left(&["libcups.so*"], "printing", "the printers' service acts for whoever connects to it"),
    left(
        &["libdbus-1.so*"],
        "dbus",
        "whoever talks to the session bus is not confined: name what \
        it needs in [dbus] instead",
    ),
    left(&["libgpgme.so*"], "gpg", "it leads to the user's keys"),
    left(&["libv4l2.so*", "libv4lconvert.so*"], "webcam", "it sees the camera"),
    sign(&["python2*", "python3*", "pypy3*"], "python"),
    sign(&["node", "nodejs"], "node"),
    sign(&["perl", "perl5*"], "perl"),
    sign(&["ruby", "ruby2*", "ruby3*"], "ruby"),
    sign(&["java"], "java"),
];

/// A feature for a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub feature: &'static str,
    /// The file that calls for it.
    pub sign: PathBuf,
    /// Why it is left to the user; empty for one that is proposed.
    pub reason: &'static str,
}

/// What the files of a program say about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// Features, in the order of the table.
    pub features: Vec<Wanted>,
    /// It shows windows.
    pub window: bool,
    /// All that its files name was found: it can be shown just these.
    pub exact: bool,
}

/// Drafts a profile from the exact set of a program.
pub fn draft(answer: &Answer) -> Draft {
    let mut draft = Draft { exact: answer.missing.is_empty(), ..Draft::default() };
    let known = || answer.reasons.keys();
    let called = |sign: &Sign, path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !answer.directories.contains(path.as_path())
            && is_there(path)
            && sign.files.iter().any(|pattern| fits(pattern, name))
    };
    for sign in &SIGNS {
        let Some(path) = known().find(|path| called(sign, path)) else { continue };
        draft.window |= sign.window;
        let (feature, reason) = (sign.feature, sign.reason);
        draft.features.push(Wanted { feature, sign: path.clone(), reason });
    }
    draft
}

/// A directory of that name says nothing.
fn is_there(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Reason;

    #[test]
    fn libraries_and_interpreters_call_for_features() {
        let place = tempfile::tempdir().expect("a directory");
        let mut answer = Answer::default();
        for name in ["libgtk-3.so.0.2404", "libdbus-1.so.3", "python3.11", "libother.so.1"] {
            let path = place.path().join(name);
            std::fs::write(&path, "").expect("a file");
            answer.reasons.insert(path, Reason { how: "needed".to_owned(), by: None });
        }
        // A directory of the name is no interpreter.
        let directory = place.path().join("perl5");
        std::fs::create_dir(&directory).expect("a directory");
        answer.reasons.insert(directory, Reason { how: "kept for".to_owned(), by: None });
        let found = draft(&answer);
        let names: Vec<_> =
            found.features.iter().map(|one| (one.feature, one.reason.is_empty())).collect();
        assert_eq!(names, [("gtk", true), ("dbus", false), ("python", true)]);
        assert!(found.window && found.exact);
        answer.missing.insert(("libgone.so".to_owned(), place.path().to_owned()));
        assert!(!draft(&answer).exact);
    }
}
