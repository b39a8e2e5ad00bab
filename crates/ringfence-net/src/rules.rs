//! What the policy says about names and addresses on the wire. The rules themselves are
//! ringfence-policy's; this asks them in the right order.

mod listed;

pub(crate) use listed::by_address;
pub use listed::listed;

use crate::gateway::HERE;
use ringfence_policy::decide::Request;
use ringfence_policy::host::Target;
use ringfence_policy::http::Url;
use ringfence_policy::{Decision, Host, HostRule, NetworkMode, Policy, Source, decide, shown};
use ringfence_sys::route;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Whether an address is this host's own.
pub type Own = fn(IpAddr) -> bool;

/// Whether a connection may be made, before anything is resolved.
pub fn connect(policy: &Policy, host: &Host, port: u16, own: Own) -> Decision {
    elsewhere(policy, decide(policy, &Request::Connect { host: host.clone(), port }), own)
}

/// What is decided about a connection or a request, on this host. What listens at a public address of this host takes whoever
/// connects from here for one of its own, past any firewall: to such an address `*` does not lead.
pub fn elsewhere(policy: &Policy, decision: Decision, own: Own) -> Decision {
    let Some((host, port)) = asked(&decision) else { return decision };
    let Host::Address(address) = host else { return looked_at(policy, decision) };
    let filtered = decision.allowed && policy.network.mode == NetworkMode::Filtered;
    if !filtered || named(policy, &host, port) || !own(address) {
        return looked_at(policy, decision);
    }
    let place = SocketAddr::new(address, port);
    Decision {
        allowed: false,
        rule: None,
        explanation: format!("{place} is an address of this host itself, which no rule names"),
        remedy: Some(shown::allow_host(&place.to_string())),
        effect: None,
        ..decision
    }
}

/// Whether a host may be connected to on some port; without one its name need not exist.
pub fn some_port(policy: &Policy, host: &Host) -> bool {
    let network = &policy.network;
    let allow = network.allow.iter().map(|rule| &rule.host);
    let concerned = allow
        .chain(network.http.iter().map(|rule| &rule.host))
        .filter(|rule| rule.matches_host(host));
    // If any port of a range is allowed, then its first, or the first after a denied range.
    let starts: Vec<u16> = network
        .deny
        .iter()
        .filter(|rule| rule.host.matches_host(host))
        .flat_map(|rule| rule.host.ports.ranges())
        .filter_map(|&(_, last)| last.checked_add(1))
        .collect();
    concerned.flat_map(|rule| rule.ports.ranges()).any(|&(first, last)| {
        let after = starts.iter().copied().filter(|port| (first..=last).contains(port));
        std::iter::once(first)
            .chain(after)
            .any(|port| connect(policy, host, port, |_| false).allowed)
    })
}

/// Why an allowed name may not lead to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// A sentence.
    pub why: String,
    /// What to type, if it is right that it leads there.
    pub remedy: Option<String>,
}

impl std::fmt::Display for Astray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.remedy {
            Some(remedy) => write!(f, "{}; if that is right, grant it too: {remedy}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// Whether a name that was allowed may lead to this address, as `leads` tells how: always when it is public, else only
/// when a rule grants the address itself. Never when a rule denies it.
///
/// # Errors
/// Names the rule, or what to type.
pub fn address(
    policy: &Policy,
    (name, leads): (&str, Leads),
    address: IpAddr,
    port: u16,
    own: Own,
) -> Result<(), Astray> {
    let address = address.to_canonical();
    let host = Host::Address(address);
    let by = match leads {
        Leads::ByDns => "",
        Leads::ByHosts => " by this host's /etc/hosts",
    };
    if let Some(rule) = policy.network.deny.iter().find(|rule| rule.host.matches(&host, port)) {
        let text = &rule.source.text;
        let why = format!("{name} leads to {host}{by}, which is denied by `{text}`");
        return Err(Astray { why, remedy: None });
    }
    let grant = || {
        let localhost = format!("localhost:{port}");
        let place = match host.is_loopback() {
            true => localhost,
            false => SocketAddr::new(address, port).to_string(),
        };
        Some(shown::allow_host(&place))
    };
    // A rule about its requests is for who asks for it by its own.
    if policy.network.allow.iter().any(|rule| by_more(&rule.host, &host, port)) {
        return Ok(());
    }
    if address.is_unspecified() {
        let why = format!(
            "{name} leads to {host}{by}, which is this host's own loopback by another name"
        );
        return Err(Astray { why, remedy: grant() });
    }
    if address.is_loopback() && !HERE.contains(&address) {
        let why = format!(
            "{name} leads to {host}{by}, an address of this host's own loopback that no rule grants: only 127.0.0.1 \
             and ::1 are, by localhost:{port}"
        );
        return Err(Astray { why, remedy: None });
    }
    if !ringfence_policy::address::is_public(address) {
        let why = format!("{name} leads to {host}{by}, which is no public address");
        return Err(Astray { why, remedy: grant() });
    }
    if own(address) {
        let why = format!("{name} leads to {host}{by}, an address of this host itself");
        return Err(Astray { why, remedy: grant() });
    }
    Ok(())
}

/// How a name leads to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// A name server says so.
    ByDns,
    /// This host's own file says so.
    ByHosts,
}

/// Whether rules about requests or credentials name a host.
pub fn concerned(policy: &Policy, host: &Host, port: u16) -> bool {
    let network = &policy.network;
    let rules = network.http.iter().map(|rule| &rule.host);
    rules.chain(network.inject.iter().map(|rule| &rule.host)).any(|rule| rule.matches(host, port))
}

/// The header by which requests to a host get a credential.
pub fn injected<'a>(policy: &'a Policy, host: &Host, port: u16) -> Option<&'a str> {
    let mut rules = policy.network.inject.iter();
    rules.find(|rule| rule.host.matches(host, port)).map(|rule| rule.header.as_str())
}

/// Which host a decision is about, and which port.
pub fn asked(decision: &Decision) -> Option<(Host, u16)> {
    match &decision.request {
        Request::Connect { host, port } => Some((host.clone(), *port)),
        Request::Http { url, .. } => Url::parse(url).ok().map(|url| (url.host, url.port)),
        _ => None,
    }
}

/// Whether a rule allows this address, or requests to it, by more than `*`.
pub fn named(policy: &Policy, host: &Host, port: u16) -> bool {
    let network = &policy.network;
    let allow = network.allow.iter().map(|rule| &rule.host);
    let mut rules = allow.chain(network.http.iter().map(|rule| &rule.host));
    rules.any(|rule| by_more(rule, host, port))
}

fn by_more(rule: &HostRule, host: &Host, port: u16) -> bool {
    rule.target != Target::Any && rule.grants(host, port)
}

/// Whether an address is this host's own: the kernel keeps what is sent there, as it does for each address of an interface
/// and for whole networks that a route makes local.
pub fn own(address: IpAddr) -> bool {
    route::is_local(address) == Ok(true) || speaks_from(address)
}

/// Whether this host speaks to an address from that very one, wherever nobody tells of its routes: so it does to itself, but
/// by the second address of a network.
fn speaks_from(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Nothing is sent.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    from().is_ok_and(|from: SocketAddr| from.ip() == address)
}

/// Whether a rule denies this name. For names that only show on the wire (SNI), of connections
/// that were allowed by their address.
pub fn denied(policy: &Policy, host: &Host, port: u16) -> bool {
    policy.network.deny.iter().any(|rule| rule.host.matches(host, port))
}

/// Whether some rule may speak of a name that only shows on the wire, of a connection to this port that was allowed by
/// its address, and which. What else it is called by there leads to no other address.
pub fn by_what_is_said(policy: &Policy, port: u16) -> Option<&Source> {
    let network = &policy.network;
    let denied = network.deny.iter().map(|rule| (&rule.host, &rule.source));
    let looked_at = network.http.iter().map(|rule| (&rule.host, &rule.source));
    let injected = network.inject.iter().map(|rule| (&rule.host, &rule.source));
    let names = |rule: &HostRule| !matches!(rule.target, Target::Net(_));
    denied
        .chain(looked_at)
        .chain(injected)
        .find(|(rule, _)| names(rule) && rule.ports.contains(port))
        .map(|(_, source)| source)
}

/// A wildcard that allows this name, and a name whose requests are ruled, which it covers too: one server may serve both.
fn beside_a_ruled_one<'a>(
    policy: &'a Policy,
    host: &Host,
    port: u16,
) -> Option<(&'a Source, Host)> {
    let network = &policy.network;
    let names = |rule: &HostRule| match &rule.target {
        Target::Name(name) if rule.ports.contains(port) => Some(Host::Name(name.clone())),
        _ => None,
    };
    let ruled: Vec<Host> = network.http.iter().filter_map(|rule| names(&rule.host)).collect();
    let wide = |rule: &HostRule| matches!(rule.target, Target::Any | Target::Below(_));
    network.allow.iter().filter(|rule| wide(&rule.host) && rule.host.matches(host, port)).find_map(
        |rule| {
            let other = ruled.iter().find(|name| rule.host.matches(name, port))?;
            Some((&rule.source, other.clone()))
        },
    )
}

/// What a grant of an address comes to where rules about names cover its port; and one of a name beside which others are
/// ruled.
fn looked_at(policy: &Policy, decision: Decision) -> Decision {
    let Request::Connect { host, port } = &decision.request else { return decision };
    let by_address = matches!(host, Host::Address(_)) || host.is_loopback();
    if !decision.allowed || policy.network.mode != NetworkMode::Filtered {
        return decision;
    }
    if decision.effect.is_some() || concerned(policy, host, *port) {
        return decision;
    }
    if !by_address {
        let Some((rule, other)) = beside_a_ruled_one(policy, host, *port) else { return decision };
        let effect = format!(
            "`{}` covers {other} too, whose requests are ruled: in TLS to {host} they are not looked at, and a server of \
             both may serve them",
            rule.text
        );
        return Decision { effect: Some(effect), ..decision };
    }
    let Some(rule) = by_what_is_said(policy, *port) else { return decision };
    let effect = format!(
        "`{}` speaks of names at this port, so that TLS and HTTP are looked at for them, and HTTP/2 without TLS is \
         refused there",
        rule.text
    );
    Decision { effect: Some(effect), ..decision }
}

/// Whether every name is allowed on this port, none denied, and none looked at more closely: then
/// it does not matter which name a client hides (ECH).
pub fn every_name(policy: &Policy, port: u16) -> bool {
    let network = &policy.network;
    let any = |rule: &HostRule| rule.target == Target::Any && rule.ports.contains(port);
    network.allow.iter().any(|rule| any(&rule.host))
        && network.deny.is_empty()
        && network.http.is_empty()
        && network.inject.is_empty()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ringfence_policy::NetworkRule;

    pub(crate) fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let rules = |list: &[&str]| {
            let rule = |text: &&str| NetworkRule {
                host: HostRule::parse(text).expect(text),
                source: Source {
                    origin: "option --allow-host".to_owned(),
                    key: String::new(),
                    text: (*text).to_owned(),
                },
            };
            list.iter().map(rule).collect::<Vec<_>>()
        };
        let mut policy = Policy::default();
        policy.network.mode = NetworkMode::Filtered;
        policy.network.allow = rules(allow);
        policy.network.deny = rules(deny);
        policy
    }

    fn host(text: &str) -> Host {
        Host::parse(text).expect(text)
    }

    #[test]
    fn a_name_exists_when_some_port_of_it_is_allowed() {
        let policy = policy(
            &["a.org", "*.b.org:8000-9000", "10.0.0.0/8"],
            &["x.b.org:8000-8999", "y.b.org:*"],
        );
        for yes in ["a.org", "z.b.org", "x.b.org"] {
            assert!(some_port(&policy, &host(yes)), "{yes}");
        }
        for no in ["b.org", "c.org", "y.b.org", "localhost"] {
            assert!(!some_port(&policy, &host(no)), "{no}");
        }
    }

    #[test]
    fn a_name_leads_only_to_public_or_granted_addresses() {
        let policy = policy(&["a.org", "10.1.0.0/16:443", "localhost:8080"], &["1.2.3.0/24"]);
        let check = |ip: &str, port| {
            address(&policy, ("a.org", Leads::ByDns), ip.parse().expect(ip), port, |_| false)
        };
        for (yes, port) in [("8.8.8.8", 443), ("10.1.2.3", 443), ("127.0.0.1", 8080)] {
            assert_eq!(check(yes, port), Ok(()), "{yes}");
        }
        for (no, port) in [
            ("127.0.0.1", 443),
            ("10.1.2.3", 80),
            ("10.2.0.1", 443),
            ("169.254.169.254", 80),
            ("1.2.3.4", 443),
            ("::ffff:169.254.169.254", 80),
            ("fd00:ec2::254", 80),
            ("224.0.0.1", 443),
            ("100.64.0.1", 443),
            ("0.0.0.0", 443),
            ("::1", 443),
        ] {
            assert!(check(no, port).is_err(), "{no}");
        }
    }

    #[test]
    fn a_range_grants_no_loopback_of_the_host() {
        let ranges = ["*:6000", "0.0.0.0/0:6000", "126.0.0.0/7:6000", "[::/0]:6000"];
        let wide = policy(&ranges, &[]);
        let check = |policy: &Policy, ip: &str| {
            address(policy, ("a.org", Leads::ByDns), ip.parse().expect(ip), 6000, |_| false)
        };
        for here in
            ["127.0.0.1", "127.0.1.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0"]
        {
            let astray = check(&wide, here).expect_err(here);
            let remedy = astray.remedy.unwrap_or_default();
            assert!(remedy.is_empty() || remedy == "--allow-host localhost:6000", "{remedy}");
            assert!(!connect(&wide, &host(here), 6000, |_| false).allowed, "{here}");
        }
        // What is private otherwise is what such a range is for.
        for there in ["10.1.2.3", "fd00::1"] {
            assert_eq!(check(&wide, there), Ok(()), "{there}");
            assert!(connect(&wide, &host(there), 6000, |_| false).allowed, "{there}");
        }
        let named = policy(&["*:6000", "localhost:6000"], &[]);
        assert_eq!(check(&named, "127.0.0.1"), Ok(()));
        assert!(connect(&named, &host("127.0.0.1"), 6000, |_| false).allowed);
        // A rule that denies is about all that it holds.
        let denied = policy(&["localhost:6000"], &["0.0.0.0/0:6000"]);
        assert!(check(&denied, "127.0.0.1").is_err());
        assert!(!connect(&denied, &host("127.0.0.1"), 6000, |_| false).allowed);
    }

    #[test]
    fn an_address_of_the_host_itself_is_known_as_such() {
        for (address, ours) in [("127.0.0.1", true), ("127.9.9.9", true), ("192.0.2.213", false)] {
            assert_eq!(own(address.parse().expect(address)), ours, "{address}");
        }
        let policy = policy(&["a.org", "*", "8.8.8.0/24"], &[]);
        let check = |ip: &str| {
            address(&policy, ("a.org", Leads::ByDns), ip.parse().expect(ip), 443, |_| true)
        };
        assert!(check("9.9.9.9").expect_err("own").why.contains("this host itself"));
        assert_eq!(check("8.8.8.8"), Ok(()));
        let decision = connect(&policy, &host("9.9.9.9"), 443, |_| true);
        assert!(!decision.allowed && decision.rule.is_none());
        assert_eq!(decision.remedy.as_deref(), Some("--allow-host 9.9.9.9:443"));
        assert!(connect(&policy, &host("9.9.9.9"), 443, |_| false).allowed);
        assert!(connect(&policy, &host("8.8.8.8"), 443, |_| true).allowed);
    }

    #[test]
    fn a_star_does_not_grant_what_is_private() {
        let policy = policy(&["*"], &[]);
        assert!(
            address(
                &policy,
                ("a.org", Leads::ByDns),
                "192.168.0.1".parse().expect("ip"),
                443,
                |_| false
            )
            .is_err()
        );
        assert!(!connect(&policy, &host("192.168.0.1"), 443, own).allowed);
        assert!(!connect(&policy, &host("169.254.169.254"), 80, own).allowed);
        assert!(every_name(&policy, 443) && !every_name(&policy, 8443));
    }

    #[test]
    fn a_name_beside_a_ruled_one_is_said_to_be_so() {
        let mut policy = policy(&["*.a.org", "b.org"], &[]);
        let effect = |policy: &Policy, name: &str| connect(policy, &host(name), 443, own).effect;
        assert_eq!(effect(&policy, "x.a.org"), None);
        policy.network.http.push(ringfence_policy::HttpRule {
            methods: vec!["GET".to_owned()],
            host: HostRule::parse("api.a.org").expect("a host"),
            path: "/*".to_owned(),
            source: Source { origin: String::new(), key: String::new(), text: String::new() },
        });
        let said = effect(&policy, "x.a.org").expect("an effect");
        assert!(said.starts_with("`*.a.org` covers api.a.org too"), "{said}");
        for name in ["b.org", "api.a.org", "c.org"] {
            assert_eq!(effect(&policy, name), None, "{name}");
        }
    }

    #[test]
    fn a_request_to_this_host_itself_is_decided_as_the_connection_is() {
        let decided = |allow: &[&str], request: &Request| {
            let policy = policy(allow, &[]);
            elsewhere(&policy, decide(&policy, request), |_| true).allowed
        };
        let connect = Request::Connect { host: host("192.0.2.2"), port: 80 };
        let url = "http://192.0.2.2/path".to_owned();
        let http = Request::Http { method: "GET".to_owned(), url };
        for request in [connect, http] {
            assert!(!decided(&["*"], &request), "{request:?}");
            assert!(decided(&["192.0.2.2"], &request), "{request:?}");
        }
    }
}
