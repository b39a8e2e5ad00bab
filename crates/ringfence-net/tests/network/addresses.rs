//! Which of a name's addresses is dialled.

use crate::world::{Sandbox, Server, web};
use ringfence_net::{Event, NetDecision};
use std::net::IpAddr;

/// All of them.
pub const ALL: &[(&str, fn())] = &[
    ("names_of_one_family_are_reached_by_the_other", names_of_one_family_are_reached_by_the_other),
    ("many_addresses_of_a_family_hide_no_other", many_addresses_of_a_family_hide_no_other),
    ("names_of_the_hosts_own_file_are_reached_by_address", by_address),
    ("the_proxy_reaches_them_by_address_too", by_address_through_the_proxy),
];

/// What was dialled for connections that were allowed, in order.
fn dialled(decisions: &[NetDecision]) -> Vec<IpAddr> {
    let allowed = decisions.iter().filter(|decision| decision.event == Event::Allowed);
    allowed.filter_map(|decision| decision.address).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

fn names_of_one_family_are_reached_by_the_other() {
    let script = r#"
        curl -sS -4 -m 5 http://six.test/ || exit 1
        curl -sS -6 -m 5 http://four.test/ || exit 2"#;
    let hosts = "2001:4860::5 six.test\n5.5.5.5 four.test\n";
    let sandbox = Sandbox::new(&["six.test", "four.test"], &[], hosts);
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web)]);
    let expected = "served at [2001:4860::5]:80\nserved at [::ffff:5.5.5.5]:80\n";
    assert_eq!((ran.code, ran.output.as_str()), (0, expected));
    assert_eq!(dialled(&ran.decisions), [ip("2001:4860::5"), ip("5.5.5.5")]);
}

/// Nobody is at the addresses of the one.
fn many_addresses_of_a_family_hide_no_other() {
    let four: String = (1..20).map(|last| format!("5.5.5.{last} many.test\n")).collect();
    let hosts = four + "::1 many.test\n";
    let sandbox = Sandbox::new(&["many.test:18765", "localhost:18765"], &[], &hosts);
    let script = "curl -sS -m 5 http://many.test:18765/";
    let ran = sandbox.run(script, vec![Server::new("[::1]:18765", web)]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "served at [::1]:18765\n"));
    assert_eq!(dialled(&ran.decisions), [ip("::1")]);
}

/// Programs read the host's file of names themselves, and connect to an address.
fn by_address() {
    let hosts =
        "5.5.5.5 other.test site.test\n5.5.5.6 gone.test site.test\n10.0.0.1 private.test\n";
    let allow = ["site.test", "private.test", "gone.test"];
    let sandbox = Sandbox::new(&allow, &["5.5.5.6", "gone.test:80"], hosts);
    let script = r#"
        at() { curl -s -m 5 --resolve "$1" "http://$2/"; }
        at site.test:80:5.5.5.5 site.test || exit 1
        reset 2 --resolve other.test:80:5.5.5.5 http://other.test/
        reset 3 --resolve private.test:80:10.0.0.1 http://private.test/
        reset 4 http://5.5.5.5/
        reset 5 --resolve gone.test:80:5.5.5.6 http://gone.test/
        exit 0"#;
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web)]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "served at [::ffff:5.5.5.5]:80\n"));
    let denied = |why: &str| {
        let found = |d: &NetDecision| matches!(&d.event, Event::Denied(text) if text.contains(why));
        assert!(ran.decisions.iter().any(found), "{why}");
    };
    denied("the client connected to site.test and then asked for other.test");
    denied("private.test leads to 10.0.0.1 by this host's /etc/hosts, which is no public address");
}

/// What a program that looks a name up itself would reach, one that leaves it to the proxy reaches too, and no more: of two
/// addresses the one that is granted.
fn by_address_through_the_proxy() {
    let hosts = "10.0.0.3 nas.lan\n9.9.9.9 nas.lan\n10.0.0.3 gone.lan\n10.0.0.4 other.lan\n";
    let sandbox = Sandbox::new(&["10.0.0.3"], &["gone.lan"], hosts);
    let script = r#"
        for proxy in http://127.0.0.1:1022 socks5h://127.0.0.1:1022; do
            curl -sS -m 5 -x $proxy http://nas.lan/ || exit 1
            curl -sS -m 5 -p -x $proxy http://nas.lan/ || exit 2
            curl -s -m 5 -p -x $proxy http://gone.lan/ && exit 3
            curl -s -m 5 -p -x $proxy http://other.lan/ && exit 4
            curl -s -m 5 -p -x $proxy http://nas.lan:81/ && exit 5
        done
        exit 0"#;
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web), Server::new("[::]:81", web)]);
    let expected = "served at [::ffff:10.0.0.3]:80\n".repeat(4);
    assert_eq!((ran.code, ran.output), (0, expected));
    assert_eq!(dialled(&ran.decisions), [ip("10.0.0.3"); 4]);
    let of_it = ran.decisions.iter().filter(|decision| decision.event == Event::Allowed);
    assert!(of_it.clone().all(|decision| decision.host.to_string() == "nas.lan"));
    let why = |d: &NetDecision| d.decision.as_ref().expect("decided").explanation.clone();
    assert!(of_it.clone().all(|d| why(d).contains("allowed by its address 10.0.0.3")));
}
