//! The form in which shipped profiles are part of the program.
//!
//! It is a text that decodes without parsing: records end with 0x1E, fields with 0x1F; the
//! first character of a record is its key, the second the kind of its value. One text needs
//! one relocation when the program is loaded, where a tree of statics would need one for each
//! string.

use crate::key::{KEYS, Key};
use crate::profile::{Profile, Text, Value};

const RECORD: char = '\u{1e}';
const FIELD: char = '\u{1f}';

/// The first key's character; the others follow in order.
const FIRST: u8 = b'0';

/// Encodes the values of a profile, at build time.
#[allow(dead_code)] // Used by the build script, which shares this file.
pub(crate) fn encode(profile: &Profile) -> String {
    let mut out = String::new();
    for (key, value) in &profile.values {
        out.push(char::from(FIRST + *key as u8));
        let (kind, fields): (char, Vec<&str>) = match value {
            Value::Text(text) => ('t', vec![text]),
            Value::Flag(flag) => (if *flag { 'y' } else { 'n' }, Vec::new()),
            Value::List(list) => ('l', list.iter().map(|text| &**text).collect()),
            Value::Pairs(pairs) => {
                ('p', pairs.iter().flat_map(|(name, value)| [&**name, &**value]).collect())
            }
        };
        out.push(kind);
        for field in fields {
            assert!(!field.contains([RECORD, FIELD]), "a control character in a shipped profile");
            out.push_str(field);
            out.push(FIELD);
        }
        out.push(RECORD);
    }
    out
}

/// Decodes what [`encode`] made.
#[allow(dead_code)] // Not used by the build script, which shares this file.
pub(crate) fn decode(text: &'static str, origin: Text) -> Profile {
    let values = text.split_terminator(RECORD).filter_map(record).collect();
    Profile { origin, values, ..Profile::default() }
}

fn record(record: &'static str) -> Option<(Key, Value)> {
    let (key, kind) = (record.as_bytes().first()?, record.as_bytes().get(1)?);
    let key = KEYS.get(usize::from(key.checked_sub(FIRST)?))?.key;
    let mut fields = record[2..].split_terminator(FIELD).map(Text::Borrowed);
    let value = match kind {
        b't' => Value::Text(fields.next()?),
        b'y' | b'n' => Value::Flag(*kind == b'y'),
        b'l' => Value::List(fields.collect()),
        _ => {
            let mut pairs = Vec::new();
            while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                pairs.push((name, value));
            }
            Value::Pairs(pairs)
        }
    };
    Some((key, value))
}
