//! What the caller's variables say is elsewhere: sockets of services, base directories.
#![allow(missing_docs)]

use crate::common::{Host, host};
use ringfence_policy::files::{Fake, FakeFiles};
use ringfence_policy::{Access, Key, NetworkMode};
use std::path::{Path, PathBuf};

/// A host with displays and a session bus.
fn desktop() -> Host {
    let sockets = [
        "/tmp/.X11-unix/X0",
        "/tmp/.X11-unix/X77",
        "/run/user/1000/wayland-0",
        "/run/user/1000/wayland-7",
        "/run/user/1000/bus",
        "/srv/pulse",
    ];
    let files = |files| {
        sockets.iter().fold(files, |files, path| FakeFiles::with(files, path, Fake::Socket))
    };
    host().with(files).env("XDG_RUNTIME_DIR", "/run/user/1000")
}

/// Uses a profile of this text, in the moved directory of settings.
fn own_in(host: Host, settings: &str, toml: &str) -> Host {
    let path = format!("{settings}/ringfence/profiles/own.toml");
    host.with(|files| files.file(&path, toml)).profile("own").env("XDG_CONFIG_HOME", settings)
}

fn sockets(host: &Host) -> Vec<PathBuf> {
    host.policy().network.sockets.into_iter().map(|rule| rule.path).collect()
}

#[test]
fn a_feature_grants_the_socket_that_its_variable_names_and_no_other() {
    let granted = |feature: &str, variable: &str, value: &str| {
        sockets(&desktop().profile("default").profile(feature).env(variable, value))
    };
    let is = |path: &str| vec![PathBuf::from(path)];
    assert_eq!(granted("x11", "DISPLAY", ":77.0"), is("/tmp/.X11-unix/X77"));
    assert_eq!(granted("x11", "DISPLAY", ":0"), is("/tmp/.X11-unix/X0"));
    assert_eq!(granted("x11", "DISPLAY", ":5"), is("")[1..]);
    assert_eq!(granted("wayland", "WAYLAND_DISPLAY", "wayland-7"), is("/run/user/1000/wayland-7"));
    let absolute = "/run/user/1000/wayland-0";
    assert_eq!(granted("wayland", "WAYLAND_DISPLAY", absolute), is(absolute));
    assert_eq!(granted("pulseaudio", "PULSE_SERVER", "unix:/srv/pulse"), is("/srv/pulse"));
    let bus = "unix:path=/run/user/1000/bus,guid=00";
    assert_eq!(granted("dbus", "DBUS_SESSION_BUS_ADDRESS", bus), is("/run/user/1000/bus"));
    assert_eq!(granted("dbus", "DBUS_SESSION_BUS_ADDRESS", "unix:path=/gone"), is("")[1..]);
}

#[test]
fn a_variable_of_a_service_grants_nothing_that_is_no_socket() {
    for value in ["/home/u", "/home/u/.ssh/id_ed25519", "/home/u/.bashrc", "unix:/etc/passwd", "/"]
    {
        let host = desktop().profile("default").profile("x11").env("DISPLAY", value);
        assert!(sockets(&host).is_empty(), "{value}");
        assert!(
            !host.write("/home/u/.bashrc").allowed
                || host.write("/home/u/.bashrc").layer == "private"
        );
    }
    let link = |target: &str| {
        let files = desktop().with(|files| files.symlink("/home/u/project/socket", target));
        files.profile("default").profile("x11").env("DISPLAY", "/home/u/project/socket")
    };
    assert!(link("/run/user/1000/bus").error().contains("/home/u/project/socket"), "planted");
}

#[test]
fn what_is_not_on_this_machine_is_told_unless_a_rule_allows_it() {
    let remote = || desktop().profile("default").profile("x11").env("DISPLAY", "far:1.0");
    let said = "x11:$DISPLAY?: `far:1.0` is no socket of this machine: -n far:6001 allows it";
    let warnings = |host: Host| -> Vec<String> {
        let warnings = host.policy().warnings.into_iter();
        warnings.filter(|warning| warning.starts_with("x11:")).collect()
    };
    assert_eq!(warnings(remote()), [said]);
    assert_eq!(remote().policy().network.mode, NetworkMode::None);
    let allowed = remote().option(Key::AllowHost, "far:6001");
    assert!(warnings(allowed).is_empty());
    assert!(warnings(remote().option(Key::Mode, "host")).is_empty());
    let own = |text: &str| {
        desktop().env("DISPLAY", ":5").own(&format!("[network]\nsockets = [{text:?}]"))
    };
    assert!(sockets(&own("x11:$DISPLAY?")).is_empty());
    assert!(own("x11:$DISPLAY").error().contains("it leads to no socket of this machine"));
    assert!(own("x11:$5").error().contains("`$5` names no variable"));
}

#[test]
fn what_ships_follows_moved_base_directories() {
    let moved = |files: &[&str]| {
        let with = |all| files.iter().fold(all, |all: FakeFiles, path| all.file(path, ""));
        host().with(with).env("XDG_CONFIG_HOME", "/data/settings")
    };
    let files = ["/data/settings/git/config", "/home/u/.config/git/ignore"];
    let host = moved(&files).profile("default");
    assert!(host.read("/data/settings/git/config").allowed);
    assert!(host.read("/home/u/.config/git/ignore").allowed, "programs that do not know of it");
    assert!(!host.read("/data/settings/other").allowed);
    // Hidden as well, in a tree that is granted.
    let files = ["/data/settings/git/credentials", "/data/settings/git/x"];
    let host = moved(&files).profile("default").option(Key::Read, "/data");
    assert!(!host.read("/data/settings/git/credentials").allowed);
    assert!(host.read("/data/settings/git/x").allowed);
    // A user's own rule says what it says.
    let own = "[filesystem]\nread = [\"~/.config/git/config?\"]";
    let host = crate::common::host().with(|files| files.file("/data/settings/git/config", ""));
    assert!(!own_in(host, "/data/settings", own).read("/data/settings/git/config").allowed);
}

#[test]
fn a_programs_state_is_made_where_its_base_directory_was_moved_to() {
    let made = |host: Host| -> Vec<PathBuf> {
        host.policy().made.into_iter().map(|made| made.path).collect()
    };
    let opencode = || host().profile("opencode").env("XDG_STATE_HOME", "/home/u/states");
    let paths = made(opencode());
    assert!(paths.contains(&PathBuf::from("/home/u/states/opencode")), "{paths:?}");
    assert!(!paths.contains(&PathBuf::from("/home/u/.local/state/opencode")), "{paths:?}");
    // Where there is one it goes on being used.
    let both = opencode().with(|files| files.directory("/home/u/.local/state/opencode"));
    assert!(both.write("/home/u/.local/state/opencode/x").allowed);
}

#[test]
fn what_a_desktop_runs_is_protected_where_its_base_directory_was_moved_to() {
    let protected = |host: &Host, path: &str| {
        let rules = host.policy().paths;
        rules.iter().any(|rule| rule.access == Access::Protect && rule.path == Path::new(path))
    };
    let files = || host().with(|files| files.directory("/data/settings/autostart"));
    let writable = "[filesystem]\nwrite = [\"/data\"]";
    let usual = files().own(writable);
    let moved = own_in(files(), "/data/settings", writable);
    for path in ["/data/settings/autostart", "/data/settings/fish", "/data/settings/systemd"] {
        assert!(protected(&moved, path), "{path}");
        assert!(!protected(&usual, path), "{path} means nothing without the variable");
        assert!(!moved.write(&format!("{path}/x")).allowed);
    }
    assert!(moved.write("/data/settings/x").allowed);
    let exactly = moved.option(Key::Write, "/data/settings/autostart");
    assert!(exactly.write("/data/settings/autostart/x").allowed, "the user's own word");
}

#[test]
fn what_ships_names_installed_tools_one_by_one_and_follows_no_link_out_of_their_directory() {
    let data = [("/home/u/.local/share", None), ("/data", Some("/data"))];
    for (data, variable) in data {
        let tools = format!("{data}/uv/tools");
        let files = |files: FakeFiles| {
            files
                .file(&format!("{tools}/lint/bin/lint"), "")
                .file(&format!("{tools}/.lock"), "")
                .symlink(&format!("{tools}/also"), "lint")
                .symlink(&format!("{tools}/planted"), "/home/u/.ssh")
                .file("/home/u/.ssh/id_ed25519", "")
        };
        let host = host().with(files);
        let host = variable.into_iter().fold(host, |host, at| host.env("XDG_DATA_HOME", at));
        assert!(host.read(&format!("{tools}/lint/bin/lint")).allowed, "{tools}");
        assert!(host.read(&format!("{tools}/also/bin/lint")).allowed, "{tools}");
        assert!(!host.write(&format!("{tools}/lint/bin/lint")).allowed, "{tools}");
        for secret in [format!("{tools}/planted/id_ed25519"), "/home/u/.ssh/id_ed25519".into()] {
            assert!(!host.read(&secret).allowed, "{secret}");
        }
        // What somebody wrote is what he meant.
        let own = host.option(Key::Read, format!("{tools}/*"));
        assert!(own.read("/home/u/.ssh/id_ed25519").allowed, "the control");
    }
}
