//! `ringfence allow SESSION HOST[:PORT]`: one more host, while the session lives or for good.

use crate::consent::{Answered, Terminal};
use crate::error::Fault;
use crate::generate::print;
use crate::help;
use crate::options::{Spec, parse};
use crate::request::with_catalog;
use ringfence_net::live::client::Client;
use ringfence_policy::catalog::{Kind, Place};
use ringfence_policy::profile::configured;
use ringfence_policy::{HostRule, Key, Profile, edit};
use ringfence_sandbox::launch;
use ringfence_session::live;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const fn spec(long: &'static str, value: Option<&'static str>, help: &'static str) -> Spec {
    Spec { long, short: None, value, value_optional: false, repeatable: false, help }
}

/// Its options.
pub const ALLOW: [Spec; 4] = [
    spec("always", None, "Write it to a profile as well, after showing the change"),
    spec("profile", Some("NAME"), "The profile that --always changes"),
    spec("yes", None, "Write the profile without asking"),
    Spec { short: Some('h'), ..spec("help", None, "Print help") },
];

/// `ringfence allow [--always --profile NAME] SESSION HOST[:PORT]`
///
/// # Errors
/// There is no such session, it has no network filter, or the host is none.
pub fn allow(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&ALLOW, arguments, false)?;
    if parsed.has("help") {
        return help::command("allow");
    }
    let words: Vec<String> =
        parsed.rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let [session, host] = &words[..] else {
        return Err(Fault::usage(
            "name a session and a host: ringfence allow SESSION HOST[:PORT]; ringfence ps lists \
             the sessions",
        ));
    };
    HostRule::parse(host).map_err(|error| Fault::usage(format!("{host}: {error}")))?;
    let change = match (parsed.has("always"), parsed.last("profile")) {
        (false, None) => None,
        (true, Some(profile)) => Some(Change::of(&profile.to_string_lossy(), host)?),
        (true, None) => {
            return Err(Fault::usage("--always changes a profile: name it with --profile NAME"));
        }
        (false, Some(_)) => return Err(Fault::usage("--profile is for --always")),
    };
    let client = connect(session)?;
    let answer = client.call(&["allow", host]).map_err(Fault::usage)?;
    print(format!("{answer}\n").as_bytes())?;
    if let Some(change) = change {
        change.make(parsed.has("yes"))?;
    }
    Ok(0)
}

/// Connects to a session by one of its names.
///
/// # Errors
/// A sentence.
pub fn connect(session: &str) -> Result<Client, Fault> {
    let (found, socket) = live::find(session).map_err(Fault::of)?;
    Client::connect(&socket.with_file_name(live::RULES)).map_err(|errno| {
        let why = if found.live {
            "it has no network filter: start it with --allow-host or --network filtered".to_owned()
        } else {
            "it has ended".to_owned()
        };
        Fault::usage(format!("session {session} takes no rules: {why} ({errno:?})"))
    })
}

/// One more host in a profile.
#[derive(Debug)]
pub struct Change {
    profile: String,
    file: PathBuf,
    host: String,
    /// Nothing where the profile has the host.
    text: Option<String>,
}

impl Change {
    /// What the profile would be.
    ///
    /// # Errors
    /// There is no such profile, or it cannot be changed by a program.
    pub fn of(profile: &str, host: &str) -> Result<Change, Fault> {
        if configured(profile).is_some() {
            return Err(Fault::usage(format!(
                "{profile} is a configuration: add \"{host}\" by hand: ringfence profile edit {profile}"
            )));
        }
        let (place, text) =
            with_catalog(|catalog| catalog.text(Kind::Profile, profile).map_err(Fault::of))?;
        let file = match place {
            Place::File(path) => path,
            Place::BuiltIn => crate::profiles::user_directory().join(format!("{profile}.toml")),
        };
        let refuse = || {
            Fault::usage(format!(
                "{} cannot be changed here; add \"{host}\" to `allow` under [network]: ringfence \
                 profile edit {profile}",
                file.display()
            ))
        };
        let origin = file.display().to_string();
        let read = |text: &str| Profile::from_toml(text, &origin).map_err(|_| refuse());
        let text = match has_host(&read(&text)?, host) {
            true => None,
            false => {
                let text = with_host(&text, host).ok_or_else(refuse)?;
                read(&text)?;
                Some(text)
            }
        };
        Ok(Change { profile: profile.to_owned(), file, host: host.to_owned(), text })
    }

    /// Shows it, asks, and writes; false: the user does not want it.
    ///
    /// # Errors
    /// The file cannot be written, or nobody can be asked.
    pub fn make(&self, sure: bool) -> Result<bool, Fault> {
        let file = self.file.display();
        if self.text.is_none() {
            print(format!("{file}: [network] allow has \"{}\"\n", self.host).as_bytes())?;
            return Ok(true);
        }
        print(format!("{file}: [network] allow += \"{}\"\n", self.host).as_bytes())?;
        if !sure {
            let terminal = Terminal::now().ok_or_else(|| {
                Fault::usage("nothing was written: without a terminal nobody can be asked (--yes)")
            })?;
            let answer = terminal.agrees("Write it?");
            if answer != Answered::Yes {
                print(b"nothing was written\n")?;
                if answer == Answered::Interrupted {
                    launch::die_of_interrupt();
                }
                return Ok(false);
            }
        }
        // What it is by now: an editor may have saved it meanwhile.
        Change::of(&self.profile, &self.host)?.write()?;
        Ok(true)
    }

    /// Puts it in the place of what is there, whole or not at all, also when the disk is full. A link stays one, and the
    /// file's mode and owner what they were.
    fn write(&self) -> Result<(), Fault> {
        let Some(text) = &self.text else { return Ok(()) };
        let file = self.file.display();
        let failed = |error: std::io::Error| Fault::usage(format!("cannot write {file}: {error}"));
        let directory = self.file.parent().unwrap_or(&self.file);
        std::fs::create_dir_all(directory).map_err(failed)?;
        let place = match self.file.canonicalize() {
            Ok(place) => place,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.file.clone(),
            Err(error) => return Err(failed(error)),
        };
        let before = place.metadata().ok();
        if before.as_ref().is_some_and(|before| before.permissions().readonly()) {
            return Err(Fault::usage(format!(
                "{file} is read-only, and nothing was written: chmod u+w it, or add \"{}\" where it is made",
                self.host
            )));
        }
        let aside = place.with_extension(format!("toml.{}", std::process::id()));
        let write = || {
            let mut new = std::fs::File::create_new(&aside)?;
            if let Some(before) = &before {
                new.set_permissions(before.permissions())?;
                // Only root can give it away, and need not.
                let _ = std::os::unix::fs::fchown(&new, Some(before.uid()), Some(before.gid()));
            }
            new.write_all(text.as_bytes())?;
            new.sync_all()?;
            std::fs::rename(&aside, &place)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&aside);
            failed(error)
        })
    }
}

/// Whether a profile allows a host by itself, in whatever spelling.
fn has_host(profile: &Profile, host: &str) -> bool {
    let wanted = HostRule::parse(host).ok();
    let allowed = profile.list(Key::AllowHost).unwrap_or_default();
    wanted.is_some() && allowed.iter().any(|text| HostRule::parse(text).ok() == wanted)
}

/// The text of a profile with one more allowed host, all else as it was.
fn with_host(text: &str, host: &str) -> Option<String> {
    // What a host's rule is has no letter that a string of TOML would take for more.
    edit::added(text, "network", "allow", &[format!("\"{host}\",")], None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_there_is_not_added_again() {
        let profile = |text| Profile::from_toml(text, "a profile").expect(text);
        let text = "[network]\nallow = [\"b.org\", \"A.org:80,443\"]\n";
        for host in ["a.org", "A.ORG", "a.org:443,80", "b.org"] {
            assert!(has_host(&profile(text), host), "{host}");
        }
        for host in ["a.org:443", "c.org"] {
            assert!(!has_host(&profile(text), host), "{host}");
        }
        let added = with_host(text, "c.org").expect("added");
        assert!(has_host(&profile(&added), "c.org") && !has_host(&profile(""), "a.org"));
    }

    #[test]
    fn a_host_is_added_and_all_else_stays() {
        const ADDED: &str = "allow = [\n    \"a.org\",\n";
        let cases = [
            ("", format!("\n[network]\n{ADDED}]\n")),
            ("extends = [\"x\"]", format!("extends = [\"x\"]\n\n[network]\n{ADDED}]\n")),
            (
                "[network]\n# why\ndeny = []\n[limits]\npids = 5\n",
                format!("[network]\n{ADDED}]\n# why\ndeny = []\n[limits]\npids = 5\n"),
            ),
            (
                "[network]\nallow = [\n    \"b.org\", # b\n]\n",
                format!("[network]\n{ADDED}    \"b.org\", # b\n]\n"),
            ),
            ("network.allow = [\"b.org\"]\n", format!("network.{ADDED}    \"b.org\"]\n")),
            (
                "network = { allow = [\"b.org\"] }\n",
                format!("network = {{ {ADDED}    \"b.org\"] }}\n"),
            ),
        ];
        for (before, after) in cases {
            assert_eq!(with_host(before, "a.org"), Some(after), "{before}");
        }
        for none in ["network = 3\n", "[network]\nallow = \"b.org\"\n", "[network\n"] {
            assert_eq!(with_host(none, "a.org"), None, "{none}");
        }
    }

    /// However a profile is written, what it was before still holds.
    #[test]
    fn a_profile_with_one_more_host_is_the_same_but_for_that() {
        let texts = [
            "[network] # filtered\nallow = [\"b.org\"]\n",
            "[ network ]\n\"allow\" = [\"b.org\"]\n",
            "network.allow = [\"b.org\"]\nnetwork.deny = [\"c.org\"]\n",
            "network = { allow = [\"b.org\"], deny = [\"c.org\"] }\n",
            "network = { deny = [\"c.org\"] }\n",
            "description = \"\"\"\n[network]\nallow = [\n\"\"\"\n",
            "[configuration.x.network]\nallow = [\"c.org\"]\n",
        ];
        for text in texts {
            let read = |text: &str| {
                Profile::from_toml(text, "it").unwrap_or_else(|error| panic!("{error}: {text}"))
            };
            let after = with_host(text, "a.org").unwrap_or_else(|| panic!("{text}"));
            let (old, new) = (read(text), read(&after));
            let mut list = vec!["a.org".into()];
            list.extend(old.list(Key::AllowHost).unwrap_or_default().to_vec());
            assert_eq!(new.list(Key::AllowHost).unwrap_or_default(), list, "{after}");
            assert_eq!(new.list(Key::DenyHost), old.list(Key::DenyHost), "{after}");
            assert_eq!(new.configurations, old.configurations, "{after}");
        }
    }
}
