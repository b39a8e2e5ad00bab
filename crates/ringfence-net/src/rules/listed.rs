//! Where this host's own file of names says that a name leads, and what that decides.

use super::{Astray, Leads, Own, address, asked, concerned, connect, denied};
use ringfence_policy::decide::Request;
use ringfence_policy::{Decision, Host, NetworkMode, Policy};
use std::net::IpAddr;

/// What is decided about a connection to a name, or a request of it, where this host's own file says that the name leads to
/// these addresses.
pub fn listed(policy: &Policy, decision: Decision, addresses: &[IpAddr], own: Own) -> Decision {
    let Some((Host::Name(name), port)) = asked(&decision) else { return decision };
    let filtered = policy.network.mode == NetworkMode::Filtered;
    if !filtered || Host::Name(name.clone()).is_loopback() {
        return decision;
    }
    if !decision.allowed {
        return by_address(policy, (&name, port), addresses, own).map_or(decision, |(_, by)| by);
    }
    let judged =
        addresses.iter().map(|&ip| address(policy, (&name, Leads::ByHosts), ip, port, own));
    match judged.reduce(|one, other| if one.is_ok() { one } else { other }) {
        Some(Err(Astray { why, remedy })) => Decision {
            allowed: false,
            rule: None,
            explanation: why,
            remedy,
            effect: None,
            ..decision
        },
        _ => decision,
    }
}

/// Which of these addresses is allowed, of a name that no rule allows: programs read the file themselves, and connect to an
/// address. What a rule says of the name holds at whatever address.
pub(crate) fn by_address(
    policy: &Policy,
    (name, port): (&str, u16),
    addresses: &[IpAddr],
    own: Own,
) -> Option<(IpAddr, Decision)> {
    let host = Host::Name(name.to_owned());
    if denied(policy, &host, port) || concerned(policy, &host, port) {
        return None;
    }
    addresses.iter().map(|address| address.to_canonical()).find_map(|address| {
        let at = Host::Address(address);
        // A request to an address that is looked at names that address.
        let by = connect(policy, &at, port, own);
        let explanation = format!(
            "{name} is allowed by its address {address}, which this host's /etc/hosts gives it"
        );
        let request = Request::Connect { host: host.clone(), port };
        let allowed = by.allowed && !concerned(policy, &at, port);
        allowed.then_some((address, Decision { request, explanation, remedy: None, ..by }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::policy;
    use ringfence_policy::decide;

    fn host(text: &str) -> Host {
        Host::parse(text).expect(text)
    }

    #[test]
    fn it_is_said_what_grants_where_the_hosts_own_file_leads() {
        let decided = |allow: &[&str], addresses: &[&str]| {
            let policy = policy(allow, &[]);
            let request = Request::Connect { host: host("nas.lan"), port: 80 };
            let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().expect(ip)).collect();
            listed(&policy, decide(&policy, &request), &addresses, |_| false)
        };
        for (address, remedy) in [
            ("192.168.1.5", Some("--allow-host 192.168.1.5:80")),
            ("fd00::5", Some("--allow-host '[fd00::5]:80'")),
            ("127.0.0.1", Some("--allow-host localhost:80")),
            ("::1", Some("--allow-host localhost:80")),
            ("127.0.1.1", None),
        ] {
            let refused = decided(&["nas.lan"], &[address]);
            assert!(!refused.allowed && refused.rule.is_none());
            assert!(refused.explanation.contains("by this host's /etc/hosts"), "{address}");
            assert_eq!(refused.remedy.as_deref(), remedy);
            let Some(grant) = remedy.and_then(|text| text.split(' ').next_back()) else { continue };
            let grant = grant.trim_matches('\'');
            assert!(decided(&["nas.lan", grant], &[address]).allowed, "{grant}");
        }
        assert!(decided(&["nas.lan"], &[]).allowed && decided(&["nas.lan"], &["9.9.9.9"]).allowed);
        assert!(decided(&["nas.lan"], &["10.0.0.1", "9.9.9.9"]).allowed);
    }

    #[test]
    fn a_name_of_the_hosts_own_file_is_allowed_by_its_address() {
        let decided = |allow: &[&str], deny: &[&str], addresses: &[&str]| {
            let policy = policy(allow, deny);
            let request = Request::Connect { host: host("nas.lan"), port: 80 };
            let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().expect(ip)).collect();
            listed(&policy, decide(&policy, &request), &addresses, |_| false)
        };
        for (grant, addresses) in [
            ("192.168.1.5", &["192.168.1.5"][..]),
            ("192.168.0.0/16", &["10.0.0.1", "::ffff:192.168.1.5"]),
            ("localhost:80", &["127.0.0.1"]),
        ] {
            let by = decided(&[grant], &[], addresses);
            assert!(by.allowed, "{grant}: {}", by.explanation);
            assert_eq!(by.rule.expect("a rule").text, grant);
            assert!(by.explanation.contains("/etc/hosts gives it"), "{}", by.explanation);
            let denied = decided(&[grant], &["nas.lan"], addresses);
            assert!(!denied.allowed, "{}", denied.explanation);
        }
        for (grant, addresses) in
            [("192.168.1.5", &[][..]), ("192.168.1.5", &["192.168.1.6"]), ("a.org", &["9.9.9.9"])]
        {
            assert!(!decided(&[grant], &[], addresses).allowed, "{grant}");
        }
    }
}
