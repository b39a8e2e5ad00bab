//! Bytes as text and back: git's configuration is bytes, and nobody promises that they are UTF-8 (a name in Latin-1). What
//! is compared and searched is text; what is opened are the bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Each byte that is no text stands for itself behind this character, the last plane's, which means nothing to anybody.
const BASE: u32 = 0x10_ff00;

/// A text that has all there is in some bytes: other bytes have another one.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        text.extend(bytes.iter().filter_map(|byte| char::from_u32(BASE + u32::from(*byte))));
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match u32::from(character) >= BASE {
                // Written as such, it is not to be taken for one of ours.
                true => escape(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(character),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// The path that such a text means.
pub(crate) fn path(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u32::from(character).checked_sub(BASE) {
            Some(byte) => bytes.push(byte as u8),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn all_bytes_come_back() {
        let written = "\u{10ff41}\u{10ffff}\u{10fffd}".as_bytes();
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b""[..],
            b"plain",
            b"J\xfcrgen",
            b"\xe2\x82",
            "J\u{fc}\u{20ac}".as_bytes(),
            written,
            &all,
        ] {
            assert_eq!(path(&text(bytes)).as_os_str().as_bytes(), bytes);
        }
        assert_ne!(text(b"\xfc"), text(b"\xfd"));
        assert_ne!(text(b"A\xfc"), text("A\u{10fffc}".as_bytes()));
    }
}
