//! The one parser for hosts and ports: rules ([`HostRule`]) and requests ([`Host`]).
//!
//! What differs only in spelling is equal here (case, one trailing dot, IPv4 within IPv6), and
//! what could mean different things to different programs is refused: NUL, white space, octal,
//! hexadecimal and shortened IPv4, names that are not ASCII, zone identifiers.

use crate::address::{IpNet, canonical};
use crate::port::Ports;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The host of a request: a name or an address, in its one canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A DNS name: lower case, no trailing dot, ASCII.
    Name(String),
    /// An address; IPv4 within IPv6 is the IPv4 address.
    Address(IpAddr),
}

/// Which hosts a rule concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Every name, and every public address (`*`).
    Any,
    /// This name.
    Name(String),
    /// Every name below this one, not the name itself (`*.name`).
    Below(String),
    /// These addresses.
    Net(IpNet),
    /// The host's own loopback (`localhost:PORT`).
    Loopback,
}

/// A rule about hosts: which, and on which ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRule {
    /// Which hosts.
    pub target: Target,
    /// Which ports.
    pub ports: Ports,
}

/// Why a text is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no host: {reason}", .text.escape_debug())]
pub struct HostError {
    /// The text.
    pub text: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl Host {
    /// Reads a name, an IPv4 address, or an IPv6 address with or without brackets.
    ///
    /// # Errors
    /// [`HostError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Host, HostError> {
        read_host(text).map_err(|reason| HostError { text: text.to_owned(), reason })
    }

    /// Whether this is the host's own loopback: `localhost`, a loopback address, or the unspecified one, which
    /// `connect(2)` takes for it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Host::Name(name) => loopback_name(name),
            Host::Address(address) => crate::address::leads_here(*address),
        }
    }
}

impl HostRule {
    /// Reads `HOST[:PORTS]`: HOST as for [`Host::parse`], `*.name`, `*`, a CIDR or `localhost`;
    /// PORTS a port, a range `8000-8010`, a list `80,443`, or `*`. Without ports: 80 and 443.
    ///
    /// # Errors
    /// [`HostError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<HostRule, HostError> {
        read_rule(text).map_err(|reason| HostError { text: text.to_owned(), reason })
    }

    /// Whether the rule concerns a request to this host and port.
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        self.ports.contains(port) && self.matches_host(host)
    }

    /// Whether the rule, as one that allows, grants a request to this host and port. What is written for "all of IPv4" means no
    /// service of the host's own loopback: only `localhost:PORT` does.
    pub fn grants(&self, host: &Host, port: u16) -> bool {
        let here = matches!(self.target, Target::Net(_)) && host.is_loopback();
        !here && self.matches(host, port)
    }

    /// Whether the rule concerns a request to this host, on some port.
    pub fn matches_host(&self, host: &Host) -> bool {
        match (&self.target, host) {
            (Target::Any, Host::Name(_)) => !host.is_loopback(),
            (Target::Any, Host::Address(address)) => crate::address::is_public(*address),
            (Target::Name(rule), Host::Name(name)) => rule == name,
            (Target::Below(parent), Host::Name(name)) => {
                let above = name.strip_suffix(parent.as_str());
                above
                    .and_then(|above| above.strip_suffix('.'))
                    .is_some_and(|label| !label.is_empty())
            }
            (Target::Net(net), Host::Address(address)) => net.contains(*address),
            (Target::Loopback, _) => match host {
                Host::Name(name) => loopback_name(name),
                Host::Address(address) => crate::address::means_localhost(*address),
            },
            (Target::Name(_) | Target::Below(_), Host::Address(_)) => false,
            (Target::Net(_), Host::Name(_)) => false,
        }
    }
}

fn read_host(text: &str) -> Result<Host, String> {
    refuse_characters(text)?;
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or("a `[` needs its `]` at the end")?;
        return read_v6(inner).map(Host::Address);
    }
    if text.contains(':') {
        return match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Host::Address(canonical(IpAddr::V6(address)))),
            Err(_) if text.contains('%') => Err(zone()),
            Err(_) => Err("a port does not belong here".to_owned()),
        };
    }
    match read_v4(text)? {
        Some(address) => Ok(Host::Address(IpAddr::V4(address))),
        None => read_name(text).map(Host::Name),
    }
}

fn read_rule(text: &str) -> Result<HostRule, String> {
    refuse_characters(text)?;
    let (host, ports) = split_ports(text)?;
    let ports = ports.map(Ports::parse).transpose()?;
    let target = read_target(host, ports.is_some())?;
    Ok(HostRule { target, ports: ports.unwrap_or_default() })
}

fn read_target(host: &str, has_ports: bool) -> Result<Target, String> {
    if host == "*" {
        return Ok(Target::Any);
    }
    if let Some(parent) = host.strip_prefix("*.") {
        if read_v4(parent)?.is_some() {
            return Err("`*.` goes before a name; write a range of addresses as 10.0.0.0/8".into());
        }
        let parent = read_name(parent)?;
        if loopback_name(&parent) {
            return Err("for the host's own loopback write `localhost:PORT`".to_owned());
        }
        return Ok(Target::Below(parent));
    }
    if host.contains('*') {
        return Err("`*` stands for whole labels at the start only, as in `*.example.org`".into());
    }
    if host.contains('/') {
        let net = IpNet::parse(host.trim_start_matches('[').trim_end_matches(']'))?;
        if net.single().is_some_and(crate::address::is_localhost) {
            return loopback_target(has_ports);
        }
        let any = net.single().is_some_and(|address| address.is_unspecified());
        return match any || net.address().is_loopback() {
            true => Err("for the host's own loopback write `localhost:PORT`".to_owned()),
            false => Ok(Target::Net(net)),
        };
    }
    match read_host(host)? {
        Host::Name(name) if loopback_name(&name) => loopback_target(has_ports),
        Host::Name(name) => Ok(Target::Name(name)),
        Host::Address(address) if crate::address::is_localhost(address) => {
            loopback_target(has_ports)
        }
        Host::Address(address) if crate::address::leads_here(address) => {
            Err("for the host's own loopback write `localhost:PORT`".to_owned())
        }
        Host::Address(address) => Ok(Target::Net(IpNet::of(address))),
    }
}

/// Whether a name always stands for the loopback: `localhost`, and all below it (RFC 6761 §6.3).
fn loopback_name(name: &str) -> bool {
    name.strip_suffix("localhost").is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

fn loopback_target(has_ports: bool) -> Result<Target, String> {
    if has_ports {
        Ok(Target::Loopback)
    } else {
        Err("name the port of the host's own loopback, as in `localhost:8080`".to_owned())
    }
}

/// Takes `HOST[:PORTS]` apart. Of a text that is an IPv6 address as a whole, nothing is a port.
fn split_ports(text: &str) -> Result<(&str, Option<&str>), String> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or("a `[` needs its `]`")?;
        let (host, rest) = text.split_at(end + 1);
        // `[2001:db8::]/32` is a spelling of a range as well.
        if let Some(slash) = rest.strip_prefix('/') {
            let length = slash.split(':').next().unwrap_or(slash);
            return Err(format!(
                "write the range within the brackets: `[{}/{length}]`",
                &host[1..end]
            ));
        }
        return match rest.strip_prefix(':') {
            Some(ports) => Ok((host, Some(ports))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("after `]` comes nothing, or `:` and a port".to_owned()),
        };
    }
    match text.matches(':').count() {
        0 => Ok((text, None)),
        1 => Ok(text.split_once(':').map_or((text, None), |(host, ports)| (host, Some(ports)))),
        _ => Ok((text, None)),
    }
}

fn read_v6(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') {
        return Err(zone());
    }
    let address = text.parse::<Ipv6Addr>();
    address.map(|address| canonical(IpAddr::V6(address))).map_err(|_| "no IPv6 address".to_owned())
}

fn zone() -> String {
    "an address with a zone is not supported; write the address alone".to_owned()
}

/// Reads dotted IPv4. A text that *some* resolver would take for IPv4 (its last label is a
/// number) and that is not exactly that is an error, never a name.
fn read_v4(text: &str) -> Result<Option<Ipv4Addr>, String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let last = text.rsplit('.').next().unwrap_or(text);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let numeric = match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    };
    if !numeric {
        return Ok(None);
    }
    let address = text.parse::<Ipv4Addr>().map(Some);
    address.map_err(|_| "write an IPv4 address as four decimal numbers, as in 192.0.2.1".to_owned())
}

/// Reads a DNS name into lower case without its trailing dot.
fn read_name(text: &str) -> Result<String, String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > 253 {
        return Err("a name has at most 253 characters".to_owned());
    }
    for label in text.split('.') {
        if label.is_empty() {
            return Err("two dots follow each other, or one stands first".to_owned());
        }
        if label.len() > 63 {
            return Err("a label has at most 63 characters".to_owned());
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("a label neither starts nor ends with `-`".to_owned());
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if let Some(wrong) = label.bytes().find(|&byte| !allowed(byte)) {
            return Err(format!("`{}` does not occur in names", char::from(wrong)));
        }
    }
    Ok(text.to_ascii_lowercase())
}

/// What no spelling of a host may hold, with advice for the usual slips.
fn refuse_characters(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.contains('\0') {
        return Err("it holds a NUL".to_owned());
    }
    if text.chars().any(char::is_whitespace) {
        return Err("it holds white space".to_owned());
    }
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        return Err(format!("leave out the scheme and the path: `{host}`"));
    }
    if text.contains('@') {
        return Err("a user name does not belong here".to_owned());
    }
    if !text.is_ascii() {
        return Err("write a name that is not ASCII in its encoded form (`xn--…`)".to_owned());
    }
    match text.chars().find(|c| c.is_control()) {
        Some(_) => Err("it holds a control character".to_owned()),
        None => Ok(()),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for HostRule {
    /// The canonical text, which [`HostRule::parse`] reads back to the same rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Any => f.write_str("*")?,
            Target::Name(name) => f.write_str(name)?,
            Target::Below(parent) => write!(f, "*.{parent}")?,
            Target::Net(net) if net.address().is_ipv6() => write!(f, "[{net}]")?,
            Target::Net(net) => net.fmt(f)?,
            Target::Loopback => f.write_str("localhost")?,
        }
        if self.ports == Ports::default() && self.target != Target::Loopback {
            return Ok(());
        }
        write!(f, ":{}", self.ports)
    }
}

impl FromStr for Host {
    type Err = HostError;
    fn from_str(text: &str) -> Result<Host, HostError> {
        Host::parse(text)
    }
}

impl FromStr for HostRule {
    type Err = HostError;
    fn from_str(text: &str) -> Result<HostRule, HostError> {
        HostRule::parse(text)
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for HostRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Host, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for HostRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostRule, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
