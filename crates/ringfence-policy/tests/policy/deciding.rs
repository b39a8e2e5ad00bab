//! Files that decide about runs, this one and others.

use crate::common::host;
use ringfence_policy::{Access, Context, FileView, Key, Policy, Request, resolve};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

fn protected(policy: &Policy, path: &str) -> bool {
    policy.paths.iter().any(|rule| rule.access == Access::Protect && rule.path == Path::new(path))
}

/// A host with a server that does not answer: who looks there would wait for ever.
struct Stuck<'a>(&'a dyn FileView);

impl Stuck<'_> {
    fn at(&self, path: &Path) -> &dyn FileView {
        assert!(!path.starts_with("/server"), "{} was looked at", path.display());
        self.0
    }
}

impl FileView for Stuck<'_> {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.at(path).link(path)
    }

    fn names(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>> {
        self.at(directory).names(directory, most)
    }

    fn text(&self, path: &Path, most: u64) -> io::Result<String> {
        self.at(path).text(path, most)
    }

    fn socket(&self, path: &Path) -> bool {
        self.at(path).socket(path)
    }
}

#[test]
fn policy_of_other_projects_is_protected_without_a_look_at_it() {
    let host = host();
    let elsewhere = ["/server/project/ringfence.toml", "/home/u/project/sub/ringfence.toml"];
    let request =
        Request { elsewhere: elsewhere.map(PathBuf::from).to_vec(), ..Request::default() };
    let policy = host.context(|context| {
        let files = Stuck(context.files);
        resolve(
            &request,
            &Context {
                home: context.home.clone(),
                cwd: context.cwd.clone(),
                variables: Vec::new(),
                files: &files,
                ..*context
            },
        )
    });
    let policy = policy.unwrap();
    assert!(protected(&policy, elsewhere[1]));
    assert!(!protected(&policy, elsewhere[0]), "nothing there is writable");
}

#[test]
fn a_link_in_a_denied_directory_is_no_name_to_grant_something_by() {
    let host = |key, granted: &str| {
        let files = host().with(|files| {
            files
                .file("/srv/a/d/file", "")
                .directory("/srv/b")
                .symlink("/srv/b/lf", "/srv/a/d/file")
                .symlink("/srv/far", "/srv/b/lf")
        });
        files.option(key, granted).option(Key::Deny, "/srv/b")
    };
    for key in [Key::Write, Key::Read] {
        for granted in ["/srv/b/lf", "/srv/far", "/srv/b/l*"] {
            let host = host(key, granted);
            for path in ["/srv/b/lf", "/srv/a/d/file"] {
                assert!(!host.write(path).allowed, "{granted}: {path}");
                assert!(!host.read(path).allowed, "{granted}: {path}");
            }
        }
        // By its own name it is granted, and not by the other.
        let host = host(key, "/srv/a/d/file");
        assert!(host.read("/srv/a/d/file").allowed && !host.read("/srv/b/lf").allowed);
    }
}
