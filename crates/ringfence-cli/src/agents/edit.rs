//! Settings that have comments: the hook's entry goes in and out by its place in the text, and nothing else is
//! written anew.
//!
//! What came of it is checked by who calls: read as JSON, it must say what was wanted.

use ringfence_policy::import::plain;
use serde_json::Value;
use std::ops::Range;

/// A member of an object, or an element of a list.
struct Part {
    key: Option<String>,
    /// Where its key begins, or where it has none, its value.
    start: usize,
    value: Range<usize>,
    /// Where the comma before it stands, or for the first one the comma after it.
    comma: Option<usize>,
}

/// Takes all entries out of the lists below `hooks` that `ours` says.
pub(super) fn without(text: &str, ours: impl Fn(&Value) -> bool) -> Option<String> {
    let mut text = text.to_owned();
    // One at a time: each moves what is behind it.
    while let Some(cut) = next(&text, &ours)? {
        for range in cut.into_iter().rev() {
            text.replace_range(range, "");
        }
    }
    Some(text)
}

/// What is to be cut out for the next entry, in the order of the text.
fn next(text: &str, ours: &impl Fn(&Value) -> bool) -> Option<Option<[Range<usize>; 2]>> {
    let json = Json(plain(text));
    let Some(hooks) = json.member(json.root()?, "hooks") else { return Some(None) };
    for list in json.parts(hooks.start)? {
        // Other settings than lists may stand there.
        for entry in json.parts(list.value.start).unwrap_or_default() {
            if ours(&serde_json::from_str(json.0.get(entry.value.clone())?).ok()?) {
                return Some(Some(json.cut(text, &entry)));
            }
        }
    }
    Some(None)
}

/// Takes a member out, which is found by the keys that lead to it.
pub(super) fn without_member(text: &str, keys: &[&str]) -> Option<String> {
    let json = Json(plain(text));
    let (last, above) = keys.split_last()?;
    let mut open = json.root()?;
    for key in above {
        open = json.member(open, key)?.start;
    }
    let part =
        json.parts(open)?.into_iter().rev().find(|part| part.key.as_deref() == Some(last))?;
    let mut text = text.to_owned();
    for range in json.cut(&text, &part).into_iter().rev() {
        text.replace_range(range, "");
    }
    Some(text)
}

/// Adds a member to the whole, where there is none of that name.
pub(super) fn with_member(text: &str, key: &str, value: &Value) -> Option<String> {
    let json = Json(plain(text));
    let root = json.root()?;
    match json.member(root, key) {
        Some(_) => Some(text.to_owned()),
        None => json.insert(text, root, 1, Some(key), value),
    }
}

/// What was put into a text, taken out of what has become of it since: every other byte stays. Nothing where that is not
/// to be found whole, and once.
pub(super) fn undone(before: &[u8], after: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    let same = |one: &u8, other: &u8| one == other;
    let common = before.iter().zip(after).take_while(|(one, other)| same(one, other)).count();
    let rest = before[common..].iter().rev().zip(after[common..].iter().rev());
    let behind = rest.take_while(|(one, other)| same(one, other)).count();
    if common + behind < before.len() {
        return None;
    }
    let put = &after[common..after.len() - behind];
    let mut found = now.windows(put.len().max(1)).enumerate().filter(|(_, part)| *part == put);
    let (Some((at, _)), None) = (found.next(), found.next()) else { return None };
    Some([&now[..at], &now[at + put.len()..]].concat())
}

/// Whether anything but a comma that goes as well is on the line behind an entry.
fn follows(text: &str, end: usize, comma: &Range<usize>) -> bool {
    let rest = text[end..].split('\n').next().unwrap_or_default();
    let gone = comma.clone().filter(|at| (end..end + rest.len()).contains(at)).count();
    rest.trim().len() > gone
}

/// Adds an entry to a list below `hooks`; both are made where they are missing.
pub(super) fn with(text: &str, list: &str, entry: &Value) -> Option<String> {
    let json = Json(plain(text));
    let root = json.root()?;
    let one = Value::Array(vec![entry.clone()]);
    let Some(hooks) = json.member(root, "hooks") else {
        let mut hooks = serde_json::Map::new();
        hooks.insert(list.to_owned(), one);
        return json.insert(text, root, 1, Some("hooks"), &hooks.into());
    };
    match json.member(hooks.start, list) {
        None => json.insert(text, hooks.start, 2, Some(list), &one),
        Some(list) => json.insert(text, list.start, 3, None, entry),
    }
}

/// Plain JSON, whose places are those of the text that it was made of.
struct Json(String);

impl Json {
    fn byte(&self, at: usize) -> Option<u8> {
        self.0.as_bytes().get(at).copied()
    }

    /// The next byte that is no white space.
    fn next(&self, at: usize) -> Option<usize> {
        let rest = self.0.as_bytes().get(at..)?;
        rest.iter().position(|byte| !byte.is_ascii_whitespace()).map(|length| at + length)
    }

    /// What is to be cut out for a part, in the order of the text.
    fn cut(&self, text: &str, part: &Part) -> [Range<usize>; 2] {
        // Its line goes with it, where nothing else stands before it there.
        let before = &text[..part.start];
        let start = before.trim_end_matches([' ', '\t']).len();
        let end = part.value.end;
        let comma = part.comma.map_or(end..end, |comma| comma..comma + 1);
        let start = match before[..start].strip_suffix('\n') {
            // What follows would become part of a comment that ends with the line before.
            Some(line) if self.ends_in_comment(text, line.len()) && follows(text, end, &comma) => {
                part.start
            }
            Some(line) => line.strip_suffix('\r').unwrap_or(line).len(),
            None => part.start,
        };
        let value = start..end;
        match comma.start < value.start {
            true => [comma, value],
            false => [value, comma],
        }
    }

    /// Whether the line of the text that ends here may end in a comment that goes on to its end.
    fn ends_in_comment(&self, text: &str, end: usize) -> bool {
        let start = self.0[..end].trim_end_matches([' ', '\t', '\r']).len();
        text[start..end].contains("//")
    }

    fn root(&self) -> Option<usize> {
        self.next(0).filter(|&at| self.byte(at) == Some(b'{'))
    }

    /// Where a value ends that begins here.
    fn end(&self, start: usize) -> Option<usize> {
        let (mut at, mut depth) = (start, 0_usize);
        loop {
            match self.byte(at)? {
                b'"' => at = self.text_end(at)?,
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    at += 1;
                }
                _ if depth > 0 => {
                    at += 1;
                    continue;
                }
                // A number or a word.
                _ => {
                    let rest = &self.0.as_bytes()[at..];
                    let ends = |byte: &u8| byte.is_ascii_whitespace() || b",]}".contains(byte);
                    return Some(at + rest.iter().position(ends).unwrap_or(rest.len()));
                }
            }
            if depth == 0 {
                return Some(at);
            }
        }
    }

    fn text_end(&self, start: usize) -> Option<usize> {
        let mut at = start + 1;
        loop {
            match self.byte(at)? {
                b'"' => return Some(at + 1),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }

    /// What is in the object or list that begins here.
    fn parts(&self, open: usize) -> Option<Vec<Part>> {
        let object = match self.byte(open)? {
            b'{' => true,
            b'[' => false,
            _ => return None,
        };
        let (mut parts, mut at) = (Vec::<Part>::new(), self.next(open + 1)?);
        let mut comma = None;
        while !matches!(self.byte(at)?, b'}' | b']') {
            let (mut key, start) = (None, at);
            if object {
                let end = self.text_end(at)?;
                key = serde_json::from_str(self.0.get(at..end)?).ok()?;
                // The colon.
                at = self.next(self.next(end)? + 1)?;
            }
            let value = at..self.end(at)?;
            at = self.next(value.end)?;
            let after = (self.byte(at)? == b',').then_some(at);
            parts.push(Part { key, start, value, comma: comma.or(after) });
            comma = after;
            if let Some(comma) = after {
                at = self.next(comma + 1)?;
            }
        }
        Some(parts)
    }

    /// The last member of that name, as readers of JSON take it.
    fn member(&self, open: usize, name: &str) -> Option<Range<usize>> {
        let parts = self.parts(open)?;
        let found = parts.into_iter().rev().find(|part| part.key.as_deref() == Some(name));
        found.map(|part| part.value)
    }

    /// The text with a value more, in an object or list, behind what is in it.
    fn insert(
        &self,
        text: &str,
        open: usize,
        depth: usize,
        key: Option<&str>,
        value: &Value,
    ) -> Option<String> {
        let (inner, outer) = ("  ".repeat(depth), "  ".repeat(depth - 1));
        let pretty = serde_json::to_string_pretty(value).ok()?.replace('\n', &format!("\n{inner}"));
        let key = key.map(|key| format!("{}: ", Value::from(key))).unwrap_or_default();
        let (at, added) = match self.parts(open)?.last() {
            Some(last) => (last.value.end, format!(",\n{inner}{key}{pretty}")),
            None => (open + 1, format!("\n{inner}{key}{pretty}\n{outer}")),
        };
        let mut text = text.to_owned();
        text.insert_str(at, &added);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ours(entry: &Value) -> bool {
        entry["ours"] == true
    }

    #[test]
    fn an_entry_goes_in_and_out_and_comments_stay() {
        let entry = json!({"ours": true, "text": "a // b, ] }"});
        for text in [
            "// all\n{ /* é */ }\n",
            "{\n  // first\n  \"a\": 1, // note\n  \"b\": \"}\\\"\", \n}",
            "{\"hooks\": {} /* none */}",
            "{\"hooks\": {\"Other\": [1] // there\n}}",
            "{\"hooks\": {\"List\": [\n  // mine\n  {\"x\": [1, {}]}, // and this\n ] }}",
            "{\"hooks\": {\"L\\u0069st\": []}, \"z\": -1.5e3}",
        ] {
            let added = with(text, "List", &entry).expect(text);
            let read: Value = serde_json::from_str(&plain(&added)).expect(&added);
            let list = read["hooks"]["List"].as_array().expect(&added);
            assert_eq!(list.last(), Some(&entry), "{added}");
            for comment in ["// all", "é", "// first", "// note", "none", "// there", "// mine"] {
                assert_eq!(added.contains(comment), text.contains(comment), "{added}");
            }
            let twice = with(&added, "List", &entry).expect(&added);
            let gone = without(&twice, ours).expect(&twice);
            let read: Value = serde_json::from_str(&plain(&gone)).expect(&gone);
            assert!(!gone.contains("ours") && read["hooks"]["List"].is_array(), "{gone}");
            for comment in ["// all", "é", "// first", "// note", "none", "// there", "// mine"] {
                assert_eq!(gone.contains(comment), text.contains(comment), "{gone}");
            }
        }
    }

    #[test]
    fn what_follows_an_entry_does_not_become_a_comment() {
        for text in [
            "{\"hooks\": {\"List\": [\n 1, // mine\n {\"ours\": true} ]}}",
            "{\"hooks\": {\"List\": [\n // mine\r\n {\"ours\": true}, 1]}}",
            "{\"hooks\": {\"List\": [ // mine\n {\"ours\": true}, // and mine\n 1]}}",
        ] {
            let gone = without(text, ours).expect(text);
            let read: Value = serde_json::from_str(&plain(&gone)).expect(&gone);
            assert!(gone.contains("// mine") && !gone.contains("ours"), "{gone}");
            assert!(read["hooks"]["List"].is_array(), "{gone}");
        }
    }

    #[test]
    fn other_forms_are_left_to_the_user() {
        for text in ["[]", "", "1", "{\"hooks\": 1}", "{\"hooks\": {\"List\": {}}}"] {
            let added = with(text, "List", &json!(1));
            let read = added.map(|added| serde_json::from_str::<Value>(&plain(&added)));
            assert!(read.is_none_or(|read| read.is_err()), "{text}");
        }
    }
}
