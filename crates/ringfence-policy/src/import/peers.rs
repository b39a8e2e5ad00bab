//! The sandbox runtime and its descendants, whose settings share their names.

use super::{Importer, credentials, reads};
use crate::key::Key;

pub(super) fn srt(importer: &mut Importer) {
    importer.set_text(Key::Description, "Imported from the sandbox runtime's settings.");
    files(importer, true);
    domains(importer);
    reads_everything(importer, "the sandbox runtime");
    credentials::import(importer);
    let sockets = importer.texts("network.allowUnixSockets");
    importer.paths("network.allowUnixSockets", Key::Sockets, sockets);
    for command in ["ignoreViolations", "ripgrep", "mandatoryDenySearchDepth"] {
        if importer.take(command).is_some() {
            importer.note(format!("`{command}` is about how srt works: left out"));
        }
    }
    common(importer);
}

pub(super) fn fence(importer: &mut Importer) {
    importer.set_text(Key::Description, "Imported from Fence's settings.");
    files(importer, false);
    domains(importer);
    let strict =
        importer.flag("filesystem.defaultDenyRead") | importer.flag("filesystem.strictDenyRead");
    if !strict {
        reads_everything(importer, "Fence");
    }
    local_ports(importer, "network.allowLocalOutboundPorts");
    commands(importer);
    extends(importer, "Fence");
    common(importer);
}

pub(super) fn greywall(importer: &mut Importer) {
    importer.set_text(Key::Description, "Imported from Greywall's settings.");
    files(importer, false);
    if importer.switch("filesystem.defaultDenyRead") == Some(false) {
        reads_everything(importer, "Greywall");
    }
    local_ports(importer, "network.forwardPorts");
    for proxy in ["network.proxyUrl", "network.httpProxyUrl", "network.dnsAddr"] {
        if importer.take(proxy).is_some() {
            importer.note(format!("`{proxy}`: the domains are in greyproxy's own rules; list them with `allow` under [network]"));
        }
    }
    for name in importer.texts("credentials.secrets") {
        importer.note(format!("`credentials.secrets`: {name} is hidden here if it looks like a credential; add it to `hide` under [environment] if it does not"));
    }
    commands(importer);
    extends(importer, "Greywall");
    common(importer);
}

/// Whether `allowRead` makes `exceptions` to `denyRead` differs.
fn files(importer: &mut Importer, exceptions: bool) {
    let lists = [
        ("filesystem.allowRead", Key::Read),
        ("filesystem.allowExecute", Key::Read),
        ("filesystem.allowWrite", Key::Write),
        ("filesystem.denyRead", Key::Deny),
        ("filesystem.denyWrite", Key::Protect),
    ];
    for (list, key) in lists {
        let mut texts = importer.texts(list);
        if exceptions && key == Key::Deny {
            texts = reads::denied(importer, "filesystem", texts, str::to_owned);
        }
        importer.paths(list, key, texts);
    }
    if importer.flag("filesystem.allowGitConfig") {
        importer.note("`filesystem.allowGitConfig`: git runs what its configuration says; to write it all the same, add `.git/config` to `write`");
    }
}

fn domains(importer: &mut Importer) {
    let allowed = importer.texts("network.allowedDomains");
    importer.hosts("network.allowedDomains", Key::AllowHost, allowed);
    let denied = importer.texts("network.deniedDomains");
    importer.hosts("network.deniedDomains", Key::DenyHost, denied);
}

fn reads_everything(importer: &mut Importer, peer: &str) {
    importer.note(format!(
        "{peer} shows every file that is not denied; this profile shows what `default` shows: add what is missing to `read`"
    ));
}

/// Ports of the host's own loopback.
fn local_ports(importer: &mut Importer, list: &str) {
    let ports = importer.ports(list);
    let rules = ports.iter().map(|port| format!("localhost:{port}")).collect();
    importer.hosts(list, Key::AllowHost, rules);
}

/// Lists of commands, which a sandbox cannot enforce.
fn commands(importer: &mut Importer) {
    for list in ["command.deny", "command.allow"] {
        for command in importer.texts(list) {
            importer.note(format!("`{list}`: `{command}` is about a command line, which a copy of the program evades: left out"));
        }
    }
    importer.flag("command.useDefaults");
    if importer.take("ssh").is_some() {
        importer.note("`ssh` is about command lines on other hosts: left out");
    }
}

fn extends(importer: &mut Importer, peer: &str) {
    if let Some(name) = importer.take("extends") {
        importer.note(format!("`extends`: {name} is {peer}'s own; this profile extends `default`"));
    }
}

/// What all of them have, and what is for another system.
fn common(importer: &mut Importer) {
    for sockets in ["network.allowAllUnixSockets", "allowAllUnixSockets"] {
        if importer.flag(sockets) {
            importer.note(format!("`{sockets}`: the host's sockets are named one by one; add them to `sockets` under [network]"));
        }
    }
    importer.take("network.allowUnixSockets");
    if importer.flag("network.allowLocalOutbound") {
        importer.note("`network.allowLocalOutbound`: name the host's ports, as `localhost:PORT` in `allow` under [network]");
    }
    for other in [
        "macos",
        "windows",
        "allowPty",
        "forceNewSession",
        "enableWeakerNestedSandbox",
        "enableWeakerNetworkIsolation",
    ] {
        if importer.take(other).is_some() {
            importer.note(format!("`{other}` is not needed here: left out"));
        }
    }
    importer.flag("network.allowLocalBinding");
    for port in ["network.httpProxyPort", "network.socksProxyPort"] {
        if let Some(other) = importer.take(port).filter(|port| !port.is_number()) {
            importer.note(format!("`{port}` is {other}, not a number: left out"));
        }
    }
}
