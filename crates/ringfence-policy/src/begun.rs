//! What a directory is by the names above it: `.github` as a workspace holds what is protected from the project around
//! it, and `.git/hooks` is all of it.

use crate::guard::{self, Standing, standing};
use crate::policy::{Access, PathRule, Policy};
use crate::protect::{Entry, NAMES};
use crate::workspace::WORKTREES;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Endings that stand for a `.*` of the list where a file is new: patterns hold what is there only.
const ENDINGS: [&str; 5] = [".toml", ".local.toml", ".yml", ".yaml", ".json"];

/// Why a directory is no workspace for being in what is protected whole.
pub(crate) fn whole(directory: &Path) -> Option<String> {
    let parts: Vec<&OsStr> = directory.iter().collect();
    for start in 0..parts.len() {
        for entry in begin_as(&parts[start..]) {
            // A repository may be called as somebody's file is (`rust-toolchain`).
            if !entry.name.starts_with('.') && !entry.name.contains('/') {
                continue;
            }
            let Standing::Within(length) = standing(entry.name, &parts[start..]) else { continue };
            let (name, below) = parts[start..].split_at(length);
            let above = below.split_last().map_or(&[][..], |(_, above)| above);
            // Agents make worktrees below their own.
            if !above.iter().any(|part| WORKTREES.iter().any(|name| *part == *name)) {
                let name: PathBuf = name.iter().collect();
                return Some(format!("{} is protected: {}", name.display(), entry.reason));
            }
        }
    }
    None
}

/// Protects in each writable tree what the tree's own name begins. A grant of exactly that lifts it.
pub(crate) fn protect(policy: &mut Policy, trees: &[PathBuf], may_appear: &[PathBuf]) {
    for tree in trees {
        for (rest, entry) in begun(tree) {
            let wild = rest.contains('*');
            for name in literals(&rest) {
                let path = tree.join(name);
                if trees.contains(&path) || may_appear.contains(&path) {
                    policy.unprotected.insert(path);
                } else {
                    guard::protect(policy, path, entry.guarded, entry.reason);
                }
            }
            if wild {
                let known = |rule: &PathRule| {
                    rule.access == Access::Protect
                        && rule.path == *tree
                        && rule.pattern.as_ref() == Some(&rest)
                };
                if !policy.paths.iter().any(known) {
                    let (pattern, reason) = (Some(rest), Some(entry.reason.to_owned()));
                    let rule = guard::plain(Access::Protect, tree.clone(), true, guard::built_in());
                    let guarded = entry.guarded;
                    policy.paths.push(PathRule { pattern, guarded, reason, ..rule });
                }
            }
        }
    }
}

/// What is left of each name that the last components of a directory begin.
fn begun(directory: &Path) -> Vec<(String, &'static Entry)> {
    let parts: Vec<&OsStr> = directory.iter().collect();
    let mut all = Vec::new();
    for start in 0..parts.len() {
        let tail = &parts[start..];
        for entry in begin_as(tail) {
            if standing(entry.name, tail) != Standing::OnTheWay {
                continue;
            }
            let names: Vec<&str> = entry.name.split('/').collect();
            // Several directories may stand for it.
            let any = names.iter().take(tail.len()).position(|name| *name == "**");
            let rest = any.map_or(tail.len(), |any| any + 1);
            all.push((names[rest..].join("/"), entry));
        }
    }
    all
}

/// The entries whose first component is this one's: the cheap look before the whole one.
fn begin_as<'a>(parts: &'a [&OsStr]) -> impl Iterator<Item = &'static Entry> + use<'a> {
    let first = parts.first().map_or(&[][..], |first| first.as_bytes());
    NAMES.iter().filter(move |entry| {
        let rest = entry.name.as_bytes().strip_prefix(first);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// The paths by which a new one is looked for.
fn literals(rest: &str) -> Vec<String> {
    match rest.strip_suffix(".*") {
        Some(stem) if !stem.contains('*') => {
            ENDINGS.iter().map(|ending| format!("{stem}{ending}")).collect()
        }
        _ if rest.contains('*') => Vec::new(),
        _ => vec![rest.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_begins_the_names_that_it_is_the_first_part_of() {
        let rests = |directory: &str| -> Vec<String> {
            let all = begun(Path::new(directory)).into_iter();
            all.map(|(rest, _)| rest).collect()
        };
        for (directory, rest) in [
            ("/w/tools", "bazel"),
            ("/w/.github", "mcp.json"),
            ("/w/.cargo", "config.toml"),
            ("/w/.yarn", "releases"),
            ("/w/debian", "gbp.conf"),
            ("/w/.config", "lefthook.*"),
            ("/w/.git", "hooks"),
            ("/w/.git", "worktrees/*/commondir"),
            ("/w/.git/modules", "**/hooks"),
            ("/w/.git/modules/libs/a", "hooks"),
            ("/w/.git/worktrees/x", "commondir"),
            ("/w/.jj/repo", "config.toml"),
        ] {
            assert!(rests(directory).iter().any(|one| one == rest), "{directory}");
        }
        for directory in ["/", "/w", "/w/.github/workflows", "/w/tools/x", "/w/xtools"] {
            assert_eq!(rests(directory), Vec::<String>::new(), "{directory}");
        }
    }

    #[test]
    fn a_directory_in_what_is_protected_whole_is_no_workspace() {
        for held in ["/w/.vscode", "/w/.git/hooks", "/w/.claude/skills/x", "/w/.idea/a/b"] {
            assert!(whole(Path::new(held)).is_some(), "{held}");
        }
        for free in [
            "/w/.claude",
            "/w/.github",
            "/w/rust-toolchain",
            "/w/.claude/worktrees/x",
            "/w/.cursor/worktrees/x/src",
            "/w/.git",
        ] {
            assert_eq!(whole(Path::new(free)), None, "{free}");
        }
    }
}
