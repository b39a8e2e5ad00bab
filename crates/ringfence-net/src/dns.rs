//! DNS messages (RFC 1035): one question in, our own answer out. Nothing is asked of anyone.
//!
//! An allowed name has a synthetic address of each family and no other records: `HTTPS` and
//! `SVCB` answers are empty, so that no client learns an ECH key or an address hint. Every other
//! name does not exist (`NXDOMAIN`, which programs take as final; `REFUSED` they would retry).

use crate::names::{Names, address4, address6};
use ringfence_policy::Host;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// Bytes of the header.
const HEADER: usize = 12;
/// Seconds that an answer stays true; so long at least the name keeps its address, mostly for the whole session.
pub(crate) const TTL: u32 = 300;

const TYPE_A: u16 = 1;
const TYPE_PTR: u16 = 12;
const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
/// Of it the lower four bits stand in the header (RFC 6891 §6.1.3).
const BAD_VERSION: u8 = 16;

/// What a type of record is called (RFC 3597 §5 for those without a name of their own).
pub fn record_name(kind: u16) -> Cow<'static, str> {
    let name = match kind {
        TYPE_A => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        TYPE_PTR => "PTR",
        15 => "MX",
        16 => "TXT",
        TYPE_AAAA => "AAAA",
        33 => "SRV",
        64 => "SVCB",
        65 => "HTTPS",
        255 => "ANY",
        257 => "CAA",
        _ => return format!("TYPE{kind}").into(),
    };
    name.into()
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name as text; labels with bytes that no host name holds keep them escaped, so that
    /// they cannot be taken for another name.
    pub name: String,
    /// The type of record.
    pub kind: u16,
    class: u16,
    /// Where the question ends.
    end: usize,
}

/// What was asked for and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A name, the type of record, and whether it was allowed.
    Name(Host, u16, bool),
    /// An allowed name for which there is no address left, and the type of record.
    TooMany(Host, u16),
    /// Something that is no host name, and the type of record.
    Odd(String, u16),
    /// Nothing that can be understood, or what an address is called.
    Nothing,
}

/// Reads the one question of a query.
///
/// # Errors
/// The response code, or nothing where even an answer is out of place.
pub fn question(query: &[u8]) -> Result<Question, Option<u8>> {
    let word = |at: usize| -> Result<u16, Option<u8>> {
        let two = query.get(at..at + 2).ok_or(Some(FORMAT_ERROR))?;
        Ok(u16::from_be_bytes([two[0], two[1]]))
    };
    if query.len() < HEADER || query[2] & 0x80 != 0 {
        return Err(None);
    }
    if query[2] & 0x78 != 0 {
        return Err(Some(NOT_IMPLEMENTED));
    }
    if word(4)? != 1 || word(6)? != 0 || word(8)? != 0 {
        return Err(Some(FORMAT_ERROR));
    }
    let mut name = String::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at).ok_or(Some(FORMAT_ERROR))?);
        at += 1;
        if length == 0 {
            break;
        }
        // A pointer has nowhere to point to in the first name of a message.
        if length > 63 || at + length - HEADER > 254 {
            return Err(Some(FORMAT_ERROR));
        }
        let label = query.get(at..at + length).ok_or(Some(FORMAT_ERROR))?;
        if !name.is_empty() {
            name.push('.');
        }
        for &byte in label {
            match byte {
                b'-' | b'_' => name.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
                // No host name holds `\`, so this name will be allowed by no rule.
                _ => name.push_str(&format!("\\{byte:03}")),
            }
        }
        at += length;
    }
    if name.is_empty() {
        // The root, which no rule names.
        name.push('.');
    }
    let (kind, class) = (word(at)?, word(at + 2)?);
    Ok(Question { name, kind, class, end: at + 4 })
}

/// Answers a query. `allowed` says whether a host may be connected to, on some port.
///
/// Returns no bytes for what deserves none (no query at all).
pub fn answer(
    query: &[u8],
    names: &mut Names,
    ipv6: bool,
    allowed: &mut dyn FnMut(&Host) -> bool,
) -> (Vec<u8>, Asked) {
    let question = match question(query) {
        Ok(question) => question,
        Err(None) => return (Vec::new(), Asked::Nothing),
        Err(Some(code)) => return (reply(query, None, code, &[]), Asked::Nothing),
    };
    // An address has no addresses.
    let parsed = Host::parse(&question.name).ok();
    let Some(host @ Host::Name(name)) = &parsed else {
        let bytes = reply(query, Some(&question), NO_SUCH_NAME, &[]);
        return (bytes, Asked::Odd(question.name, question.kind));
    };
    if version(query, question.end).is_some_and(|version| version != 0) {
        return (reply(query, Some(&question), BAD_VERSION, &[]), Asked::Nothing);
    }
    if question.class != CLASS_IN {
        return (reply(query, Some(&question), NOT_IMPLEMENTED, &[]), Asked::Nothing);
    }
    if question.kind == TYPE_PTR {
        let known = reverse(name).and_then(|address| names.name(address).cloned());
        let record = known.map(|name| encode(&name));
        // A name that exists has no such record: that is another answer than that it does not (RFC 8020).
        let forward = reverse(name).is_none();
        let exists =
            record.is_some() || forward && (local(name) || names.knows(name) || allowed(host));
        let code = if exists { 0 } else { NO_SUCH_NAME };
        let bytes = reply(query, Some(&question), code, record.as_deref().unwrap_or(&[]));
        return (bytes, Asked::Nothing);
    }
    if local(name) {
        // RFC 6761: always the loopback, the sandbox's own.
        let record: Vec<u8> = match question.kind {
            TYPE_A => Ipv4Addr::LOCALHOST.octets().into(),
            TYPE_AAAA if ipv6 => Ipv6Addr::LOCALHOST.octets().into(),
            _ => Vec::new(),
        };
        return (
            reply(query, Some(&question), 0, &record),
            Asked::Name(host.clone(), question.kind, true),
        );
    }
    if !names.knows(name) && !allowed(host) {
        return (
            reply(query, Some(&question), NO_SUCH_NAME, &[]),
            Asked::Name(host.clone(), question.kind, false),
        );
    }
    let Some(index) = names.index(name, Instant::now()) else {
        return (
            reply(query, Some(&question), SERVER_FAILURE, &[]),
            Asked::TooMany(host.clone(), question.kind),
        );
    };
    let record: Vec<u8> = match question.kind {
        TYPE_A => address4(index).octets().into(),
        TYPE_AAAA if ipv6 => address6(index).octets().into(),
        _ => Vec::new(),
    };
    (reply(query, Some(&question), 0, &record), Asked::Name(host.clone(), question.kind, true))
}

/// Whether a name is the loopback's (RFC 6761).
fn local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Builds the answer: with the question where there is one, and a record unless it is empty.
fn reply(query: &[u8], question: Option<&Question>, code: u8, record: &[u8]) -> Vec<u8> {
    let end = question.map_or(HEADER, |question| question.end.min(query.len()));
    let mut out = Vec::with_capacity(end + 32 + record.len());
    out.extend_from_slice(&query[..2]);
    // A response, authoritative, with the query's wish for recursion, and recursion available.
    out.extend_from_slice(&[0x84 | (query[2] & 1), 0x80 | code & 0xf]);
    let asks_extended = question.is_some() && extended(query, end);
    let counts =
        [u16::from(question.is_some()), u16::from(!record.is_empty()), 0, u16::from(asks_extended)];
    for count in counts {
        out.extend_from_slice(&count.to_be_bytes());
    }
    out.extend_from_slice(&query[HEADER..end]);
    if let Some(question) = question.filter(|_| !record.is_empty()) {
        out.extend_from_slice(&[0xC0, HEADER as u8]);
        out.extend_from_slice(&question.kind.to_be_bytes());
        out.extend_from_slice(&CLASS_IN.to_be_bytes());
        out.extend_from_slice(&TTL.to_be_bytes());
        out.extend_from_slice(&(record.len() as u16).to_be_bytes());
        out.extend_from_slice(record);
    }
    if asks_extended {
        // RFC 6891: root, OPT, 1232 bytes of UDP, the rest of the code, version 0, no options.
        out.extend_from_slice(&[0, 0, TYPE_OPT as u8, 4, 208, code >> 4, 0, 0, 0, 0, 0]);
    }
    out
}

/// Whether the first record after the question is an EDNS one.
fn extended(query: &[u8], end: usize) -> bool {
    query.get(10..12).is_some_and(|count| count != [0, 0])
        && query.get(end..end + 3) == Some(&[0, 0, TYPE_OPT as u8])
}

/// The version of EDNS that a query is of.
fn version(query: &[u8], end: usize) -> Option<u8> {
    extended(query, end).then(|| query.get(end + 6).copied()).flatten()
}

/// The address that a name under `in-addr.arpa` or `ip6.arpa` stands for.
fn reverse(name: &str) -> Option<IpAddr> {
    if let Some(digits) = name.strip_suffix(".in-addr.arpa") {
        let mut parts: Vec<&str> = digits.split('.').collect();
        parts.reverse();
        return parts.join(".").parse().ok().map(IpAddr::V4);
    }
    let digits = name.strip_suffix(".ip6.arpa")?;
    let mut bits = 0u128;
    let nibbles: Vec<&str> = digits.split('.').collect();
    if nibbles.len() != 32 {
        return None;
    }
    for nibble in nibbles.iter().rev() {
        bits = bits << 4 | u128::from_str_radix(nibble, 16).ok().filter(|&n| n < 16)?;
    }
    Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

/// A name as a message holds it.
pub(crate) fn encode(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        out.extend(encode(name));
        out.extend(kind.to_be_bytes());
        out.extend(CLASS_IN.to_be_bytes());
        out
    }

    fn ask(query: &[u8], names: &mut Names) -> (Vec<u8>, Asked) {
        answer(query, names, true, &mut |host| *host == Host::Name("example.org".to_owned()))
    }

    fn code(answer: &[u8]) -> u8 {
        answer[3] & 15
    }

    #[test]
    fn an_allowed_name_has_an_address_of_each_family_and_nothing_else() {
        let mut names = Names::default();
        let (four, asked) = ask(&query("Example.ORG", TYPE_A), &mut names);
        assert_eq!(asked, Asked::Name(Host::Name("example.org".to_owned()), TYPE_A, true));
        assert_eq!((code(&four), &four[four.len() - 4..]), (0, &address4(0).octets()[..]));
        assert_eq!(four[..2], [0x12, 0x34]);
        let (six, _) = ask(&query("example.org", TYPE_AAAA), &mut names);
        assert_eq!(six[six.len() - 16..], address6(0).octets());
        for other in [65, 64, 15, 16, 5, 255] {
            let (empty, _) = ask(&query("example.org", other), &mut names);
            assert_eq!((code(&empty), empty[7]), (0, 0), "type {other}");
        }
    }

    #[test]
    fn every_other_name_does_not_exist_and_leaves_no_trace() {
        let mut names = Names::default();
        let tunnel = format!("{}.example.com", "a".repeat(63));
        for name in ["example.com", "a.example.org", &tunnel, "example.org.evil"] {
            let (bytes, asked) = ask(&query(name, TYPE_A), &mut names);
            assert_eq!(code(&bytes), NO_SUCH_NAME, "{name}");
            assert!(matches!(asked, Asked::Name(_, _, false)), "{name}");
            assert!(!names.knows(name));
        }
    }

    #[test]
    fn odd_bytes_in_labels_make_no_other_name() {
        let mut names = Names::default();
        for label in [&b"example.org"[..], b"example\0.org", b"exam ple", b"\xff", b"a\\b", b"127"]
        {
            let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, label.len() as u8];
            query.extend_from_slice(label);
            query.extend_from_slice(&[0, 0, 1, 0, 1]);
            let (bytes, asked) = ask(&query, &mut names);
            assert_eq!(code(&bytes), NO_SUCH_NAME, "{label:?}");
            assert!(matches!(asked, Asked::Odd(_, TYPE_A)), "{label:?}");
        }
    }

    #[test]
    fn reverse_lookups_know_what_was_given_out() {
        let mut names = Names::default();
        ask(&query("example.org", TYPE_A), &mut names);
        let (bytes, _) = ask(&query("1.0.18.198.in-addr.arpa", TYPE_PTR), &mut names);
        assert!(bytes.ends_with(&encode("example.org")));
        let nibbles: Vec<String> =
            format!("{:032x}", address6(0).to_bits()).chars().rev().map(String::from).collect();
        let six = format!("{}.ip6.arpa", nibbles.join("."));
        assert!(ask(&query(&six, TYPE_PTR), &mut names).0.ends_with(&encode("example.org")));
        let (none, _) = ask(&query("9.9.9.9.in-addr.arpa", TYPE_PTR), &mut names);
        assert_eq!(code(&none), NO_SUCH_NAME);
        // A name that exists, and one that does not.
        for (name, expected) in
            [("example.org", 0), ("a.localhost", 0), ("example.com", NO_SUCH_NAME)]
        {
            let (bytes, asked) = ask(&query(name, TYPE_PTR), &mut names);
            assert_eq!((code(&bytes), bytes[7], asked), (expected, 0, Asked::Nothing), "{name}");
        }
        let (bytes, _) = answer(
            &query("9.9.9.9.in-addr.arpa", TYPE_PTR),
            &mut Names::default(),
            true,
            &mut |_| true,
        );
        assert_eq!(code(&bytes), NO_SUCH_NAME, "where every name is allowed too");
    }

    #[test]
    fn a_later_version_of_edns_is_not_known() {
        let mut query = query("example.org", TYPE_A);
        query[11] = 1;
        query.extend([0, 0, 41, 0x10, 0, 0, 1, 0, 0, 0, 0]);
        let (bytes, asked) = ask(&query, &mut Names::default());
        assert_eq!((code(&bytes), bytes[7], asked), (0, 0, Asked::Nothing));
        assert!(bytes.ends_with(&[0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn extended_queries_get_extended_answers() {
        let mut query = query("example.org", TYPE_A);
        query[11] = 1;
        query.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        let (bytes, _) = ask(&query, &mut Names::default());
        assert_eq!(bytes[11], 1);
        assert!(bytes.ends_with(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn broken_messages_are_format_errors_or_ignored() {
        let mut names = Names::default();
        let good = query("example.org", TYPE_A);
        for length in 0..good.len() {
            let (bytes, asked) = ask(&good[..length], &mut names);
            assert_eq!(asked, Asked::Nothing, "{length}");
            assert_eq!(bytes.is_empty(), length < HEADER, "{length}");
        }
        let mut pointer = good.clone();
        pointer[12] = 0xC0;
        assert_eq!(code(&ask(&pointer, &mut names).0), FORMAT_ERROR);
        let mut response = good;
        response[2] |= 0x80;
        assert!(ask(&response, &mut names).0.is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (reply, _) = ask(&bytes, &mut Names::default());
            prop_assert!(reply.len() <= bytes.len() + 64);
            let mut patched = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
            patched.extend(&bytes);
            ask(&patched, &mut Names::default());
        }
    }
}
