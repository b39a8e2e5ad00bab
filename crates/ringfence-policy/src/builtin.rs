//! The shipped profiles and features, checked and compiled at build time.

use crate::compiled::decode;
use crate::profile::{Profile, Text};

include!(concat!(env!("OUT_DIR"), "/builtin_data.rs"));

/// A shipped profile or feature.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its file, as shipped.
    pub toml: &'static str,
    /// The commands it is for.
    pub programs: &'static str,
    compiled: &'static str,
}

impl Builtin {
    /// The shipped profiles, by name.
    pub fn profiles() -> &'static [Builtin] {
        PROFILES
    }

    /// The shipped features, by name.
    pub fn features() -> &'static [Builtin] {
        FEATURES
    }

    /// The shipped profile of this name.
    pub fn profile(name: &str) -> Option<&'static Builtin> {
        PROFILES.iter().find(|builtin| builtin.name == name)
    }

    /// The shipped feature of this name.
    pub fn feature(name: &str) -> Option<&'static Builtin> {
        FEATURES.iter().find(|builtin| builtin.name == name)
    }

    /// The shipped profile for a command, by the last component of its path.
    pub fn for_program(program: &str) -> Option<&'static Builtin> {
        let named = !program.is_empty();
        PROFILES
            .iter()
            .find(|builtin| named && builtin.programs.split('\n').any(|name| name == program))
    }

    /// The profile itself, called `origin` in messages; parses nothing.
    pub fn load(&self, origin: Text) -> Profile {
        decode(self.compiled, origin)
    }
}
