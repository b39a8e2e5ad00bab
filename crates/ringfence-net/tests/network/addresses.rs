//! Which of a name's addresses is dialled.

use crate::world::{Sandbox, Server, web};
use ringfence_net::{Event, NetDecision};
use std::net::IpAddr;

/// All of them.
pub const ALL: &[(&str, fn())] = &[
    ("names_of_one_family_are_reached_by_the_other", names_of_one_family_are_reached_by_the_other),
    ("many_addresses_of_a_family_hide_no_other", many_addresses_of_a_family_hide_no_other),
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
