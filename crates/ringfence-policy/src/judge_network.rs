//! Decisions about connections and requests.

use crate::address::means_localhost;
use crate::decide::Verdict;
use crate::host::{Host, Target};
use crate::http::{self, Url};
use crate::policy::{Network, NetworkMode, Policy};
use crate::shown;

pub(crate) fn connect(policy: &Policy, host: &Host, port: u16) -> Verdict {
    let network = &policy.network;
    let place = destination(host, port);
    match network.mode {
        NetworkMode::Host => {
            let verdict = Verdict::new(true, "network", "the host's network is used unfiltered");
            let rules = !network.allow.is_empty() || !network.deny.is_empty();
            if rules { verdict.effect("rules about hosts have no effect") } else { verdict }
        }
        NetworkMode::None => {
            let verdict = Verdict::new(
                false,
                "network",
                format!("there is no network, so not {place} either"),
            );
            let Some(chosen) = &network.chosen else {
                return verdict.remedy(shown::allow_host(&place));
            };
            let ruled = ruled(network, host, port);
            let filtered = "--network filtered";
            let remedy = match ruled.remedy.filter(|_| !ruled.allowed) {
                Some(option) if option.starts_with("--") => format!("{filtered} {option}"),
                Some(remedy) => format!("{filtered}, and {remedy}"),
                None => filtered.to_owned(),
            };
            verdict.rule(chosen).remedy(remedy)
        }
        NetworkMode::Filtered => ruled(network, host, port),
    }
}

/// What the rules say.
fn ruled(network: &Network, host: &Host, port: u16) -> Verdict {
    let grant = || shown::allow_host(&destination(host, port));
    let place = destination(host, port);
    if let Some(rule) = network.deny.iter().find(|rule| rule.host.matches(host, port)) {
        let verdict =
            Verdict::new(false, "network", format!("{place} is denied")).rule(&rule.source);
        return verdict.remedy(format!(
            "leave out the rule `{}` of {}",
            rule.source.text, rule.source.origin
        ));
    }
    if let Some(rule) = network.allow.iter().find(|rule| rule.host.grants(host, port)) {
        let verdict = Verdict::new(true, "network", format!("{place} is allowed"));
        return answered(verdict.rule(&rule.source), port);
    }
    if let Some(rule) = network.http.iter().find(|rule| rule.host.grants(host, port)) {
        let explanation = format!("{place} is allowed for the requests that rules name");
        return answered(Verdict::new(true, "http", explanation).rule(&rule.source), port);
    }
    if host.is_loopback() {
        return not_here(network, host, port);
    }
    let near = network.allow.iter().find(|rule| rule.host.matches_host(host));
    let explanation = match near {
        Some(rule) => format!(
            "no rule allows {place}: `{}` ({}) is for ports {}",
            rule.source.text, rule.source.origin, rule.host.ports
        ),
        None => format!("no rule allows {place}"),
    };
    // A rule for other ports does not decide.
    Verdict::new(false, "network", explanation).remedy(grant())
}

/// Why the host's own loopback is not reached.
fn not_here(network: &Network, host: &Host, port: u16) -> Verdict {
    let own = format!("{} is the sandbox's own loopback", destination(host, port));
    let denied = |why| Verdict::new(false, "network", format!("{own}{why}"));
    let verdict = match host {
        Host::Address(address) if !means_localhost(*address) => {
            denied(", and of the host's only 127.0.0.1 and ::1 are granted, when a session starts")
        }
        _ => denied("; the host's is reached only where that is granted when a session starts"),
    };
    let localhost = Host::Name("localhost".to_owned());
    match network.allow.iter().any(|rule| rule.host.grants(&localhost, port)) {
        // Another address of it would be no other with that.
        true => verdict,
        false => verdict.remedy(format!("--allow-host localhost:{port}")),
    }
}

/// What is said to any address at the port of DNS comes to the filter itself.
fn answered(verdict: Verdict, port: u16) -> Verdict {
    match port {
        53 => verdict.effect(
            "ringfence answers at port 53 itself, whatever the address; only by the proxy inside \
             (127.0.0.1:1022) is the server reached",
        ),
        _ => verdict,
    }
}

pub(crate) fn http(policy: &Policy, method: &str, url: &str) -> Verdict {
    over(policy, None, method, url)
}

/// The same over a connection of which `connection` was said already.
pub(crate) fn over(
    policy: &Policy,
    connection: Option<Verdict>,
    method: &str,
    url: &str,
) -> Verdict {
    let url = match Url::parse(url) {
        Ok(url) => url,
        Err(reason) => {
            return Verdict::new(false, "http", format!("`{url}` cannot be judged: {reason}"));
        }
    };
    let connect = connection.unwrap_or_else(|| connect(policy, &url.host, url.port));
    if !connect.allowed || policy.network.mode == NetworkMode::Host {
        return connect;
    }
    let rules: Vec<_> =
        policy.network.http.iter().filter(|rule| rule.host.matches(&url.host, url.port)).collect();
    let inject = &policy.network.inject;
    let looked_at = inject.iter().any(|rule| rule.host.matches(&url.host, url.port));
    if !http::token(method) {
        return Verdict::new(false, "http", format!("`{method}` is no method of HTTP"));
    }
    if http::never(method) && (looked_at || !rules.is_empty()) {
        let why = format!("{method} has no place in an inspected connection");
        return Verdict::new(false, "http", why);
    }
    if method.eq_ignore_ascii_case("CONNECT")
        && !url.secure
        && matches!(url.host, Host::Name(_))
        && !url.host.is_loopback()
    {
        let why = "a CONNECT is for a proxy, behind which any host could be meant";
        return Verdict::new(false, "http", why);
    }
    if rules.is_empty() {
        return connect;
    }
    let place = destination(&url.host, url.port);
    // Rules name methods in capitals; servers tell `get` from `GET` (RFC 9110 §9.1).
    let capitals = method.to_ascii_uppercase();
    if capitals != method
        && !rules.iter().any(|rule| http::matches(rule, method, url.path.as_deref()))
    {
        let explanation = format!(
            "methods are case-sensitive, and rules name them in capitals: `{method}` is another method than {capitals}"
        );
        return Verdict::new(false, "http", explanation).rule(&rules[0].source);
    }
    let Some(path) = url.path.as_deref() else {
        return match rules.iter().find(|rule| http::matches(rule, method, None)) {
            Some(rule) => {
                let explanation = format!("{method} of anything at {place} is allowed");
                Verdict::new(true, "http", explanation).rule(&rule.source)
            }
            None => {
                let explanation = format!(
                    "servers read this path differently, so that no rule for a part of {place} \
                     allows {method} of it"
                );
                let verdict = Verdict::new(false, "http", explanation).rule(&rules[0].source);
                Verdict { remedy: http::grant(method, &place, "/*"), ..verdict }
            }
        };
    };
    let request = format!("{method} {place}{path}");
    match rules.iter().find(|rule| http::matches(rule, method, Some(path))) {
        Some(rule) => {
            Verdict::new(true, "http", format!("{request} is allowed")).rule(&rule.source)
        }
        None => {
            let explanation = format!("rules for this host allow other requests, not {request}");
            let verdict = Verdict::new(false, "http", explanation).rule(&rules[0].source);
            // In a rule a `*` stands for more than itself.
            let grant = (!path.contains('*')).then(|| http::grant(method, &place, path));
            Verdict { remedy: grant.flatten(), ..verdict }
        }
    }
}

/// A host and port as an option takes them.
fn destination(host: &Host, port: u16) -> String {
    let text = format!("{host}:{port}");
    match crate::host::HostRule::parse(&text) {
        Ok(rule) if rule.target != Target::Loopback && (port == 80 || port == 443) => {
            host.to_string()
        }
        _ => text,
    }
}
