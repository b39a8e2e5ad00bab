//! Decisions about variables of the environment.

use crate::decide::Verdict;
use crate::glob::name_ignoring_case;
use crate::policy::{Environment, Policy, Source};
use crate::secrets::{HIDDEN, IN_VALUE, KEPT};
use crate::shown;

impl Environment {
    /// The rule by which a variable of the caller's is not passed on; `None` when it is.
    /// (What is set replaces it either way.)
    pub fn hides(&self, name: &str) -> Option<Hidden<'_>> {
        let passed = self.passed(name);
        // What only says that a name is harmless does not bring it into an empty environment.
        let harmless = passed.is_some_and(|source| source.origin == "built in");
        match (passed.is_some() && !harmless, self.clean) {
            (true, _) => None,
            (false, true) if !KEPT.contains(&name) => Some(Hidden::Clean),
            (false, _) if harmless => None,
            (false, _) => {
                let hides = |(pattern, _): &&(String, Source)| name_ignoring_case(pattern, name);
                let (pattern, source) = self.hide.iter().find(hides)?;
                Some(Hidden::Pattern(pattern, source))
            }
        }
    }

    /// The rule that passes a variable on although it looks like a credential.
    pub fn passed(&self, name: &str) -> Option<&Source> {
        let pattern = |(pattern, _): &(&String, &Source)| {
            pattern.bytes().any(|byte| matches!(byte, b'*' | b'?'))
                && name_ignoring_case(pattern, name)
        };
        let named = self.pass.get(name);
        named.or_else(|| self.pass.iter().find(pattern).map(|(_, source)| source))
    }
}

/// Why a variable is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden<'a> {
    /// The environment starts empty.
    Clean,
    /// Its name is like this, which this rule hides.
    Pattern(&'a str, &'a Source),
}

pub(crate) fn variable(policy: &Policy, name: &str) -> Verdict {
    let environment = &policy.environment;
    if let Some((_, source)) = environment.set.get(name) {
        return Verdict::new(true, "environment", format!("{name} is set by a rule")).rule(source);
    }
    let grant = format!("--env {}", shown::word(name));
    match (environment.hides(name), environment.passed(name)) {
        (None, Some(source)) => {
            Verdict::new(true, "environment", format!("{name} is passed on")).rule(source)
        }
        (None, None) if environment.clean => {
            let explanation = format!("{name} is kept in an environment that starts empty");
            Verdict::new(true, "environment", explanation)
        }
        (None, None) => {
            Verdict::new(true, "environment", format!("{name} is an ordinary variable"))
        }
        (Some(Hidden::Clean), _) => {
            Verdict::new(false, "environment", "the environment starts empty").remedy(grant)
        }
        (Some(Hidden::Pattern(pattern, source)), _) => {
            let built_in = source.origin == "built in";
            let listed = HIDDEN.iter().find(|(known, _)| built_in && *known == pattern);
            // What is in no list was hidden for its value.
            let by_value = built_in && listed.is_none();
            let reason = listed.map(|(_, reason)| *reason).or(by_value.then_some(IN_VALUE));
            let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let explanation = format!("{name} is hidden, as `{pattern}` is{why}");
            Verdict::new(false, "environment", explanation).rule(source).remedy(grant)
        }
    }
}
