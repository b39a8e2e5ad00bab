//! Profiles and options, merged left to right into one list of entries.
//!
//! Lists add up; a single value replaces the earlier one. An empty list of grants withdraws the
//! grants that came before ("nothing" is another thing than "unset"); an empty list of refusals
//! withdraws nothing, so that no profile loosens another by leaving something out.

use crate::key::{Key, Shape};
use crate::policy::Source;
use crate::profile::{Profile, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

/// An option of the command line: the key it stands for, and its value as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it sets.
    pub key: Key,
    /// The value; for [`Key::Set`] `NAME=VALUE`, for [`Key::Clean`] `true`.
    pub value: OsString,
}

impl Setting {
    /// An option.
    pub fn new(key: Key, value: impl Into<OsString>) -> Setting {
        Setting { key, value: value.into() }
    }

    /// `--env NAME` passes a variable on, `--env NAME=VALUE` sets it.
    pub fn env(value: impl Into<OsString>) -> Setting {
        let value = value.into();
        let sets = value.as_encoded_bytes().contains(&b'=');
        Setting { key: if sets { Key::Set } else { Key::Pass }, value }
    }
}

/// One rule as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: Key,
    pub text: Cow<'static, OsStr>,
    /// Index of its origin in [`Merged::origins`]; `None` for an option.
    origin: Option<usize>,
    shipped: bool,
}

impl Entry {
    /// Whether it comes from the command line.
    pub fn is_option(&self) -> bool {
        self.origin.is_none()
    }

    /// Whether it comes from a profile or feature that ships: those are part of the program, all
    /// others were read from somewhere.
    pub fn is_shipped(&self) -> bool {
        self.shipped
    }

    /// The same, from the same place, about something else.
    pub fn with_text(&self, text: OsString) -> Entry {
        Entry { text: Cow::Owned(text), ..self.clone() }
    }
}

/// What profiles come to when one builds on another, a line for each setting: for comparing.
pub fn lines(profiles: Vec<Profile>) -> BTreeSet<String> {
    // What it builds on is in it, and what it is about is none of the rules.
    const ABOUT: [Key; 2] = [Key::Extends, Key::Description];
    let merged = Merged::of(profiles, &[]);
    let line = |entry: &Entry| {
        let (key, text) = (entry.key.path(), entry.text.to_string_lossy());
        match entry.key.info().shape {
            Shape::Grants | Shape::Adds | Shape::Pairs => format!("{key}: {text}"),
            Shape::Text | Shape::Quantity | Shape::Flag => format!("{key} = {text}"),
        }
    };
    let rules = merged.entries.iter().filter(|entry| !ABOUT.contains(&entry.key));
    rules.map(line).collect()
}

/// All rules, in the order in which they count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merged {
    pub entries: Vec<Entry>,
    /// Keys that were set, to the empty list maybe.
    pub set: Vec<Key>,
    origins: Vec<String>,
}

impl Merged {
    pub fn of(profiles: Vec<Profile>, options: &[Setting]) -> Merged {
        let mut merged = Merged { entries: Vec::with_capacity(128), ..Merged::default() };
        for profile in profiles {
            merged.profile(profile);
        }
        for option in options {
            merged.option(option);
        }
        merged
    }

    /// Adds an option.
    pub fn option(&mut self, option: &Setting) {
        let list = matches!(option.key.info().shape, Shape::Grants | Shape::Adds);
        let text = Cow::Owned(option.value.clone());
        match option.key {
            Key::Set => self.pair(text, None),
            key if list => self.push(key, text, None),
            key => self.replace(key, text, None),
        }
    }

    /// The entries of a key.
    pub fn of_key(&self, key: Key) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.key == key)
    }

    /// The one entry of a key that takes a single value.
    pub fn single(&self, key: Key) -> Option<&Entry> {
        self.of_key(key).last()
    }

    /// Where an entry stands, for people.
    pub fn source(&self, entry: &Entry) -> Source {
        let text = entry.text.to_string_lossy().into_owned();
        match entry.origin {
            Some(index) => {
                Source { origin: self.origins[index].clone(), key: entry.key.path(), text }
            }
            None => {
                let origin = format!("option {}", entry.key.option());
                Source { origin, key: String::new(), text }
            }
        }
    }

    fn profile(&mut self, profile: Profile) {
        let origin = Some(self.origins.len());
        self.origins.push(profile.origin.into_owned());
        for (key, value) in profile.values {
            match value {
                Value::List(list) => {
                    if list.is_empty() && key.info().shape == Shape::Grants {
                        self.entries.retain(|entry| entry.key != key);
                    }
                    self.mark(key);
                    for text in list {
                        self.push(key, os(text), origin);
                    }
                }
                Value::Text(text) => self.replace(key, os(text), origin),
                Value::Flag(flag) => {
                    let text = if flag { "true" } else { "false" };
                    self.replace(key, os(Cow::Borrowed(text)), origin);
                }
                Value::Pairs(pairs) => {
                    for (name, value) in pairs {
                        self.pair(Cow::Owned(format!("{name}={value}").into()), origin);
                    }
                }
            }
        }
    }

    fn push(&mut self, key: Key, text: Cow<'static, OsStr>, origin: Option<usize>) {
        self.mark(key);
        let shipped = matches!((origin, &text), (Some(_), Cow::Borrowed(_)));
        self.entries.push(Entry { key, text, origin, shipped });
    }

    fn replace(&mut self, key: Key, text: Cow<'static, OsStr>, origin: Option<usize>) {
        self.entries.retain(|entry| entry.key != key);
        self.push(key, text, origin);
    }

    fn pair(&mut self, text: Cow<'static, OsStr>, origin: Option<usize>) {
        let name =
            |text: &OsStr| text.as_encoded_bytes().split(|&b| b == b'=').next().map(<[u8]>::to_vec);
        let new = name(&text);
        self.entries.retain(|entry| entry.key != Key::Set || name(&entry.text) != new);
        self.push(Key::Set, text, origin);
    }

    fn mark(&mut self, key: Key) {
        if !self.set.contains(&key) {
            self.set.push(key);
        }
    }
}

fn os(text: Cow<'static, str>) -> Cow<'static, OsStr> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(OsStr::new(text)),
        Cow::Owned(text) => Cow::Owned(OsString::from(text)),
    }
}

impl Key {
    /// The option of the command line that sets this key.
    pub fn option(self) -> &'static str {
        match self {
            Key::Extends | Key::Description | Key::Programs | Key::Arguments => "--profile",
            Key::Requires | Key::Features | Key::Conflicts | Key::When => "--feature",
            Key::Caveats | Key::Dangers | Key::Before | Key::After => "--profile",
            Key::DbusTalk | Key::DbusOwn | Key::DbusSee | Key::DbusCall | Key::DbusPortals => {
                "--profile"
            }
            Key::Home => "--home",
            Key::Tier => "--tier",
            Key::AllowDegraded => "--allow-degraded",
            Key::Overlay => "--overlay",
            Key::Libs => "--libs",
            Key::Gateway => "--gateway",
            Key::Snapshot => "--snapshot",
            Key::Read => "--read",
            Key::Write | Key::State => "--write",
            Key::Deny => "--deny",
            Key::Protect | Key::Judged | Key::Private => "--protect",
            Key::Strict => "--strict",
            Key::GitSettings | Key::Trace => "--feature",
            Key::Mode => "--network",
            Key::AllowHost | Key::Registries => "--allow-host",
            Key::DenyHost => "--deny-host",
            Key::Publish => "--publish",
            Key::Http => "--http",
            Key::Inject => "--inject",
            Key::Sockets => "--allow-socket",
            Key::Pass | Key::Set | Key::Hide => "--env",
            Key::Clean => "--clean-env",
            Key::Memory => "--memory",
            Key::Pids => "--pids",
            Key::Cpus => "--cpus",
            Key::OpenFiles => "--open-files",
            Key::Disk => "--disk",
            Key::Timeout => "--timeout",
            Key::CallMode | Key::CallAllow | Key::CallOtherwise => "--syscalls",
        }
    }
}
