//! [`Profile`]: one policy file, read but not yet applied to a host.
//!
//! Its values are still texts: what they mean depends on a home, a directory and an
//! environment, and options of the command line hold the same texts. [`mod@crate::resolve`] gives
//! both their meaning in one place.

use crate::key::{KEYS, Key, KeyInfo, Shape, TABLES};
use crate::suggest::nearest;
use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text that is either part of the program or read at run time.
pub type Text = Cow<'static, str>;

/// A value of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Shape::Text`] and [`Shape::Quantity`].
    Text(Text),
    /// Of [`Shape::Flag`].
    Flag(bool),
    /// Of [`Shape::Grants`] and [`Shape::Adds`].
    List(Vec<Text>),
    /// Of [`Shape::Pairs`].
    Pairs(Vec<(Text, Text)>),
}

/// One policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// What messages call it: `profile default`, `feature git`, `file ./ringfence.toml`.
    pub origin: Text,
    /// The keys that are set, in the order of [`Key`]. A key that is not here is unset, which
    /// is another thing than an empty list.
    pub values: Vec<(Key, Value)>,
    /// Variations of it, by name: what each sets in place of or beside the profile's own.
    pub configurations: Vec<(Text, Vec<(Key, Value)>)>,
    /// The file that it was read from, where a catalogue found it in one.
    pub file: Option<PathBuf>,
}

/// The table of a profile's configurations.
pub const CONFIGURATION: &str = "configuration";

/// Keys that are about the profile as a whole: no configuration sets them.
pub const WHOLE: [Key; 4] = [Key::Extends, Key::Conflicts, Key::When, Key::Programs];

/// A profile's name and the configuration that is picked by it: `firefox:work`.
pub fn configured(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once(':').filter(|(base, name)| !base.is_empty() && is_configuration(name))
}

/// Whether a text can be the name of a configuration.
fn is_configuration(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(known)
}

/// Why a text is not a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The profile.
    pub origin: String,
    /// Line in its text, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, line {}: {}", self.origin, self.line, self.message)
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// Reads a profile file. `origin` is what messages call it.
    ///
    /// # Errors
    /// The first unknown key or wrong value, with its line and the nearest right one.
    pub fn from_toml(text: &str, origin: &str) -> Result<Profile, ProfileError> {
        let reader = Reader { text, origin };
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let mut message = error.message().replace('\n', ", ");
            if message == "duplicate key"
                && let Some(key) = error.span().and_then(|span| text.get(span))
            {
                let key = key.trim();
                message = format!("`{key}` stands twice in one table: leave one of them");
            }
            reader.error(at, message)
        })?;
        let mut profile = Profile { origin: Text::Owned(origin.to_owned()), ..Profile::default() };
        for (name, value) in root.get_ref().iter() {
            match value.get_ref() {
                DeValue::Table(all) if name.get_ref() == CONFIGURATION => {
                    for (name, value) in all.iter() {
                        profile.configurations.push(reader.configuration(name, value)?);
                    }
                }
                _ => reader.entries(name, value, &mut profile.values)?,
            }
        }
        profile.values.sort_by_key(|(key, _)| *key);
        Ok(profile)
    }

    /// The value of a key, if it is set.
    pub fn get(&self, key: Key) -> Option<&Value> {
        self.values.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// The value of a key that takes a text or a quantity.
    pub fn text(&self, key: Key) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The value of a key that takes a list; unset is `None`, not empty.
    pub fn list(&self, key: Key) -> Option<&[Text]> {
        match self.get(key) {
            Some(Value::List(list)) => Some(list),
            _ => None,
        }
    }

    /// Sets a key, in place of an earlier value.
    pub fn set(&mut self, key: Key, value: Value) {
        match self.values.binary_search_by_key(&key, |(found, _)| *found) {
            Ok(index) => self.values[index].1 = value,
            Err(index) => self.values.insert(index, (key, value)),
        }
    }

    /// Adds to a list, unless it is there already.
    pub fn add(&mut self, key: Key, text: impl Into<Text>) {
        let text = text.into();
        let mut list = self.list(key).map(<[Text]>::to_vec).unwrap_or_default();
        if !list.contains(&text) {
            list.push(text);
        }
        self.set(key, Value::List(list));
    }

    /// Its settings, one line each, as `filesystem.read = "~/x"`: for comparing profiles.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, value) in &self.values {
            let path = key.path();
            match value {
                Value::List(list) if list.is_empty() => lines.push(format!("{path} = []")),
                Value::List(list) => {
                    lines.extend(list.iter().map(|text| format!("{path} = {}", quoted(text))));
                }
                Value::Pairs(pairs) => lines.extend(
                    pairs.iter().map(|(name, value)| format!("{path}.{name} = {}", quoted(value))),
                ),
                value => lines.push(format!("{path} = {}", written(value))),
            }
        }
        lines
    }

    /// The profile as a file that [`Profile::from_toml`] reads back to the same values.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        tables(&mut out, "", &self.values);
        for (name, values) in &self.configurations {
            let table = format!("{CONFIGURATION}.{name}");
            let _ = writeln!(out, "{}[{table}]", if out.is_empty() { "" } else { "\n" });
            tables(&mut out, &format!("{table}."), values);
        }
        out
    }
}

/// Values in TOML, in the order of [`Key`]; `within` stands before the names of their tables.
fn tables(out: &mut String, within: &str, values: &[(Key, Value)]) {
    let mut table = "";
    for (key, value) in values {
        let info = key.info();
        if info.table != table {
            table = info.table;
            let _ = writeln!(out, "{}[{within}{table}]", if out.is_empty() { "" } else { "\n" });
        }
        let _ = writeln!(out, "{} = {}", info.name, written(value));
    }
}

/// A value in TOML; lists of more than one entry on a line each.
fn written(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Flag(flag) => flag.to_string(),
        Value::List(list) if list.len() > 1 => {
            let lines: String =
                list.iter().map(|text| format!("    {},\n", quoted(text))).collect();
            format!("[\n{lines}]")
        }
        Value::List(list) => {
            format!("[{}]", list.first().map(|text| quoted(text)).unwrap_or_default())
        }
        Value::Pairs(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

/// A text as a TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reads values, knowing where they stand.
struct Reader<'a> {
    text: &'a str,
    origin: &'a str,
}

impl Reader<'_> {
    fn error(&self, at: usize, message: impl Into<String>) -> ProfileError {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        ProfileError { origin: self.origin.to_owned(), line, message: message.into() }
    }

    /// A key at the top, or all keys of a table.
    fn entries(
        &self,
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        values: &mut Vec<(Key, Value)>,
    ) -> Result<(), ProfileError> {
        match value.get_ref() {
            DeValue::Table(inner) if TABLES.iter().any(|(table, _)| table == name.get_ref()) => {
                for (key, value) in inner.iter() {
                    values.push(self.entry(name.get_ref(), key, value)?);
                }
            }
            _ => values.push(self.entry("", name, value)?),
        }
        Ok(())
    }

    fn configuration(
        &self,
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(Text, Vec<(Key, Value)>), ProfileError> {
        let at = name.span().start;
        if !is_configuration(name.get_ref()) {
            let message = format!(
                "`{}` is no name of a configuration: letters, digits, `-` and `_`",
                name.get_ref()
            );
            return Err(self.error(at, message));
        }
        let DeValue::Table(inner) = value.get_ref() else {
            return Err(self.error(at, "a configuration is a table: [configuration.NAME]"));
        };
        let mut values = Vec::new();
        for (key, value) in inner.iter() {
            self.entries(key, value, &mut values)?;
        }
        values.sort_by_key(|(key, _)| *key);
        if let Some((key, _)) = values.iter().find(|(key, _)| WHOLE.contains(key)) {
            let message =
                format!("`{}` is about the whole profile, not one configuration", key.path());
            return Err(self.error(at, message));
        }
        Ok((Text::Owned(name.get_ref().clone().into_owned()), values))
    }

    fn entry(
        &self,
        table: &str,
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(Key, Value), ProfileError> {
        let known = KEYS.iter().find(|info| info.table == table && info.name == name.get_ref());
        let Some(info) = known else {
            return Err(self.error(name.span().start, unknown(table, name.get_ref())));
        };
        let value = self.value(info, value)?;
        self.check_choice(info, &value, name.span().start)?;
        Ok((info.key, value))
    }

    fn check_choice(&self, info: &KeyInfo, value: &Value, at: usize) -> Result<(), ProfileError> {
        match value {
            Value::Text(text) if !info.values.is_empty() && !info.values.contains(&&**text) => {
                let near = crate::suggest::tail(nearest(text, info.values));
                let all = info.values.join("`, `");
                let message = format!("`{text}` is no {}: it is one of `{all}`{near}", info.name);
                Err(self.error(at, message))
            }
            _ => Ok(()),
        }
    }

    fn value(&self, info: &KeyInfo, value: &Spanned<DeValue<'_>>) -> Result<Value, ProfileError> {
        match (info.shape, value.get_ref()) {
            (Shape::Text | Shape::Quantity, _) => {
                self.scalar(info, value, info.shape == Shape::Quantity).map(Value::Text)
            }
            (Shape::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Shape::Grants | Shape::Adds, DeValue::Array(list)) => {
                let numbers = info.key == Key::Publish;
                let texts = list.iter().map(|value| self.scalar(info, value, numbers));
                texts.collect::<Result<_, _>>().map(Value::List)
            }
            (Shape::Pairs, DeValue::Table(pairs)) => {
                let pairs = pairs.iter().map(|(name, value)| {
                    let (at, shown) = (name.span().start, name.get_ref());
                    if shown.is_empty() || shown.contains(['=', '\0']) {
                        let message = format!("`{}` cannot be the name of a variable", shown);
                        return Err(self.error(at, message));
                    }
                    let value = self.scalar(info, value, true)?;
                    Ok((Text::Owned(name.get_ref().clone().into_owned()), value))
                });
                pairs.collect::<Result<_, _>>().map(Value::Pairs)
            }
            (shape, found) => {
                let wanted = match shape {
                    Shape::Flag => "true or false",
                    Shape::Pairs => "a table of names and values, as in { CI = \"1\" }",
                    _ => "a list of texts, as in [\"…\"]",
                };
                let message = format!("`{}` takes {wanted}, not {}", info.name, kind(found));
                Err(self.error(value.span().start, message))
            }
        }
    }

    fn scalar(
        &self,
        info: &KeyInfo,
        value: &Spanned<DeValue<'_>>,
        numbers: bool,
    ) -> Result<Text, ProfileError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(number) if numbers => number.to_string(),
            DeValue::Float(number) if numbers => number.as_str().to_owned(),
            found => {
                let wanted = if numbers { "a number or a text" } else { "a text" };
                let message = format!("`{}` takes {wanted} here, not {}", info.name, kind(found));
                return Err(self.error(value.span().start, message));
            }
        };
        if text.contains('\0') {
            return Err(self.error(value.span().start, format!("`{}` holds a NUL", info.name)));
        }
        Ok(Text::Owned(text))
    }
}

/// The message about an unknown key, with the nearest known one, in this table or another.
fn unknown(table: &str, name: &str) -> String {
    let place = if table.is_empty() { String::new() } else { format!(" in [{table}]") };
    let here: Vec<&str> = KEYS
        .iter()
        .filter(|info| info.table == table)
        .map(|info| info.name)
        .chain(TABLES.iter().map(|(table, _)| *table).filter(|_| table.is_empty()))
        .collect();
    // The right name in the wrong table is a commoner slip than a misspelling.
    let elsewhere = KEYS.iter().find(|info| info.name == name);
    let advice = match (nearest(name, &here), elsewhere) {
        (_, Some(info)) if info.table.is_empty() => {
            format!("; `{name}` stands at the top, before any [table]")
        }
        (_, Some(info)) => format!("; `{name}` stands in [{}]", info.table),
        (Some(near), None) => format!("; the nearest is `{near}`"),
        (None, None) => format!("; known are `{}`", here.join("`, `")),
    };
    format!("there is no key `{name}`{place}{advice}")
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
