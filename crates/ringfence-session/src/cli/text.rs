//! How things are written for people.

use ringfence_policy::shown;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Writes to standard output; a reader that went away is no error.
pub(super) fn print(bytes: &[u8]) -> Result<u8, String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(0),
    }
}

/// Tells on standard error how a command is used, of which too little was said; the exit code.
pub(super) fn misused(usage: &str) -> u8 {
    ringfence_sys::say::text(format_args!("{usage}"));
    125
}

/// Writes what files hold to standard output: as it is for a pipe or a file, which patch(1) reads; on a
/// terminal, which would obey what a program wrote there, with nothing in it that commands it.
pub(super) fn print_contents(bytes: &[u8]) -> Result<u8, String> {
    match std::io::stdout().is_terminal() {
        true => print(shown::contents(bytes).as_bytes()),
        false => print(bytes),
    }
}

/// Standard output, for what is made piece by piece.
#[derive(Default)]
pub(super) struct Out(Vec<u8>);

impl Out {
    /// So much is gathered for a call.
    const PIECE: usize = 64 << 10;

    /// Writes a piece; false: nobody reads any more.
    pub fn put(&mut self, text: &str) -> Result<bool, String> {
        self.0.extend_from_slice(text.as_bytes());
        if self.0.len() < Out::PIECE { Ok(true) } else { self.write() }
    }

    /// Writes what is left.
    pub fn end(mut self) -> Result<u8, String> {
        self.write().map(|_| 0)
    }

    fn write(&mut self) -> Result<bool, String> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(&self.0).and_then(|()| out.flush());
        self.0.clear();
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            written => written
                .map(|()| true)
                .map_err(|error| format!("cannot write to standard output: {error}")),
        }
    }
}

/// JSON as a part of a document, so many levels deep in it.
pub(super) fn indented(value: &serde_json::Value, depth: usize) -> String {
    // No text of JSON holds a line end.
    let text = format!("{value:#}").replace('\n', &format!("\n{}", "  ".repeat(depth)));
    shown::json(&text).into_owned()
}

/// JSON, one document, with its schema number.
pub(super) fn json(mut value: serde_json::Value) -> Result<u8, String> {
    value["schema"] = 1.into();
    print(shown::json(&format!("{value:#}\n")).as_bytes())
}

/// Bytes that are text as `text`, others as `hex`.
pub(crate) fn put_bytes(value: &mut serde_json::Value, bytes: Vec<u8>) {
    match String::from_utf8(bytes) {
        Ok(text) => value["text"] = text.into(),
        Err(other) => {
            let bytes = other.as_bytes().iter();
            value["hex"] = bytes.map(|byte| format!("{byte:02x}")).collect::<String>().into();
        }
    }
}

/// A size: 1.5 MB.
pub(super) fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit < 6 {
        value /= 1000.0;
        unit += 1;
    }
    let unit = ["B", "kB", "MB", "GB", "TB", "PB", "EB"][unit];
    if bytes < 1000 { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A count: "1 file", "2 files".
pub(super) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A path on one line, with nothing in it that a terminal would obey.
pub(super) fn path(path: &Path) -> String {
    shown::path(path)
}

/// A path in JSON, which escapes by itself what is to be: it names the file when it is given back. Bytes that are no
/// text are shown, as JSON has none.
pub(super) fn json_path(path: &Path) -> String {
    path.to_str().map_or_else(|| shown::path(path), str::to_owned)
}

/// Text from inside a sandbox: control characters and bytes that are no text are escaped.
pub(super) fn safe(bytes: &[u8]) -> String {
    shown::bytes(bytes)
}

/// A time, UTC: 2026-01-31 12:00:00.
pub(super) fn time(millis: i64) -> String {
    let (days, second) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000) / 1000);
    // Days to a date, after Howard Hinnant's "chrono-compatible low-level date algorithms".
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + carry;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_399_000), "2000-02-28 23:59:59");
        assert_eq!(time(951_868_800_000), "2000-03-01 00:00:00");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(safe(b"a\x1b[2Jb\xff\n"), "a\\u{1b}[2Jb\\xff\\n");
        assert_eq!(safe("grün".as_bytes()), "grün");
    }
}
