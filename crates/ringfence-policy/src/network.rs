//! The network part of a policy.

use crate::decide::Subject;
use crate::error::{Planted, PolicyError};
use crate::files::{Real, Resolver, planted};
use crate::guard::plain;
use crate::host::HostRule;
use crate::http::SecretSource;
use crate::judge_path::{self, Act};
use crate::key::Key;
use crate::merge::{Entry, Merged};
use crate::path::{Bases, PathError, anchor};
use crate::policy::{
    Access, Guarded, Network, NetworkMode, NetworkRule, PathRule, Policy, Publish, Source,
    Transport,
};
use crate::resolve::{Context, choice, pick};
use crate::service::Elsewhere;
use crate::shown;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// Where features let runs write in the home's hidden directories, and programs could lie.
const CACHES: [&str; 2] = [".cache", ".conda/pkgs"];

pub(crate) fn resolve(
    merged: &Merged,
    context: &Context<'_>,
    bases: &Bases<'_>,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) -> Result<Network, PolicyError> {
    let mut network = Network {
        allow: hosts(merged, Key::AllowHost)?,
        deny: hosts(merged, Key::DenyHost)?,
        ..Network::default()
    };
    // Who names hosts, on the command line or in a profile, was told, or did not need to be.
    let named = |key| merged.of_key(key).any(|entry| !entry.is_shipped());
    // So was who chose a network to which no rule applies.
    let unruled = choice(merged, Key::Mode).is_some_and(|(word, _)| word != "filtered");
    let told = named(Key::AllowHost) || named(Key::Http) || unruled;
    // What the command is given counts, before what the caller has.
    let set = set(merged);
    let env = |name: &str| set.get(name).cloned().or_else(|| (context.env)(name));
    let mut variables = context.variables.clone();
    variables.extend(set.keys().filter(|name| !context.variables.contains(name)).cloned());
    let (home, cwd) = (context.home.clone(), context.cwd.clone());
    let inside = Context { home, cwd, env: &env, variables, ..*context };
    for entry in merged.of_key(Key::Registries) {
        let source = merged.source(entry);
        let (hosts, doubt) = registries(&source, policy, &inside)?;
        policy.warnings.extend(doubt.filter(|_| !told));
        if *entry.text == *"maven" && !hosts.is_empty() {
            policy.warnings.extend(unseen(policy));
        }
        let rules = hosts.into_iter().map(|host| NetworkRule { host, source: source.clone() });
        network.allow.extend(rules);
    }
    for entry in merged.of_key(Key::Publish) {
        let source = merged.source(entry);
        let (transport, (address, host_port, port)) =
            publish(&source.text).map_err(|reason| PolicyError::value(&source, reason))?;
        let new = Publish { transport, address, host_port, port, source };
        published(&mut network.publish, new)?;
    }
    for entry in merged.of_key(Key::Http) {
        let source = merged.source(entry);
        let rule = crate::http::rule(source)?;
        policy.warnings.extend(crate::http::unusual(&rule));
        network.http.push(rule);
    }
    for entry in merged.of_key(Key::Inject) {
        let source = merged.source(entry);
        let mut rule = crate::http::inject(source)?;
        if let Ok((_, SecretSource::File(path), _)) = crate::http::secret_parts(&rule.secret) {
            let denied = secret_file(path, &rule.source, bases, resolver, &policy.paths)?;
            rule.file = Some(denied.path.clone());
            policy.paths.push(denied);
        }
        network.inject.push(rule);
    }
    let mut elsewhere = Vec::new();
    for entry in merged.of_key(Key::Sockets) {
        let source = merged.source(entry);
        let Some(service) = crate::service::named(&entry.text, bases) else {
            let found = socket(entry, &source, bases, resolver, &policy.paths)?;
            if found.is_none() {
                let place = anchor(&entry.text, bases).ok().map(|anchored| anchored.path);
                policy.warnings.extend(no_agent(entry, &source, place.as_slice()));
            }
            network.sockets.extend(found);
            continue;
        };
        let service = service.map_err(|reason| PolicyError::value(&source, reason))?;
        let before = network.sockets.len();
        for path in &service.places {
            // The variable was not meant for rules: what it leads to is a socket or nothing.
            let real = resolver.real(path).map_err(|error| PolicyError::value(&source, error))?;
            if real.exists && resolver.files().socket(&real.path) {
                not_planted(&real, &source, &policy.paths)?;
                network.sockets.push(plain(
                    Access::Write,
                    real.path,
                    service.optional,
                    source.clone(),
                ));
            }
        }
        if network.sockets.len() == before {
            policy.warnings.extend(no_agent(entry, &source, &service.places));
        }
        if !service.optional && network.sockets.len() == before {
            let reason =
                "it leads to no socket of this machine; write `?` at the end if it may not";
            return Err(PolicyError::value(&source, reason));
        }
        elsewhere.extend(service.elsewhere.into_iter().map(|one| (source.clone(), one)));
    }
    network.mode = mode(merged, &network)?;
    network.chosen = choice(merged, Key::Mode).map(|(_, source)| source);
    policy.warnings.extend(idle(merged, &network)?);
    policy.warnings.extend(elsewhere.iter().filter_map(|one| unserved(one, &network)));
    Ok(network)
}

/// What to say where the hosts that Maven's settings name are allowed, and it does not see them: it asks its own then.
fn unseen(policy: &Policy) -> Option<String> {
    let path = policy.home_dir.join(".m2/settings.xml");
    let subject = Subject { path: path.clone(), real: None, missing: false };
    let shown = judge_path::file(policy, &subject, Act::Read).allowed;
    (!shown && !judge_path::denied(policy, &path)).then(|| {
        let grant = shown::option("-r", &path, false);
        let path = path.display();
        format!(
            "{path} names hosts, which are allowed, and is not shown, since it may hold passwords: Maven asks its own \
             instead; {grant} shows it"
        )
    })
}

/// What to say where a feature is for an agent alone, and no socket of one is there: what asks for it inside fails with
/// words that lead nowhere.
fn no_agent(entry: &Entry, source: &Source, places: &[PathBuf]) -> Option<String> {
    const AGENTS: [(&str, &str); 2] = [
        ("$SSH_AUTH_SOCK?", "eval \"$(ssh-agent)\", and ssh-add"),
        ("gpg:$GNUPGHOME?", "gpgconf --launch gpg-agent"),
    ];
    let own = entry.text.to_str().filter(|_| entry.is_shipped());
    let (_, start) = AGENTS.into_iter().find(|(text, _)| own == Some(*text))?;
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let (origin, places) = (&source.origin, places.join(" or "));
    Some(format!(
        "{origin} has no effect: no socket is at {places}; start the agent outside: {start}"
    ))
}

/// The variables that rules set (`-e NAME=VALUE`), as far as they are text: the others are refused later.
fn set(merged: &Merged) -> BTreeMap<String, OsString> {
    let entries = merged.of_key(Key::Set).filter_map(|entry| entry.text.to_str()?.split_once('='));
    entries.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// What to say about a service that is not behind a socket of this machine, unless a rule serves it.
fn unserved((source, elsewhere): &(Source, Elsewhere), network: &Network) -> Option<String> {
    if network.mode == NetworkMode::Host {
        return None;
    }
    let rule = &source.text;
    match elsewhere {
        Elsewhere::Host { named, host } => {
            let wanted = HostRule::parse(host).ok();
            let allowed = |rule: &NetworkRule| Some(&rule.host) == wanted.as_ref();
            if network.allow.iter().any(allowed) {
                return None;
            }
            let grant = shown::word(host);
            Some(format!("{rule}: `{named}` is no socket of this machine: -n {grant} allows it"))
        }
        Elsewhere::Unreachable { named, what } => Some(format!("{rule}: `{named}` is {what}")),
    }
}

/// The hosts of a tool's registries, and what to say where files that name some are not believed, or none does.
fn registries(
    source: &Source,
    policy: &Policy,
    context: &Context<'_>,
) -> Result<(Vec<HostRule>, Option<String>), PolicyError> {
    let tool = source.text.as_str();
    // Else a program of an earlier run would choose its own hosts.
    let doubted = RefCell::new(None);
    let believed = |file: &Path| {
        let is = !written(file, policy, context);
        if !is {
            doubted.borrow_mut().get_or_insert_with(|| file.to_owned());
        }
        is
    };
    let mut hosts = crate::registry::hosts(tool, context, &believed)
        .map_err(|reason| PolicyError::value(source, reason))?;
    let settings = doubted.take();
    if hosts.is_empty() {
        hosts = crate::registry::defaults(tool, context, &believed);
    }
    let doubt = match (settings, doubted.take()) {
        (Some(file), _) => Some(format!(
            "{tool}'s settings are in {}, which could be an earlier run's: allow the registry that they name with \
             --allow-host",
            file.display()
        )),
        (None, _) if !hosts.is_empty() => None,
        (None, file) => {
            let why = file.map_or_else(String::new, |file| {
                format!(", and {}, where its own is, could be an earlier run's", file.display())
            });
            Some(format!(
                "{tool}'s settings name no registry{why}: allow the one it uses with --allow-host"
            ))
        }
    };
    Ok((hosts, doubt))
}

/// Whether this run may write a file, or another one might have: one that was started in a directory above it. What the
/// system or root holds is out of reach, and so are the home's hidden directories, where managers of versions keep
/// tools, but for caches.
fn written(file: &Path, policy: &Policy, context: &Context<'_>) -> bool {
    let granted = |rule: &PathRule| rule.access == Access::Write && file.starts_with(&rule.path);
    if file.starts_with(&policy.workdir) || policy.paths.iter().any(granted) {
        return true;
    }
    let cached = CACHES.iter().any(|name| file.starts_with(policy.home_dir.join(name)));
    let workspace = |above: &Path| crate::workspace::no_workspace(above, policy).is_none();
    let reached = cached || file.ancestors().skip(1).any(workspace);
    reached && (context.uid == 0 || !context.files.fixed(file))
}

/// The mode that was asked for, else the least that the rules need.
fn mode(merged: &Merged, network: &Network) -> Result<NetworkMode, PolicyError> {
    if let Some((word, source)) = choice(merged, Key::Mode) {
        let known = [
            ("none", NetworkMode::None),
            ("filtered", NetworkMode::Filtered),
            ("host", NetworkMode::Host),
        ];
        return pick(&word, &source, &known);
    }
    // An empty list allows nothing, and so needs no network at all.
    let rules = !network.allow.is_empty() || !network.http.is_empty() || !network.inject.is_empty();
    Ok(if rules { NetworkMode::Filtered } else { NetworkMode::None })
}

/// Options of the command line that come to nothing with the mode that was chosen: chosen there too, one of the two is a
/// mistake. What profiles say may be overruled.
fn idle(merged: &Merged, network: &Network) -> Result<Option<String>, PolicyError> {
    let (Some(chosen), Some(mode)) = (&network.chosen, merged.single(Key::Mode)) else {
        return Ok(None);
    };
    let (keys, why): (&[Key], _) = match network.mode {
        NetworkMode::None => (&[Key::AllowHost, Key::Http, Key::Inject], "there is no network"),
        NetworkMode::Host => (
            &[Key::AllowHost, Key::DenyHost, Key::Http, Key::Inject, Key::Publish],
            "the host's network is used as it is",
        ),
        NetworkMode::Filtered => return Ok(None),
    };
    let idle = merged.entries.iter().find(|entry| entry.is_option() && keys.contains(&entry.key));
    let Some(idle) = idle.map(|entry| merged.source(entry)) else { return Ok(None) };
    if mode.is_option() {
        let reason = format!("{why} with --network {}; leave one of the two out", chosen.text);
        return Err(PolicyError::value(&idle, reason));
    }
    Ok(Some(format!(
        "{} {} has no effect: {why} ({}: {}); --network filtered changes that",
        idle.origin.trim_start_matches("option "),
        idle.text,
        chosen.text,
        chosen.origin,
    )))
}

fn hosts(merged: &Merged, key: Key) -> Result<Vec<NetworkRule>, PolicyError> {
    let mut rules: Vec<NetworkRule> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for entry in merged.of_key(key) {
        let source = merged.source(entry);
        let host =
            HostRule::parse(&source.text).map_err(|error| PolicyError::value(&source, error))?;
        if seen.insert(host.clone()) {
            rules.push(NetworkRule { host, source });
        }
    }
    Ok(rules)
}

/// Adds a published port. A socket inside has one of the host in its place: of two for it one would never be served.
fn published(all: &mut Vec<Publish>, new: Publish) -> Result<(), PolicyError> {
    let same = |one: &&Publish| {
        let families = one.address.is_ipv4() == new.address.is_ipv4();
        // Datagrams of both families come to the program by one socket.
        (one.transport, one.port) == (new.transport, new.port)
            && (families || new.transport == Transport::Udp)
    };
    let place = |one: &&Publish| {
        (one.transport, one.address, one.host_port) == (new.transport, new.address, new.host_port)
    };
    if let Some(one) = all.iter().find(place).filter(|one| one.port != new.port) {
        let reason = format!(
            "port {} of {} is published already, by `{}`",
            new.host_port, new.address, one.source.text
        );
        return Err(PolicyError::value(&new.source, reason));
    }
    match all.iter().find(same) {
        Some(one) if (one.address, one.host_port) == (new.address, new.host_port) => Ok(()),
        Some(one) => {
            let reason = format!(
                "port {} inside is published already, by `{}`; publish it once for each family (TCP) or port",
                new.port, one.source.text
            );
            Err(PolicyError::value(&new.source, reason))
        }
        None => {
            all.push(new);
            Ok(())
        }
    }
}

/// An address and a port on the host, and a port inside.
type Place = (IpAddr, u16, u16);

/// Reads `[ADDR:]PORT[:PORT][/tcp|/udp]` into what it is a port of, address and port on the host, and
/// port inside.
pub(crate) fn publish(text: &str) -> Result<(Transport, Place), String> {
    let wrong = || {
        format!(
            "`{text}` is no port to publish; write `PORT`, `PORT:PORT` or `ADDR:PORT:PORT`, with \
             `/udp` after it for datagrams"
        )
    };
    let (transport, place) = match text.split_once('/') {
        None => (Transport::Tcp, text),
        Some((place, "tcp")) => (Transport::Tcp, place),
        Some((place, "udp")) => (Transport::Udp, place),
        Some(_) => return Err(wrong()),
    };
    Ok((transport, place_of(place, &wrong)?))
}

fn place_of(text: &str, wrong: &dyn Fn() -> String) -> Result<Place, String> {
    let (address, ports) = if let Some(rest) = text.strip_prefix('[') {
        let (address, ports) = rest.split_once("]:").ok_or_else(wrong)?;
        (Some(address), ports)
    } else {
        match text.split_once(':') {
            Some((first, ports)) if first.contains('.') => (Some(first), ports),
            _ => (None, text),
        }
    };
    let address = match address {
        Some(address) => address.parse().map_err(|_| wrong())?,
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let (outside, inside) = ports.split_once(':').unwrap_or((ports, ports));
    Ok((address, crate::port::port(outside)?, crate::port::port(inside)?))
}

/// Refuses what a link in a writable tree leads out of it: the program could have left it there.
fn not_planted(real: &Real, source: &Source, paths: &[PathRule]) -> Result<(), PolicyError> {
    let writable = paths.iter().filter(|rule| rule.access == Access::Write);
    let trees: Vec<PathBuf> = writable.map(|rule| rule.path.clone()).collect();
    match planted(&real.links, &real.path, &trees) {
        Some((link, tree)) => Err(PolicyError::Planted(Box::new(Planted {
            rule: source.clone(),
            link: link.to_owned(),
            tree: tree.to_owned(),
            target: real.path.clone(),
        }))),
        None => Ok(()),
    }
}

/// A file that holds a secret is denied inside, whatever grants it.
fn secret_file(
    path: &str,
    source: &Source,
    bases: &Bases<'_>,
    resolver: &mut Resolver<'_>,
    paths: &[PathRule],
) -> Result<PathRule, PolicyError> {
    let anchored = match anchor(OsStr::new(path), bases) {
        Ok(anchored) => anchored,
        Err(PathError::Unset(name)) => {
            return Err(PolicyError::value(source, format!("{name} is not set")));
        }
        Err(PathError::Wrong(reason)) => return Err(PolicyError::value(source, reason)),
    };
    if anchored.pattern.is_some() {
        return Err(PolicyError::value(source, "a file is named, not matched by a pattern"));
    }
    let real = resolver.real(&anchored.path).map_err(|error| PolicyError::value(source, error))?;
    if !real.exists {
        let path = anchored.path.display();
        return Err(PolicyError::value(source, format!("{path} does not exist")));
    }
    // A link that the program could have left would choose which file is sent.
    not_planted(&real, source, paths)?;
    Ok(PathRule {
        link: false,
        access: Access::Deny,
        path: real.path,
        pattern: None,
        optional: false,
        guarded: Guarded::Plain,
        reason: Some("it holds a secret that is injected".to_owned()),
        source: source.clone(),
    })
}

fn socket(
    entry: &Entry,
    source: &Source,
    bases: &Bases<'_>,
    resolver: &mut Resolver<'_>,
    paths: &[PathRule],
) -> Result<Option<PathRule>, PolicyError> {
    let anchored = match anchor(&entry.text, bases) {
        Ok(anchored) => anchored,
        Err(PathError::Unset(_)) => return Ok(None),
        Err(PathError::Wrong(reason)) => return Err(PolicyError::value(source, reason)),
    };
    if anchored.pattern.is_some() {
        return Err(PolicyError::value(source, "a socket is named, not matched by a pattern"));
    }
    let real = resolver.real(&anchored.path).map_err(|error| PolicyError::value(source, error))?;
    not_planted(&real, source, paths)?;
    if let Some(reason) = crate::own::Hidden::of(bases.home, bases.env, resolver).why(&real.path) {
        return Err(PolicyError::value(source, reason));
    }
    if real.exists && !resolver.files().socket(&real.path) {
        // A container's engine makes a directory where it finds no socket to show.
        if anchored.optional && entry.is_shipped() {
            return Ok(None);
        }
        let reason =
            "it is no socket: name the socket itself; directories and files are shown by -r";
        return Err(PolicyError::value(source, reason));
    }
    match (real.exists, anchored.optional) {
        (false, true) => Ok(None),
        (false, false) => Err(PolicyError::Missing { rule: source.clone(), path: anchored.path }),
        (true, optional) => Ok(Some(plain(Access::Write, real.path, optional, source.clone()))),
    }
}
