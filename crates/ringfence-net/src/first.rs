//! The first bytes of a client: TLS, HTTP, or something else; and which host they name.

pub(crate) mod answer;
mod hello;
mod http;
mod odd;
mod wish;

pub(crate) use http::{authority, blanks, field};
pub(crate) use odd::like_a_request;

use ringfence_policy::Host;

/// The most bytes of a first flight that are kept: a ClientHello or the head of a request.
pub const MOST: usize = 64 * 1024;

/// What the first bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// Too little to tell.
    More,
    /// Too little to tell, and too little for any server to act on as HTTP: less than a method.
    /// It may pass, so that a protocol of short messages without a line's end is not held up.
    Word,
    /// A TLS ClientHello.
    Tls {
        /// The server's name it gives.
        name: Option<Host>,
        /// It may hide another name (ECH, RFC 9849).
        hidden: bool,
    },
    /// The head of an HTTP/1 request.
    Http {
        /// The host that it names.
        host: Option<Host>,
        /// It is asked as of a proxy: to connect, or by a whole URL.
        proxied: bool,
    },
    /// The head of a request of another protocol that has HTTP's form (RTSP, SIP, ICAP, ICE), which some servers
    /// take for HTTP's.
    Like {
        /// The host that it names.
        host: Option<Host>,
    },
    /// Too little to tell whether a lenient server could take it for a request; careful ones do not. It may pass, and is
    /// judged again with what follows.
    Watch,
    /// Neither.
    Other,
    /// Meant to be TLS or HTTP, and broken or ambiguous in a way that servers read differently.
    Broken(&'static str),
}

/// Tells what a client's first bytes are. More bytes of the same client never turn `Tls`, `Http`
/// or `Other` into something else.
pub fn first(bytes: &[u8]) -> First {
    let wishes = wish::end(bytes);
    if wishes > wish::MOST {
        return First::Broken("a wish for TLS again and again");
    }
    match &bytes[wishes..] {
        [] if wishes > 0 => http::read(bytes),
        [] => First::More,
        [hello::HANDSHAKE, ..] => hello::read(&bytes[wishes..]),
        // What is neither is a beginning as a whole, for whoever knows no such wishes.
        rest => hello::other(rest).unwrap_or_else(|| http::read(bytes)),
    }
}

/// Where a complete ClientHello's records end, behind wishes for TLS; nothing where they hold more than that one message.
pub(crate) fn end_of_hello(bytes: &[u8]) -> Option<usize> {
    let wishes = wish::end(bytes);
    hello::end(&bytes[wishes..]).map(|end| wishes + end)
}

/// What a client says to a server that wants another ClientHello. Before that there can be what it had sent too early.
pub(crate) fn next_hello(mut bytes: &[u8]) -> First {
    loop {
        match bytes {
            [hello::HANDSHAKE, ..] => return hello::read(bytes),
            [hello::CHANGE | hello::DATA, _, _, high, low, rest @ ..] => {
                match rest.get(usize::from(*high) << 8 | usize::from(*low)..) {
                    Some(rest) => bytes = rest,
                    None => return First::More,
                }
            }
            [] | [hello::CHANGE | hello::DATA, ..] => return First::More,
            _ => return First::Other,
        }
    }
}

/// Whether what a client said fits the name that it connected to. `any` says that every name is
/// allowed on this port.
///
/// A TLS client must name that host: without a name, or with one encrypted (which looks the same
/// as a decoy, on purpose), nothing on the wire says which site behind the address is meant, and
/// a shared address serves many.
///
/// # Errors
/// A sentence for people.
pub fn fits(first: &First, name: &str, any: bool) -> Result<(), String> {
    let wanted = Host::Name(name.to_owned());
    match first {
        First::Tls { hidden: true, .. } if !any => Err(format!(
            "the TLS client of {name} uses Encrypted Client Hello, behind which any other name \
             could be meant; switch it off, or allow every host"
        )),
        First::Tls { name: None, .. } if !any => Err(format!(
            "the TLS client of {name} names no server (SNI), so that it cannot be checked"
        )),
        First::Tls { name: Some(host), .. }
        | First::Http { host: Some(host), .. }
        | First::Like { host: Some(host) }
            if *host != wanted =>
        {
            Err(another(first, &name, host))
        }
        First::Broken(what) => Err(format!("the client of {name} sent {what}")),
        _ => Ok(()),
    }
}

/// What is said where a client asks for another host than it connected to. Through a proxy that a program knows of by
/// itself nothing can be judged; through the one that the launcher knows of, all is.
pub(crate) fn another(first: &First, name: &dyn std::fmt::Display, host: &Host) -> String {
    let proxy = match first {
        First::Http { proxied: true, .. } => {
            ", as of a proxy: set HTTPS_PROXY (HTTP_PROXY for port 80) outside, for ringfence, which goes through it, \
             and take it out of the program's own settings"
        }
        _ => "",
    };
    format!("the client connected to {name} and then asked for {host}{proxy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_client_says_must_fit_the_name() {
        let host = |text: &str| Host::parse(text).ok();
        let tls = |name, hidden| First::Tls { name, hidden };
        let good = [
            tls(host("a.org"), false),
            First::Http { host: host("A.org."), proxied: false },
            First::Http { host: None, proxied: false },
            First::Like { host: host("a.org") },
            First::Like { host: None },
            First::Other,
        ];
        for good in good {
            assert_eq!(fits(&good, "a.org", false), Ok(()), "{good:?}");
        }
        let wrong = [
            tls(host("b.org"), false),
            tls(host("a.org"), true),
            tls(None, false),
            First::Http { host: host("b.org"), proxied: false },
            First::Http { host: host("192.0.2.1"), proxied: false },
            First::Like { host: host("b.org") },
            First::Http { host: host("b.org"), proxied: true },
            First::Broken("rubbish"),
        ];
        for wrong in wrong {
            let told = fits(&wrong, "a.org", false).expect_err("it is another");
            let advises = matches!(wrong, First::Http { proxied: true, .. });
            assert_eq!(told.contains("set HTTPS_PROXY"), advises, "{wrong:?}: {told}");
        }
        assert_eq!(fits(&tls(host("a.org"), true), "a.org", true), Ok(()));
    }

    /// A server of tenants looks for one in a hello that comes after such a wish.
    #[test]
    fn a_hello_after_a_wish_for_tls_is_read() {
        let records =
            |names: &[(u16, Vec<u8>)]| hello::tests::records(&hello::tests::hello(names), 500);
        let hello = records(&[hello::tests::sni(b"a.org")]);
        let named = First::Tls { name: Host::parse("a.org").ok(), hidden: false };
        for wishes in [&[wish::TLS][..], &[wish::GSS, wish::TLS], &[wish::TLS; 4]] {
            let whole = [&wishes.concat()[..], &hello].concat();
            assert_eq!(first(&whole), named);
            assert_eq!(end_of_hello(&whole), Some(whole.len()));
            let wished = wishes.len() * 8;
            for length in 1..whole.len() {
                let seen = first(&whole[..length]);
                let passes = matches!(seen, First::Watch);
                assert!(
                    if length <= wished { passes } else { seen == First::More },
                    "{length}: {seen:?}"
                );
            }
            let nameless = [&wishes.concat()[..], &records(&[])].concat();
            assert_eq!(first(&nameless), First::Tls { name: None, hidden: false });
        }
        for broken in [
            [wish::TLS, &[0x15, 3, 1, 0, 2, 1, 90], &hello].concat(),
            [wish::TLS, b" / HTTP/1.1\r\nHost: b.org\r\n\r\n"].concat(),
            [&[wish::TLS; 5].concat()[..], &hello].concat(),
        ] {
            assert!(matches!(first(&broken), First::Broken(_)), "{}", broken.escape_ascii());
        }
        // A session's beginning, where the server wants no TLS.
        let plain = [wish::TLS, &[0, 0, 0, 16, 0, 3, 0, 0], b"user\0a\0\0"].concat();
        assert_eq!(first(&plain), First::Watch);
    }

    proptest! {
        /// Cutting the input shorter only ever gives `More` or the same answer.
        #[test]
        fn answers_are_final(bytes in proptest::collection::vec(any::<u8>(), 0..200), lead in 0usize..13) {
            let lead: &[u8] = [&b""[..], &[0x16, 3, 1, 0, 60, 1, 0, 0, 50], b"GET / HTTP/1.1\r\n", b"\r\nHEAD ", b"\r\n\0\r\nQU", b"PROXY T", &[0x15], &[0x80, 40, 1], wish::TLS, &[0, 0, 0, 8, 4, 210, 22, 47, 0x16, 3, 1, 0, 60, 1, 0, 0, 50], b"SETUP / RTSP/1.0\r\nHost: ", b"G(T / x\r\n", b"GET\x1c/"][lead];
            let whole = [lead, &bytes].concat();
            let mut seen = First::More;
            for length in 0..=whole.len() {
                let now = first(&whole[..length]);
                prop_assert!(matches!(seen, First::More | First::Word | First::Watch) || now == seen, "{seen:?} became {now:?}");
                seen = now;
            }
        }
    }
}
