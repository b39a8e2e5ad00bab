//! The host parser: one spelling each, and refusals where spellings could differ.

use proptest::prelude::*;
use ringfence_policy::host::{Host, HostRule};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn rule(text: &str) -> HostRule {
    HostRule::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn rules_have_one_spelling() {
    let cases = [
        ("Example.ORG.", "example.org"),
        ("example.org:80,443", "example.org"),
        ("example.org:443", "example.org:443"),
        ("*.Example.org:8000-8010", "*.example.org:8000-8010"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::FFFF:10.0.0.1]:22", "10.0.0.1:22"),
        ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("[2001:db8::/32]:*", "[2001:db8::/32]:*"),
        ("2001:db8::/32", "[2001:db8::/32]"),
        ("LOCALHOST:5432", "localhost:5432"),
        ("127.0.0.1:5432", "localhost:5432"),
        ("App.localhost:5432", "localhost:5432"),
        ("[::1]:5432", "localhost:5432"),
        ("127.0.0.1/32:80,443", "localhost:80,443"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("_dmarc.example.org", "_dmarc.example.org"),
        ("*:22", "*:22"),
    ];
    for (written, canonical) in cases {
        assert_eq!(rule(written).to_string(), canonical, "{written}");
        assert_eq!(rule(canonical), rule(written), "{written}");
    }
}

#[test]
fn what_is_ambiguous_is_refused() {
    let wrong = [
        "",
        " ",
        "a b",
        "a\0.example.org",
        "evil\0.google.com",
        "example.org ",
        "example..org",
        ".example.org",
        "example.org..",
        "-a.example",
        "a-.example",
        "https://example.org/x",
        "user@example.org",
        "example.org/path",
        "bücher.example",
        "example。org",
        "ｅxample.org",
        "ex%61mple.org",
        "exa*mple.org",
        "*.*.example",
        "a.*.example",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "0177.0.0.1",
        "1.2.3.4.5",
        "1.2.3.256",
        "1.2.3.04",
        "fe80::1%eth0",
        "[fe80::1%25eth0]",
        "[::1",
        "::1]",
        "[::1]x",
        "[example.org]",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:http",
        "example.org:+80",
        "example.org:80:80",
        "10.0.0.1/8",
        "localhost",
        "app.localhost",
        "*.localhost:80",
        "*.app.localhost:80",
        "127.0.0.1",
        "127.0.0.0/8",
        "127.0.0.2:80",
        "0.0.0.0:80",
        "0.0.0.0/32:80",
        "[::]:80",
        "[::ffff:0.0.0.0]:80",
        "[::/128]:80",
        "[::1]",
        "example.org\n",
        "a\u{7f}.example",
        "*.10.0.0.1",
        "10.0.0.0/8/8",
        "[2001:db8::]/32",
    ];
    for text in wrong {
        assert!(HostRule::parse(text).is_err(), "{text:?}");
    }
    let long = "a.".repeat(126) + "a";
    assert!(HostRule::parse(&long).is_ok());
    assert!(HostRule::parse(&(long + "b.c")).is_err());
    assert!(HostRule::parse(&"a".repeat(64)).is_err());
}

#[test]
fn slips_are_answered_with_what_would_be_right() {
    let cases = [
        ("https://example.org/x", "`example.org`"),
        ("localhost", "localhost:8080"),
        ("10.0.0.1/8", "10.0.0.0/8"),
        ("[2001:db8::]/32", "[2001:db8::/32]"),
        ("bücher.example", "xn--"),
    ];
    for (text, advice) in cases {
        let message = HostRule::parse(text).unwrap_err().to_string();
        assert!(message.contains(advice), "{message}");
    }
}

#[test]
fn names_match_exactly_and_wildcards_only_below() {
    assert!(rule("example.org").matches(&host("EXAMPLE.org."), 443));
    assert!(!rule("example.org").matches(&host("a.example.org"), 443));
    assert!(!rule("example.org").matches(&host("example.org"), 22));
    assert!(rule("*.example.org").matches(&host("a.b.example.org"), 80));
    assert!(!rule("*.example.org").matches(&host("example.org"), 80));
    assert!(!rule("*.example.org").matches(&host("badexample.org"), 80));
    assert!(!rule("*.example.org").matches(&host("example.org.evil.test"), 80));
}

#[test]
fn addresses_match_in_each_spelling_and_names_do_not_match_addresses() {
    assert!(rule("10.0.0.0/8").matches(&host("::ffff:10.1.2.3"), 80));
    assert!(!rule("10.0.0.0/8").matches(&host("11.0.0.1"), 80));
    assert!(!rule("*").matches(&host("10.0.0.1"), 80));
    assert!(!rule("*").matches(&host("::ffff:169.254.169.254"), 80));
    assert!(rule("*").matches(&host("1.1.1.1"), 80));
    assert!(!rule("*").matches(&host("localhost"), 80));
    assert!(HostRule::parse("*.1").is_err());
}

fn label() -> impl Strategy<Value = String> {
    "[a-z]([a-z0-9_-]{0,10}[a-z0-9])?"
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..5)
        .prop_map(|labels| labels.join("."))
        .prop_filter("not the loopback", |name| name != "localhost")
}

proptest! {
    #[test]
    fn a_name_is_read_whatever_its_case_and_dot(name in name(), upper in any::<bool>(), dot in any::<bool>(), port in 1u16..) {
        let mut written = if upper { name.to_uppercase() } else { name.clone() };
        if dot {
            written.push('.');
        }
        let rule = rule(&format!("{written}:{port}"));
        prop_assert!(rule.matches(&host(&name), port));
        prop_assert!(!rule.matches(&host(&name), port ^ 1));
        let below = host(&format!("x.{name}"));
        prop_assert!(!rule.matches(&below, port));
        prop_assert_eq!(HostRule::parse(&rule.to_string()).unwrap(), rule);
    }

    #[test]
    fn a_wildcard_matches_exactly_what_is_below(parent in name(), child in name()) {
        let rule = rule(&format!("*.{parent}"));
        let below = format!("{child}.{parent}");
        prop_assume!(below.len() <= 253);
        prop_assert!(rule.matches(&host(&below), 443));
        prop_assert!(!rule.matches(&host(&parent), 443));
        let glued = format!("{child}{parent}");
        prop_assume!(Host::parse(&glued).is_ok());
        let is_below = glued.ends_with(&format!(".{parent}"));
        prop_assert_eq!(rule.matches(&host(&glued), 443), is_below);
    }

    #[test]
    fn a_range_holds_an_address_exactly_when_the_prefix_is_the_same(bits in any::<u32>(), other in any::<u32>(), length in 0u32..=32) {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let base = Ipv4Addr::from_bits(bits & mask);
        prop_assume!(!(base.is_loopback() || base.is_unspecified() && length == 32));
        let rule = rule(&format!("{base}/{length}"));
        let address = Host::Address(IpAddr::V4(Ipv4Addr::from_bits(other)));
        prop_assert_eq!(rule.matches(&address, 80), other & mask == bits & mask);
        let mapped = Ipv4Addr::from_bits(other).to_ipv6_mapped();
        prop_assert_eq!(rule.matches(&host(&mapped.to_string()), 80), other & mask == bits & mask);
        prop_assert_eq!(HostRule::parse(&rule.to_string()).unwrap(), rule);
    }

    #[test]
    fn an_ipv6_address_is_read_with_and_without_brackets(bits in any::<u128>()) {
        let address = Ipv6Addr::from_bits(bits);
        prop_assert_eq!(host(&address.to_string()), host(&format!("[{address}]")));
    }

    #[test]
    fn whatever_is_read_is_written_so_that_it_is_read_again(text in "\\PC{0,40}|[a-z0-9.:*/\\[\\],-]{0,40}") {
        if let Ok(rule) = HostRule::parse(&text) {
            let written = rule.to_string();
            prop_assert_eq!(HostRule::parse(&written).unwrap(), rule.clone());
            let json = serde_json::to_string(&rule).unwrap();
            prop_assert_eq!(serde_json::from_str::<HostRule>(&json).unwrap(), rule);
        }
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()).unwrap(), host);
        }
    }
}
