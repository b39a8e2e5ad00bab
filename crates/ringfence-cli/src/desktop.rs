//! Desktop entries (freedesktop.org's Desktop Entry and Autostart specifications) and services of
//! the session bus (D-Bus Specification, "Message Bus Starting Services"): which of them start a
//! program, and the same ones calling ringfence.

use ringfence_policy::{FileView, HostFiles};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The program that entries are asked about.
pub struct Sought<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Whether what stands in a command, that name or a path that ends in it, starts this program and not another one.
    pub starts: &'a dyn Fn(&str) -> bool,
}

/// Where desktop entries are, by the XDG Base Directory Specification; the first name counts.
pub struct Places {
    /// The user's own applications.
    pub applications: PathBuf,
    /// What the user's session starts by itself.
    pub autostart: PathBuf,
    /// What the session bus starts when it is called by its name.
    pub services: PathBuf,
    others: Vec<PathBuf>,
    autostarts: Vec<PathBuf>,
    other_services: Vec<PathBuf>,
}

impl Places {
    /// Those of a user with this home and environment.
    pub fn of(home: &Path, env: &dyn Fn(&str) -> Option<OsString>) -> Places {
        let one = |name: &str, default: &str| {
            let named = env(name).map(PathBuf::from).filter(|path| path.is_absolute());
            named.unwrap_or_else(|| home.join(default))
        };
        let list = |name: &str, default: &str, below: &str| {
            let named = env(name).filter(|list| !list.is_empty()).unwrap_or_else(|| default.into());
            let named = std::env::split_paths(&named).filter(|path| path.is_absolute());
            named.map(|path| path.join(below)).collect::<Vec<_>>()
        };
        let data = |below: &str| list("XDG_DATA_DIRS", "/usr/local/share:/usr/share", below);
        let mut others = data("applications");
        others.push("/var/lib/flatpak/exports/share/applications".into());
        Places {
            applications: one("XDG_DATA_HOME", ".local/share").join("applications"),
            services: one("XDG_DATA_HOME", ".local/share").join(SERVICES),
            autostart: one("XDG_CONFIG_HOME", ".config").join("autostart"),
            others,
            autostarts: list("XDG_CONFIG_DIRS", "/etc/xdg", "autostart"),
            other_services: data(SERVICES),
        }
    }

    /// The applications that start a program: names of files, with the directories that they are in below, and their text.
    pub fn applications(&self, program: &Sought<'_>) -> Vec<(String, String)> {
        entries([&self.applications].into_iter().chain(&self.others), true, program)
    }

    /// The services of the bus that start a program: names for their files in the user's own
    /// directory, and their text. The first one of a name on the bus counts, whatever its file
    /// is called.
    pub fn services(&self, program: &Sought<'_>) -> Vec<(String, String)> {
        let mut seen: Vec<String> = Vec::new();
        let mut found: Vec<(String, String)> = Vec::new();
        for directory in [&self.services].into_iter().chain(&self.other_services) {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let named =
                entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry)));
            let mut named: Vec<_> = named.filter(|(file, _)| file.ends_with(".service")).collect();
            named.sort_by(|a, b| a.0.cmp(&b.0));
            for (file, entry) in named {
                let Some(text) = text_of(&entry.path()) else { continue };
                let line = |key: &str| text.lines().find_map(|line| value(line, key));
                let name = line("Name").unwrap_or_default().trim_end().to_owned();
                // What stands in a file's name below: no bus has others (D-Bus Specification).
                let proper = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
                if name.is_empty() || !name.chars().all(proper) || seen.contains(&name) {
                    continue;
                }
                seen.push(name.clone());
                if line("Exec").is_some_and(|line| program_in(line, program).is_some()) {
                    let taken = *directory != self.services
                        && (found.iter().any(|(known, _)| *known == file)
                            || self.services.join(&file).symlink_metadata().is_ok());
                    found.push((if taken { format!("{name}.service") } else { file }, text));
                }
            }
        }
        found
    }

    /// Commands of all of these that speak of a program and stay as they are: the file, and the command.
    pub fn left(&self, program: &Sought<'_>) -> Vec<(PathBuf, String)> {
        let (applications, autostarts) = ([&self.applications], [&self.autostart]);
        let mut all = files(applications.into_iter().chain(&self.others), ".desktop", true);
        all.extend(files(autostarts.into_iter().chain(&self.autostarts), ".desktop", false));
        let services = [&self.services].into_iter().chain(&self.other_services);
        all.extend(files(services, ".service", false));
        let of = |Found { path, text, .. }: Found| {
            left(&text, program).into_iter().map(move |line| (path.clone(), line))
        };
        all.into_iter().flat_map(of).collect()
    }

    /// The same of what a session starts by itself.
    pub fn autostarts(&self, program: &Sought<'_>) -> Vec<(String, String)> {
        entries([&self.autostart].into_iter().chain(&self.autostarts), false, program)
    }
}

/// Where services of the session bus are, below directories of data.
const SERVICES: &str = "dbus-1/services";

/// The entries of some directories that start a program; a file hides those of its name further on.
fn entries<'a>(
    directories: impl Iterator<Item = &'a PathBuf>,
    below: bool,
    program: &Sought<'_>,
) -> Vec<(String, String)> {
    let mut found = files(directories, ".desktop", below);
    found.retain(|file| {
        let mut lines = file.text.lines().filter_map(|line| value(line, "Exec"));
        lines.any(|line| program_in(line, program).is_some())
    });
    let mut named: Vec<_> = found.into_iter().map(|file| (file.name, file.text)).collect();
    named.sort();
    named
}

/// A file of one of several directories.
struct Found {
    path: PathBuf,
    /// From that directory on.
    name: String,
    text: String,
}

/// The files of some directories that are called so, and `below` them too; a file hides those of its name further on,
/// where the name of an application further down has `-` for each `/` (Desktop Entry Specification, "desktop file ID").
fn files<'a>(directories: impl Iterator<Item = &'a PathBuf>, end: &str, below: bool) -> Vec<Found> {
    let mut seen: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for directory in directories {
        let mut waiting = vec![String::new()];
        let mut ids = Vec::new();
        while let Some(at) = waiting.pop() {
            for entry in fs::read_dir(directory.join(&at)).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let (name, path) = (format!("{at}{name}"), entry.path());
                // No link is followed to a directory: it may lead to one above it.
                if below && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(format!("{name}/"));
                    continue;
                }
                let id = name.replace('/', "-");
                if !name.ends_with(end) || seen.contains(&id) {
                    continue;
                }
                if let Some(text) = text_of(&path) {
                    ids.push(id);
                    found.push(Found { path, name, text });
                }
            }
        }
        seen.append(&mut ids);
    }
    found
}

/// The longest entry that is read; real ones, with their names in all languages, have a tenth of it.
const LONGEST: u64 = 1 << 20;

/// The text of an entry. A FIFO does not hold us, and no more is read than an entry has.
fn text_of(path: &Path) -> Option<String> {
    HostFiles.text(path, LONGEST).ok()
}

/// The value of a line, if it is about a key.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = line.split_once('=')?;
    (name.trim_end() == key).then(|| value.trim_start())
}

/// Options of env(1) whose operand is the next word.
const ENV_OPERANDS: [&str; 6] = ["-u", "--unset", "-C", "--chdir", "-a", "--argv0"];

/// The commands of an entry that speak of a program and do not start it in a way that is known here: by a shell,
/// or as an operand.
fn left(text: &str, program: &Sought<'_>) -> Vec<String> {
    let commands = text.lines().filter_map(|line| value(line, "Exec"));
    let speaks = |line: &&str| {
        let plain = line.replace(['\\', '"', '\''], "");
        let ends = |c: char| c.is_whitespace() || ";|&()=`$<>,".contains(c);
        let is_it =
            |word: &str| Path::new(word).file_name().is_some_and(|name| name == program.name);
        plain.split(ends).any(is_it)
    };
    let left = commands.filter(|line| program_in(line, program).is_none()).filter(speaks);
    left.map(ToOwned::to_owned).collect()
}

/// Where a command line of an entry names a program: its first word, or the one behind `env` and
/// its variables.
fn program_in(line: &str, program: &Sought<'_>) -> Option<Range<usize>> {
    let (mut env, mut operand) = (false, false);
    for range in words(line) {
        if std::mem::take(&mut operand) {
            continue;
        }
        let word = line[range.clone()].trim_matches('"').replace("\\\\", "\\");
        let name = Path::new(&word).file_name()?.to_str()?;
        if name == program.name && !(env && word.contains('=')) {
            return (program.starts)(&word).then_some(range);
        }
        operand = env && ENV_OPERANDS.contains(&word.as_str());
        let skipped = if env { word.contains('=') || word.starts_with('-') } else { name == "env" };
        // Its operand is a command line of its own.
        if env && (word.starts_with("-S") || word.starts_with("--s")) {
            return None;
        }
        if !skipped {
            return None;
        }
        env = true;
    }
    None
}

/// The words of a command line: `"…"` is one, with backslashes in it.
fn words(line: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let (mut start, mut quoted, mut escaped) = (None, false, false);
    for (at, c) in line.char_indices() {
        if c.is_whitespace() && !quoted {
            words.extend(start.take().map(|start| start..at));
            continue;
        }
        start.get_or_insert(at);
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
    }
    words.extend(start.map(|start| start..line.len()));
    words
}

/// One more way to start a program, in its menu.
pub struct Action {
    /// What it is called.
    pub name: String,
    /// What is called.
    pub call: String,
}

/// An entry that calls ringfence; none when it starts something else. `beside` is added to its
/// name, for one that stands beside the program's own.
pub fn rewritten(
    text: &str,
    program: &Sought<'_>,
    call: &str,
    actions: &[Action],
    beside: Option<&str>,
) -> Option<String> {
    let mut out = String::new();
    let (mut done, mut main, mut listed) = (false, false, actions.is_empty());
    let own: String = (1..=actions.len()).map(|at| format!("ringfence-{at};")).collect();
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            if main && !listed {
                let _ = writeln!(out, "Actions={own}");
                listed = true;
            }
            main = line.trim() == "[Desktop Entry]";
        }
        let command = value(line, "Exec");
        if let Some((command, at)) =
            command.and_then(|line| Some((line, program_in(line, program)?)))
        {
            let _ = writeln!(out, "Exec={}{call}{}", &command[..at.start], &command[at.end..]);
            done = true;
        } else if value(line, "TryExec").is_some() {
            // The entry would not be shown where the program itself is not in PATH.
        } else if value(line, "SystemdService").is_some() {
            // The bus would have it started by systemd, from a unit with a command of its own.
        } else if value(line, "DBusActivatable").is_some() {
            // The bus would start it without us.
            out.push_str("DBusActivatable=false\n");
        } else if let Some(known) = value(line, "Actions").filter(|_| main && !listed) {
            let end = if known.is_empty() || known.ends_with(';') { "" } else { ";" };
            let _ = writeln!(out, "Actions={known}{end}{own}");
            listed = true;
        } else {
            out.push_str(line);
            let named = line.split('=').next().unwrap_or_default().trim_end();
            let named = main && (named == "Name" || named.starts_with("Name["));
            if let Some(beside) = beside.filter(|_| named) {
                let _ = write!(out, " ({beside})");
            }
            out.push('\n');
        }
    }
    if main && !listed {
        let _ = writeln!(out, "Actions={own}");
    }
    for (at, action) in actions.iter().enumerate() {
        let (at, name, call) = (at + 1, &action.name, &action.call);
        let _ = write!(out, "\n[Desktop Action ringfence-{at}]\nName={name}\nExec={call}\n");
    }
    done.then_some(out)
}

/// An entry for a program that has none.
pub fn made(name: &str, call: &str) -> String {
    format!("[Desktop Entry]\nType=Application\nName={name}\nExec={call}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEWER: Sought<'_> = Sought { name: "viewer", starts: &|word| word != "/opt/dev/viewer" };
    const CALL: &str = "rf run -p v -- /usr/bin/viewer";

    #[test]
    fn entries_call_ringfence_and_nobody_else() {
        let text = "[Desktop Entry]\nName=V\nExec=/usr/bin/viewer --new %U\nTryExec=viewer\nDBusActivatable=true\n\
                    [Desktop Action x]\nExec=viewer\nName=a=b\n";
        let now = rewritten(text, &VIEWER, CALL, &[], None).expect("rewritten");
        assert_eq!(
            now,
            "[Desktop Entry]\nName=V\nExec=rf run -p v -- /usr/bin/viewer --new %U\nDBusActivatable=false\n\
             [Desktop Action x]\nExec=rf run -p v -- /usr/bin/viewer\nName=a=b\n"
        );
        for other in [
            "viewers",
            "env",
            "env A=viewer",
            "sh -c viewer",
            "\"/opt/a b/x\" viewer",
            "",
            "/opt/dev/viewer",
            "env A=b /opt/dev/viewer viewer",
        ] {
            let text = format!("[Desktop Entry]\nExec={other}\n");
            assert_eq!(rewritten(&text, &VIEWER, CALL, &[], None), None, "{other}");
        }
    }

    #[test]
    fn the_program_may_stand_behind_variables_and_in_quotes() {
        for (before, after) in [
            ("Exec=env A=b viewer %f", "Exec=env A=b rf run -p v -- /usr/bin/viewer %f"),
            (
                "Exec=\"/opt/the viewer/viewer\" \"a b\"",
                "Exec=rf run -p v -- /usr/bin/viewer \"a b\"",
            ),
            ("Exec = viewer", "Exec=rf run -p v -- /usr/bin/viewer"),
            (
                "Exec=env -u X --chdir /viewer -i A=/viewer /usr/bin/viewer %f",
                "Exec=env -u X --chdir /viewer -i A=/viewer rf run -p v -- /usr/bin/viewer %f",
            ),
        ] {
            let now = rewritten(before, &VIEWER, CALL, &[], None).expect("rewritten");
            assert_eq!(now.trim_end(), after);
        }
    }

    #[test]
    fn commands_that_stay_are_named() {
        let others = [
            "sh -c \"/usr/bin/viewer %f\"",
            "env -S \"viewer -x\"",
            "/usr/bin/view\\er",
            "sh -c 'A=b;viewer'",
            "/opt/dev/viewer %f",
        ];
        let text: String = others.iter().map(|line| format!("Exec={line}\n")).collect();
        let text = format!("[Desktop Entry]\nExec=viewer\n{text}Exec=viewers --viewer\n");
        assert_eq!(left(&text, &VIEWER), others);
    }

    #[test]
    fn configurations_are_actions_of_the_entry() {
        let action = || [Action { name: "v: work".to_owned(), call: "rf work".to_owned() }];
        let text = "[Desktop Entry]\nName=V\nActions=new\nExec=viewer\n[Desktop Action new]\nName=N\nExec=viewer -n\n";
        let now = rewritten(text, &VIEWER, "rf", &action(), Some("ringfence")).expect("rewritten");
        assert_eq!(
            now,
            "[Desktop Entry]\nName=V (ringfence)\nActions=new;ringfence-1;\nExec=rf\n[Desktop Action new]\nName=N\n\
             Exec=rf -n\n\n[Desktop Action ringfence-1]\nName=v: work\nExec=rf work\n"
        );
        let now = rewritten("[Desktop Entry]\nExec=viewer\n", &VIEWER, "rf", &action(), None);
        assert!(
            now.expect("rewritten").starts_with("[Desktop Entry]\nExec=rf\nActions=ringfence-1;\n")
        );
    }

    #[test]
    fn services_are_told_apart_by_their_names_on_the_bus() {
        let place = tempfile::tempdir().expect("a directory");
        let home = place.path();
        let (own, system) =
            (home.join(".local/share").join(SERVICES), home.join("s").join(SERVICES));
        let text = |name: &str, exec: &str| {
            format!("[D-BUS Service]\nName={name}\nExec={exec}\nSystemdService=v.service\n")
        };
        for (directory, file, name, exec) in [
            (&own, "a.service", "org.A", "other"),
            (&own, "b.service", "org.B", "viewer --own"),
            (&system, "elsewhere.service", "org.A", "viewer --hidden"),
            (&system, "b.service", "org.C", "/usr/bin/viewer --bus"),
            (&system, "d.service", "../../x", "viewer"),
            (&system, "e.conf", "org.E", "viewer"),
        ] {
            fs::create_dir_all(directory).expect("a directory");
            fs::write(directory.join(file), text(name, exec)).expect("a file");
        }
        let env = |name: &str| (name == "XDG_DATA_DIRS").then(|| home.join("s").into_os_string());
        let found = Places::of(home, &env).services(&VIEWER);
        let names: Vec<&str> = found.iter().map(|(file, _)| file.as_str()).collect();
        assert_eq!(names, ["b.service", "org.C.service"], "a file of the user's own stays");
        let now = rewritten(&found[1].1, &VIEWER, CALL, &[], None).expect("rewritten");
        assert_eq!(now, "[D-BUS Service]\nName=org.C\nExec=rf run -p v -- /usr/bin/viewer --bus\n");
    }

    #[test]
    fn the_users_own_entries_hide_those_of_their_name() {
        let place = tempfile::tempdir().expect("a directory");
        let home = place.path();
        let system = home.join("system/applications");
        let own = home.join(".local/share/applications");
        for (directory, text) in
            [(&system, "Exec=viewer --system\n"), (&own, "Exec=viewer --own\n")]
        {
            fs::create_dir_all(directory).expect("a directory");
            fs::write(directory.join("v.desktop"), text).expect("a file");
        }
        fs::write(own.join("other.desktop"), "Exec=other\n").expect("a file");
        fs::write(system.join("other.desktop"), "Exec=viewer\n").expect("a file");
        let env =
            |name: &str| (name == "XDG_DATA_DIRS").then(|| home.join("system").into_os_string());
        let found = Places::of(home, &env).applications(&VIEWER);
        assert_eq!(found, [("v.desktop".to_owned(), "Exec=viewer --own\n".to_owned())]);
    }
}
