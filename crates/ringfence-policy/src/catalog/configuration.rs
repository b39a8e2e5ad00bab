//! Configurations: variations of a profile, picked as `PROFILE:NAME`.

use super::{Catalog, Found, Kind, Listed, Place, is_file};
use crate::builtin::Builtin;
use crate::error::PolicyError;
use crate::key::Key;
use crate::profile::{Profile, Text, Value};
use crate::suggest::nearest;
use std::path::Path;

impl Catalog<'_> {
    /// A configuration of a profile, as a profile that builds on that one.
    pub(super) fn configuration(
        &self,
        name: &str,
        one: &str,
        from: usize,
        by: Option<&str>,
        base: &Path,
    ) -> Result<Found, PolicyError> {
        let found = self.find(Kind::Profile, name, from, by, base)?;
        let profile = match &found.place {
            Place::File(_) => found.profile,
            Place::BuiltIn => Builtin::profile(name).map(whole).unwrap_or_default(),
        };
        let Some((_, values)) = profile.configurations.iter().find(|(known, _)| known == one)
        else {
            // A file of the user's can build on the shipped profile of the same name.
            if matches!(found.place, Place::File(_)) && !is_file(name) {
                let further = self.configuration(name, one, found.level + 1, by, base);
                if further.is_ok() {
                    return further;
                }
            }
            let known = profile.configurations.iter().map(|(known, _)| format!("{name}:{known}"));
            let known: Vec<String> = known.collect();
            let asked = format!("{name}:{one}");
            // The profile is there.
            let nearest = nearest(&asked, &known).unwrap_or(name).to_owned();
            return Err(PolicyError::Unknown {
                kind: "profile",
                name: asked,
                by: by.map(str::to_owned),
                nearest: Some(nearest),
            });
        };
        let above = match (&found.place, is_file(name)) {
            (Place::File(path), true) => path.display().to_string(),
            _ => name.to_owned(),
        };
        let word = if is_file(name) { "file" } else { "profile" };
        let origin = Text::Owned(format!("{word} {above}:{one}"));
        let mut profile = Profile { origin, values: values.clone(), ..Profile::default() };
        profile.set(Key::Extends, Value::List(vec![Text::Owned(above)]));
        Ok(Found { profile, place: found.place, level: found.level })
    }
}

/// A shipped profile with its configurations, which are rare and not compiled.
pub(super) fn whole(builtin: &Builtin) -> Profile {
    let mut profile = builtin.load(Text::Borrowed(""));
    if builtin.toml.contains("\n[configuration.") {
        let read = Profile::from_toml(builtin.toml, builtin.name);
        profile.configurations = read.map(|read| read.configurations).unwrap_or_default();
    }
    profile
}

/// Lines of a list: a profile, and its configurations behind it.
pub(super) fn listed(name: &str, place: &Place, profile: &Profile) -> Vec<Listed> {
    let line = |name: String, profile: &Profile| {
        let description = profile.text(Key::Description).unwrap_or_default().to_owned();
        Listed { name, place: place.clone(), description }
    };
    let mut lines = vec![line(name.to_owned(), profile)];
    for (of, values) in &profile.configurations {
        let configuration = Profile { values: values.clone(), ..Profile::default() };
        lines.push(line(format!("{name}:{of}"), &configuration));
    }
    lines
}
