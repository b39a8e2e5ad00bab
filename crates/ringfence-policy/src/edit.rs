//! Entries that are added to a list of a profile's text; all else stays as somebody wrote it.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text with entries added at the beginning of a list of its own (not of a configuration's), each on a line as it is
/// given: a value, a comma and perhaps a comment. Where there is no such table, it begins with `first`, a key and its value.
/// Nothing where the text is no TOML, or the key no list. Lines end as the first one does.
pub fn added(
    text: &str,
    table: &str,
    key: &str,
    entries: &[String],
    first: Option<(&str, &str)>,
) -> Option<String> {
    let root = DeTable::parse(text).ok()?;
    let dos = text.split('\n').next().is_some_and(|line| line.ends_with('\r'));
    let end = if dos { "\r\n" } else { "\n" };
    let lines: String = entries.iter().map(|entry| format!("    {entry}{end}")).collect();
    let list = format!("{key} = [{end}{lines}]");
    let Some((_, found)) = root.get_ref().iter().find(|(name, _)| name.get_ref() == table) else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
        let first = first.map_or(String::new(), |(key, value)| format!("{key} = {value}{end}"));
        return Some(format!("{text}{gap}{end}[{table}]{end}{first}{list}{end}"));
    };
    let DeValue::Table(keys) = found.get_ref() else { return None };
    if let Some((_, value)) = keys.iter().find(|(name, _)| name.get_ref() == key) {
        let DeValue::Array(_) = value.get_ref() else { return None };
        return into_list(text, value.span().start, &lines, end);
    }
    if text[found.span().start..].starts_with('{') {
        let (before, rest) = text.split_at(found.span().start + 1);
        let comma = if keys.is_empty() { "" } else { "," };
        return Some(format!("{before} {list}{comma}{rest}"));
    }
    beside(text, root.get_ref(), table, &list, end)
}

/// Behind the bracket that opens a list; what stood behind it goes on behind the new entries.
fn into_list(text: &str, open: usize, lines: &str, end: &str) -> Option<String> {
    let (before, rest) = text.split_at_checked(open + 1)?;
    let line = rest.find('\n').map_or(rest, |line| &rest[..line]);
    let behind = rest.trim_start_matches([' ', '\t']);
    before.ends_with('[').then(|| match line.trim() {
        // The rest of it begins on the next line.
        "" => format!("{before}{end}{lines}{}", rest.get(line.len() + 1..).unwrap_or("")),
        line if line.starts_with(']') => format!("{before}{end}{lines}{behind}"),
        _ => format!("{before}{end}{lines}    {behind}"),
    })
}

/// A further key of a table that is there by its header, or by keys with dots.
fn beside(text: &str, root: &DeTable<'_>, table: &str, list: &str, end: &str) -> Option<String> {
    let (name, found) = root.iter().find(|(name, _)| name.get_ref() == table)?;
    let DeValue::Table(keys) = found.get_ref() else { return None };
    let line_of = |at: usize| text[..at].rfind('\n').map_or(0, |line| line + 1);
    let behind = |at: usize| text[at..].find('\n').map_or(text.len(), |line| at + line + 1);
    let put = |at: usize, start: &str| {
        let gap = if at == 0 || text[..at].ends_with('\n') { "" } else { end };
        Some(format!("{}{gap}{start}{list}{end}{}", &text[..at], &text[at..]))
    };
    let span = name.span();
    let opens = text[line_of(span.start)..span.start].trim() == "[";
    if opens && text[span.end..].trim_start_matches([' ', '\t']).starts_with(']') {
        return put(behind(span.end), "");
    }
    let plain = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::Table(_) => text[value.span().start..].starts_with('{'),
        _ => true,
    };
    let last =
        keys.iter().filter(|(_, value)| plain(value)).max_by_key(|(_, value)| value.span().end);
    match last {
        // What stands before that one's own name stands before each.
        Some((name, value)) => {
            let start = &text[line_of(name.span().start)..name.span().start];
            put(behind(value.span().end), start)
        }
        // There is but a table below it (`[environment.set]`).
        None => put(text.len(), &format!("{end}[{table}]{end}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Value;
    use crate::{Key, Profile};

    const ENTRIES: [&str; 2] = ["\"/new\", # once, by x", "\"~/two?\", # once, by y"];

    /// However a list is written, its entries come first, and all else means what it did.
    #[test]
    fn entries_are_added_however_a_list_is_written() {
        let texts = [
            "",
            "extends = [\"x\"]",
            "[filesystem]",
            "[filesystem]\n# why\ndeny = [\"/d\"] # d\n\n[limits]\npids = 5\n",
            "[filesystem]\nread = []\n",
            "[filesystem]\nread = [ ] # none\n",
            "[filesystem]\nread = [\"/a\", \"/b\"] # mine\nwrite = [\".\"]\n",
            "[filesystem]\nread = [ # first\n  \"/a\",\n  # second\n  \"/b\",\n]\n",
            "[filesystem]\nread = [\n  \"/a\"\n]",
            "filesystem = { read = [\"/a\"], deny = [\"/d\"] }\n[limits]\npids = 5\n",
            "filesystem = { deny = [\"/d\"] } # d\n",
            "filesystem = {}\n",
            "filesystem.read = [\"/a\"]\nfilesystem.deny = [\"/d\"]\n[limits]\npids = 5\n",
            "# d\n  filesystem . deny = [\n  \"/d\",\n] # behind\n# l\nlimits.pids = 5\n",
            "filesystem.deny = [\"/d\"]",
            "\"filesystem\".'read' = ['/a']\n",
            "[ \"filesystem\" ] # the [read] ones\n'read' = ['/a', \"]\"]\n",
            "[configuration.x.filesystem]\nread = [\"/c\"]\n",
            "[configuration.x.filesystem]\nread = [\"/c\"]\n[filesystem]\nwrite = [\"/w\"]\n",
            "description = '''\n[filesystem]\nread = [\n'''\n[filesystem]\nread = ['/a']\n",
        ];
        for text in texts {
            for text in [text.to_owned(), text.replace('\n', "\r\n")] {
                let entries = ENTRIES.map(str::to_owned);
                let after = added(&text, "filesystem", "read", &entries, None).expect(&text);
                let read = |text: &str| {
                    Profile::from_toml(text, "it").unwrap_or_else(|error| panic!("{error}: {text}"))
                };
                let (mut old, found) = (read(&text), read(&after));
                let mut list: Vec<_> = vec!["/new".into(), "~/two?".into()];
                list.extend(old.list(Key::Read).unwrap_or_default().to_vec());
                old.set(Key::Read, Value::List(list));
                let lines = |text: &str| text.replace("\r\n", "\n");
                assert_eq!(
                    lines(&format!("{:?}", found.values)),
                    lines(&format!("{:?}", old.values)),
                    "{after}"
                );
                assert_eq!(found.configurations, old.configurations, "{text}");
                let comments = |text: &str| text.matches('#').count();
                assert_eq!(comments(&after), comments(&text) + 2, "{after}");
                let (ends, dos) = (after.matches('\n').count(), after.matches("\r\n").count());
                assert_eq!(dos, if text.contains('\r') { ends } else { 0 }, "{after:?}");
            }
        }
    }

    #[test]
    fn comments_stay_with_what_they_are_about() {
        let text = "# of all\nfilesystem.deny = [\"/d\"] # d\n# of limits\nlimits.pids = 5\n";
        let entry = ["\"/new\",".to_owned()];
        let after = added(text, "filesystem", "read", &entry, None);
        let wanted = "# of all\nfilesystem.deny = [\"/d\"] # d\nfilesystem.read = [\n    \"/new\",\n]\n# of limits\nlimits.pids = 5\n";
        assert_eq!(after.as_deref(), Some(wanted));
    }

    #[test]
    fn what_is_no_list_or_no_profile_is_left_alone() {
        let entry = ["\"/x\",".to_owned()];
        for text in ["filesystem = 3", "[filesystem]\nread = \"/a\"\n", "[filesystem\n", "a = ["] {
            assert_eq!(added(text, "filesystem", "read", &entry, None), None, "{text}");
        }
    }

    #[test]
    fn a_table_that_is_made_begins_with_what_it_needs() {
        let first = Some(("mode", "\"learned\""));
        let entry = ["\"openat\",".to_owned()];
        let made = added("", "syscalls", "allow", &entry, first).expect("a profile");
        assert_eq!(made, "\n[syscalls]\nmode = \"learned\"\nallow = [\n    \"openat\",\n]\n");
        let there = added("[syscalls]\nmode = \"ask\"\n", "syscalls", "allow", &entry, first);
        assert_eq!(there.expect("a profile").matches("mode").count(), 1);
    }
}
