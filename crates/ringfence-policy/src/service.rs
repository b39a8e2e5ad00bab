//! Sockets of the session's services, by what the caller's variables say of them.
//!
//! `x11:$DISPLAY` in `sockets` is the socket of the display that programs would take, and so for
//! the others. Each variable is read as the service's own clients read it; what it says does not
//! have to be a path, nor one place only, nor on this machine.

use crate::path::{Bases, normal};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What an entry of `sockets` that names a service means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// Where its sockets may be.
    pub places: Vec<PathBuf>,
    /// What was named and is no socket that can be shown.
    pub elsewhere: Vec<Elsewhere>,
    /// That there is none is no error.
    pub optional: bool,
}

/// A service that is not behind a socket with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Behind a port of a host.
    Host {
        /// What the variable says.
        named: String,
        /// What to allow, `host:port`.
        host: String,
    },
    /// Where no rule leads.
    Unreachable {
        /// What the variable says.
        named: String,
        /// What that is.
        what: &'static str,
    },
}

/// How the clients of a service read its variable.
type Reader = fn(&str, &Bases<'_>, &mut Service);

const READERS: [(&[u8], Reader); 7] = [
    (b"x11:", x11),
    (b"wayland:", wayland),
    (b"dbus:", dbus),
    (b"pulse:", pulse),
    (b"pipewire:", pipewire),
    (b"gpg:", gpg),
    (b"url:", url),
];

/// The service that an entry of `sockets` names; none when it is a path.
pub(crate) fn named(text: &OsStr, bases: &Bases<'_>) -> Option<Result<Service, String>> {
    let bytes = text.as_bytes();
    let (bytes, first) = bytes.strip_prefix(b"?").map_or((bytes, false), |rest| (rest, true));
    let (prefix, reader) = READERS.iter().find(|(prefix, _)| bytes.starts_with(prefix))?;
    let rest = &bytes[prefix.len()..];
    let (rest, last) = rest.strip_suffix(b"?").map_or((rest, false), |rest| (rest, true));
    let mut service = Service { optional: first || last, ..Service::default() };
    Some(value(rest, bases).map(|value| {
        reader(value.trim(), bases, &mut service);
        service
    }))
}

/// `$NAME`, `${NAME}`, `${NAME:-text}`, the text with `$NAME`s in it maybe; or a text. What is unset
/// makes all of it empty.
fn value(text: &[u8], bases: &Bases<'_>) -> Result<String, String> {
    let text = String::from_utf8_lossy(text).into_owned();
    let Some(variable) = text.strip_prefix('$') else { return Ok(text) };
    let (name, default) = match variable.strip_prefix('{') {
        Some(inside) => {
            let inside = inside.strip_suffix('}').ok_or("a `${` needs its `}` at the end")?;
            inside.split_once(":-").unwrap_or((inside, ""))
        }
        None => (variable, ""),
    };
    if let Some(value) = variable_of(name, bases)? {
        return Ok(value);
    }
    let mut parts = default.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let Some(value) = variable_of(&part[..end], bases)? else { return Ok(String::new()) };
        out.push_str(&value);
        out.push_str(&part[end..]);
    }
    Ok(out)
}

fn variable_of(name: &str, bases: &Bases<'_>) -> Result<Option<String>, String> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!("`${name}` names no variable"));
    }
    let value = (bases.env)(name).filter(|value| !value.is_empty());
    let text = |value: OsString| value.into_string();
    value.map(text).transpose().map_err(|_| format!("the variable {name} holds no UTF-8"))
}

impl Service {
    /// An absolute path; others name nothing that all programs agree on.
    fn place(&mut self, path: impl AsRef<Path>) {
        if path.as_ref().is_absolute() {
            self.places.push(normal(path.as_ref()));
        }
    }

    fn host(&mut self, named: &str, host: &str, port: u32) {
        let bare = host.contains(':') && !host.starts_with('[');
        let host = if bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        self.elsewhere.push(Elsewhere::Host { named: named.to_owned(), host });
    }

    fn unreachable(&mut self, named: &str, what: &'static str) {
        self.elsewhere.push(Elsewhere::Unreachable { named: named.to_owned(), what });
    }
}

/// A path in the directory that a variable names.
fn below(variable: &str, name: &str, bases: &Bases<'_>) -> Option<PathBuf> {
    let directory = PathBuf::from((bases.env)(variable)?);
    directory.is_absolute().then(|| directory.join(name))
}

/// `:N.SCREEN`, `unix:N`, `unix/HOST:N`, `HOST:N`, or a path, `.SCREEN` after it maybe (X(7), xcb).
fn x11(value: &str, _: &Bases<'_>, service: &mut Service) {
    const NO_DISPLAY: &str = "no display";
    const FIRST_PORT: u32 = 6000;
    let path = value.strip_prefix("unix:").unwrap_or(value);
    if path.starts_with('/') {
        service.place(path);
        if let Some((socket, screen)) = path.rsplit_once('.')
            && !screen.is_empty()
            && screen.bytes().all(|byte| byte.is_ascii_digit())
        {
            service.place(socket);
        }
        return;
    }
    if value.is_empty() {
        return;
    }
    let Some((host, display)) = value.rsplit_once(':') else {
        return service.unreachable(value, NO_DISPLAY);
    };
    let number = display.split_once('.').map_or(display, |(number, _)| number);
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = number.parse::<u16>().ok().filter(|_| digits) else {
        return service.unreachable(value, NO_DISPLAY);
    };
    let (protocol, host) = host.split_once('/').unwrap_or(("", host));
    if protocol == "unix" || host.is_empty() || host == "unix" {
        service.place(format!("/tmp/.X11-unix/X{number}"));
    } else {
        service.host(value, host, FIRST_PORT + u32::from(number));
    }
}

/// A name in `XDG_RUNTIME_DIR`, or a path (`wl_display_connect`).
fn wayland(value: &str, bases: &Bases<'_>, service: &mut Service) {
    let name = if value.is_empty() { "wayland-0" } else { value };
    if name.starts_with('/') {
        service.place(name);
    } else if let Some(path) = below("XDG_RUNTIME_DIR", name, bases) {
        service.place(path);
    }
}

/// Addresses with `;` between them (the D-Bus specification).
fn dbus(value: &str, bases: &Bases<'_>, service: &mut Service) {
    for address in value.split(';').filter(|address| !address.is_empty()) {
        match address_path(address) {
            Some(path) => service.place(path),
            None if address.strip_prefix("unix:").is_some_and(runtime) => {
                if let Some(path) = below("XDG_RUNTIME_DIR", "bus", bases) {
                    service.place(path);
                }
            }
            None if address.starts_with("unix:abstract=") => {
                service
                    .unreachable(address, "an abstract socket, of which the sandbox has its own");
            }
            None => service.unreachable(address, "no socket with a path"),
        }
    }
}

fn runtime(keys: &str) -> bool {
    keys.split(',').any(|key| key == "runtime=yes")
}

/// The path in one address of D-Bus, `unix:path=…`, its escapes (`%20`) read.
pub fn address_path(address: &str) -> Option<PathBuf> {
    let keys = address.strip_prefix("unix:")?.split(',');
    let value = keys.filter_map(|key| key.strip_prefix("path=")).next()?;
    let mut parts = value.as_bytes().split(|&byte| byte == b'%');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let digits = std::str::from_utf8(part.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part[2..]);
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// Servers with spaces between them, each a path, `unix:PATH`, or a host; `{machine}` before it
/// maybe (pulseaudio(1), "server string").
fn pulse(value: &str, bases: &Bases<'_>, service: &mut Service) {
    const PORT: u32 = 4713;
    if value.is_empty() {
        let own = below("PULSE_RUNTIME_PATH", "native", bases);
        let usual = || below("XDG_RUNTIME_DIR", "pulse/native", bases);
        if let Some(path) = own.or_else(usual) {
            service.place(path);
        }
        return;
    }
    for server in value.split_ascii_whitespace() {
        let plain = match server.strip_prefix('{') {
            Some(rest) => rest.split_once('}').map_or(server, |(_, plain)| plain),
            None => server,
        };
        let path = plain.strip_prefix("unix:").unwrap_or(plain);
        if path.starts_with('/') {
            service.place(path);
            continue;
        }
        let host = ["tcp:", "tcp4:", "tcp6:"].iter().find_map(|kind| plain.strip_prefix(kind));
        let host = host.unwrap_or(plain);
        let with_port = host
            .rsplit_once(':')
            .filter(|(name, _)| !name.is_empty() && (!name.contains(':') || name.ends_with(']')));
        match with_port.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?))) {
            Some((name, port)) => service.host(server, name, u32::from(port)),
            None => service.host(server, host, PORT),
        }
    }
}

/// A name in `PIPEWIRE_RUNTIME_DIR` or `XDG_RUNTIME_DIR`, or a path (pipewire(1)).
fn pipewire(value: &str, bases: &Bases<'_>, service: &mut Service) {
    let name = if value.is_empty() { "pipewire-0" } else { value };
    if name.starts_with('/') {
        return service.place(name);
    }
    let own = below("PIPEWIRE_RUNTIME_DIR", name, bases);
    if let Some(path) = own.or_else(|| below("XDG_RUNTIME_DIR", name, bases)) {
        service.place(path);
    }
}

/// The agent's socket is in the directory of GnuPG's files or, for the usual one, in that of the
/// user's sockets.
fn gpg(value: &str, bases: &Bases<'_>, service: &mut Service) {
    let usual = bases.home.join(".gnupg");
    let directory = if value.is_empty() { usual.clone() } else { PathBuf::from(value) };
    let path = below("XDG_RUNTIME_DIR", "gnupg/S.gpg-agent", bases);
    if let Some(path) = path.filter(|_| normal(&directory) == usual) {
        service.place(path);
    }
    service.place(directory.join("S.gpg-agent"));
}

/// `unix:///path`, as `DOCKER_HOST` and `CONTAINER_HOST` have it; a service elsewhere is reached by
/// rules for hosts.
fn url(value: &str, _: &Bases<'_>, service: &mut Service) {
    if let Some(path) = value.strip_prefix("unix://") {
        service.place(path);
    } else if !value.is_empty() {
        service.unreachable(value, "no socket of this machine: allow the host and the port of it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, variables: &[(&str, &str)]) -> Option<Result<Service, String>> {
        let env = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let (home, workdir) = (Path::new("/home/u"), Path::new("/w"));
        named(OsStr::new(text), &Bases { home, workdir, env: &env })
    }

    /// Places, and what is elsewhere in short.
    fn of(text: &str, variables: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let service = read(text, variables).expect("a service").expect("well named");
        let places = service.places.iter().map(|path| path.display().to_string()).collect();
        let elsewhere = service.elsewhere.into_iter().map(|one| match one {
            Elsewhere::Host { host, .. } => host,
            Elsewhere::Unreachable { named, .. } => format!("not {named}"),
        });
        (places, elsewhere.collect())
    }

    fn check(text: &str, variable: &str, cases: &[(&str, &[&str], &[&str])]) {
        for (value, places, elsewhere) in cases {
            let runtime = ("XDG_RUNTIME_DIR", "/run/user/7");
            let found = of(text, &[(variable, value), runtime]);
            let is = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            assert_eq!(found, (is(places), is(elsewhere)), "{text} with `{value}`");
        }
    }

    #[test]
    fn displays_of_x11() {
        let x77 = &["/tmp/.X11-unix/X77"][..];
        check(
            "x11:$DISPLAY?",
            "DISPLAY",
            &[
                (":77", x77, &[]),
                (":77.1", x77, &[]),
                ("unix:77", x77, &[]),
                ("unix/far:77.0", x77, &[]),
                ("far:1.0", &[], &["far:6001"]),
                ("tcp/far:1", &[], &["far:6001"]),
                ("localhost:10.0", &[], &["localhost:6010"]),
                ("[::1]:2", &[], &["[::1]:6002"]),
                ("/a/b:0", &["/a/b:0"], &[]),
                ("/a/b:0.1", &["/a/b:0.1", "/a/b:0"], &[]),
                ("unix:/a/../b", &["/b"], &[]),
                ("", &[], &[]),
                (":", &[], &["not :"]),
                (":-1", &[], &["not :-1"]),
                (":+1", &[], &["not :+1"]),
                (":99999", &[], &["not :99999"]),
                (":0/../../etc", &[], &["not :0/../../etc"]),
                ("nothing", &[], &["not nothing"]),
            ],
        );
        assert_eq!(of("x11::5", &[]).0, ["/tmp/.X11-unix/X5"]);
    }

    #[test]
    fn displays_of_wayland() {
        check(
            "wayland:$WAYLAND_DISPLAY?",
            "WAYLAND_DISPLAY",
            &[
                ("wayland-1", &["/run/user/7/wayland-1"], &[]),
                ("", &["/run/user/7/wayland-0"], &[]),
                ("/srv/w", &["/srv/w"], &[]),
            ],
        );
        assert_eq!(of("wayland:$WAYLAND_DISPLAY", &[("WAYLAND_DISPLAY", "w")]).0, [""; 0]);
        let relative = [("XDG_RUNTIME_DIR", "run"), ("WAYLAND_DISPLAY", "w")];
        assert_eq!(of("wayland:$WAYLAND_DISPLAY", &relative).0, [""; 0]);
    }

    #[test]
    fn buses() {
        check(
            "dbus:$B?",
            "B",
            &[
                ("unix:path=/run/user/7/bus", &["/run/user/7/bus"], &[]),
                ("unix:guid=00ff,path=/a%20b;", &["/a b"], &[]),
                ("unix:path=/c%3bd;unix:path=/e,guid=0", &["/c;d", "/e"], &[]),
                ("unix:runtime=yes", &["/run/user/7/bus"], &[]),
                ("unix:abstract=/tmp/x", &[], &["not unix:abstract=/tmp/x"]),
                ("tcp:host=a,port=1;unix:path=/f", &["/f"], &["not tcp:host=a,port=1"]),
                ("unix:path=relative", &[], &[]),
                ("unix:path=/a%2", &[], &["not unix:path=/a%2"]),
                ("unix:path=/a%zz", &[], &["not unix:path=/a%zz"]),
                ("", &[], &[]),
            ],
        );
    }

    #[test]
    fn sound_servers() {
        check(
            "pulse:$PULSE_SERVER?",
            "PULSE_SERVER",
            &[
                ("", &["/run/user/7/pulse/native"], &[]),
                ("unix:/mnt/p", &["/mnt/p"], &[]),
                ("{0a}unix:/mnt/p far", &["/mnt/p"], &["far:4713"]),
                (
                    "/q tcp:far:1 tcp6:[::1]:2 tcp:[::1] ::1",
                    &["/q"],
                    &["far:1", "[::1]:2", "[::1]:4713", "[::1]:4713"],
                ),
            ],
        );
        let own = [("PULSE_RUNTIME_PATH", "/p"), ("XDG_RUNTIME_DIR", "/r")];
        assert_eq!(of("pulse:$PULSE_SERVER", &own).0, ["/p/native"]);
        check(
            "pipewire:$PIPEWIRE_REMOTE?",
            "PIPEWIRE_REMOTE",
            &[
                ("", &["/run/user/7/pipewire-0"], &[]),
                ("pipewire-1", &["/run/user/7/pipewire-1"], &[]),
                ("/srv/pw", &["/srv/pw"], &[]),
            ],
        );
        let own = [("PIPEWIRE_RUNTIME_DIR", "/p"), ("XDG_RUNTIME_DIR", "/r")];
        assert_eq!(of("pipewire:$PIPEWIRE_REMOTE", &own).0, ["/p/pipewire-0"]);
    }

    #[test]
    fn daemons_by_their_urls() {
        check(
            "url:${DOCKER_HOST:-unix:///run/docker.sock}?",
            "DOCKER_HOST",
            &[
                ("", &["/run/docker.sock"], &[]),
                ("unix:///home/u/docker.sock", &["/home/u/docker.sock"], &[]),
                ("unix://relative", &[], &[]),
                ("ssh://far", &[], &["not ssh://far"]),
            ],
        );
        let nested = "url:${C:-unix://$XDG_RUNTIME_DIR/podman.sock}?";
        assert_eq!(of(nested, &[("XDG_RUNTIME_DIR", "/r")]).0, ["/r/podman.sock"]);
        assert_eq!(of(nested, &[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn agents_of_gnupg() {
        let usual = &["/run/user/7/gnupg/S.gpg-agent", "/home/u/.gnupg/S.gpg-agent"][..];
        check(
            "gpg:$GNUPGHOME?",
            "GNUPGHOME",
            &[
                ("", usual, &[]),
                ("/home/u/.gnupg/", usual, &[]),
                // Not the agent of the usual keys.
                ("/srv/keys", &["/srv/keys/S.gpg-agent"], &[]),
                ("relative", &[], &[]),
            ],
        );
    }

    #[test]
    fn other_entries_are_paths_and_wrong_variables_are_told() {
        for path in ["/run/x", "~/x", "$SSH_AUTH_SOCK?", "x12:0", "./x11:0", ""] {
            assert_eq!(read(path, &[]), None, "{path}");
        }
        for wrong in ["x11:$", "x11:${DISPLAY", "x11:$1", "x11:$A/b"] {
            assert!(read(wrong, &[]).is_some_and(|read| read.is_err()), "{wrong}");
        }
    }
}
