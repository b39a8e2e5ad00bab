//! What may not be read, with exceptions: the sandbox runtime and Claude Code allow again, by `allowRead` and
//! `allowWrite`, what lies within something denied. A deny has no exceptions here, and with one for all of the home
//! nothing would start.

use super::Importer;
use crate::glob;

/// Where a path begins, as far as that is known without a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Home,
    /// Where the command is started, somewhere below a home mostly.
    Here,
    Root,
}

/// A path of a peer's, in its parts.
#[derive(Clone)]
struct Place<'a> {
    begins: Begins,
    parts: Vec<&'a str>,
}

/// Directories of the root in which nobody's project lies.
const SYSTEM: [&str; 15] = [
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "opt", "proc", "run", "sbin", "sys",
    "tmp", "usr", "var",
];

fn place(text: &str) -> Place<'_> {
    let tree = text.strip_suffix("/**").or_else(|| text.strip_suffix("/**/*")).unwrap_or(text);
    let mut parts: Vec<&str> = Vec::new();
    for part in tree.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match parts.last() {
            Some(last) if part == ".." && *last != ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let (begins, above) = match (text.starts_with('/'), &parts[..]) {
        (false, ["~" | "$HOME" | "${HOME}", ..]) => (Begins::Home, 1),
        (false, _) => (Begins::Here, 0),
        // Anybody's home: the caller's, in settings of one's own.
        (_, ["home" | "Users", _, ..]) => (Begins::Home, 2),
        (_, ["root", ..]) => (Begins::Home, 1),
        _ => (Begins::Root, 0),
    };
    parts.drain(..above);
    Place { begins, parts }
}

impl Place<'_> {
    /// Whether another path is this one, or lies within, as far as can be told.
    fn holds(&self, other: &Place<'_>) -> bool {
        if self.begins == other.begins {
            let same = |(own, part): (&&str, &&str)| {
                own == part || own.contains('*') && glob::name(own.as_bytes(), part.as_bytes())
            };
            return self.parts.len() <= other.parts.len()
                && self.parts.iter().zip(&other.parts).all(same);
        }
        match (self.begins, &self.parts[..], other.begins) {
            (Begins::Root, [], _) | (Begins::Root, ["home" | "Users"], Begins::Home) => true,
            (Begins::Home, [], Begins::Here) => true,
            (Begins::Root, [top], Begins::Here) => !SYSTEM.contains(top),
            _ => false,
        }
    }

    fn is(&self, other: &Place<'_>) -> bool {
        self.begins == other.begins && self.parts == other.parts
    }
}

/// What of `denied` (`PREFIX.denyRead`) is denied here as well. Notes the rest, and what is not allowed again.
pub(super) fn denied(
    importer: &mut Importer,
    prefix: &str,
    denied: Vec<String>,
    clean: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut allowed = Vec::new();
    for list in ["allowRead", "allowWrite"] {
        let list = format!("{prefix}.{list}");
        let texts = importer.texts(&list);
        allowed.extend(texts.iter().map(|text| (list.clone(), clean(text))));
    }
    // The directory of the run is granted by `default`.
    let here = place(".");
    let mut kept = Vec::with_capacity(denied.len());
    for text in denied {
        let own = place(&text);
        let again = |(list, text): &&(String, String)| {
            let other = place(text);
            own.holds(&other) && (!own.is(&other) || list.ends_with("allowRead"))
        };
        let exceptions: Vec<_> = allowed.iter().filter(again).cloned().collect();
        let itself = exceptions.iter().find(|(_, text)| own.is(&place(text)));
        let Some((list, exception)) = itself.or(exceptions.first()) else {
            kept.push(text);
            continue;
        };
        if itself.is_some() {
            importer.note(format!(
                "`{prefix}.denyRead`: `{text}` is allowed again by `{list}`: left out"
            ));
            continue;
        }
        let granted = allowed.iter().map(|(_, text)| place(text)).chain([here.clone()]);
        if granted.into_iter().any(|grant| grant.holds(&own) && !grant.is(&own)) {
            for (list, exception) in &exceptions {
                importer.note(format!(
                    "`{list}`: `{exception}` lies within `{text}`, which is denied, and a deny has no exceptions here: it stays denied; to have it, name what else of `{text}` is denied"
                ));
            }
            kept.push(text);
            continue;
        }
        importer.note(format!(
            "`{prefix}.denyRead`: `{text}` holds `{exception}`, which is allowed again, and a deny has no exceptions here: left out, as what is not granted is not there; what `default` shows of it is denied by its own name"
        ));
    }
    kept
}
