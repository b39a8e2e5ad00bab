//! Decisions about variables of the environment.

use crate::decide::Verdict;
use crate::glob::name_ignoring_case;
use crate::policy::Policy;

pub(crate) fn variable(policy: &Policy, name: &str) -> Verdict {
    let environment = &policy.environment;
    if let Some((_, source)) = environment.set.get(name) {
        return Verdict::new(true, "environment", format!("{name} is set by a rule")).rule(source);
    }
    let passed = environment.pass.get(name).or_else(|| {
        let pattern = |(pattern, _): &(&String, _)| pattern.contains(['*', '?']) && name_ignoring_case(pattern, name);
        environment.pass.iter().find(pattern).map(|(_, source)| source)
    });
    // What only says that a name is harmless does not bring it into an empty environment.
    let harmless = passed.is_some_and(|source| source.origin == "built in");
    if let Some(source) = passed.filter(|_| !(harmless && environment.clean)) {
        return Verdict::new(true, "environment", format!("{name} is passed on")).rule(source);
    }
    let grant = format!("--env {name}");
    if environment.clean {
        return Verdict::new(false, "environment", "the environment starts empty").remedy(grant);
    }
    let hidden = environment.hide.iter().find(|(pattern, _)| name_ignoring_case(pattern, name));
    match hidden {
        Some((pattern, source)) => {
            let why = match source.origin == "built in" {
                true => format!("{name} is hidden, as `{pattern}` is: {}", source.text),
                false => format!("{name} is hidden, as `{pattern}` is"),
            };
            Verdict::new(false, "environment", why).rule(source).remedy(grant)
        }
        None => Verdict::new(true, "environment", format!("{name} is an ordinary variable")),
    }
}
