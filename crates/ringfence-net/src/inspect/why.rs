//! Why there is no TLS, in words for people: the library's own are those of its source.

use crate::flow;
use rustls::{CertificateError, Error, PeerIncompatible};
use std::fmt::Debug;
use std::io;

/// What is said of `who` ("the server") with whom no TLS could be spoken.
pub(super) fn no_tls(error: &io::Error, who: &str) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return format!("{who} ended the connection too early");
    }
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        Some(error) => said(error, who),
        None => flow::io_text(error),
    }
}

fn said(error: &Error, who: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("{who}'s certificate {}", certificate(error)),
        Error::NoCertificatesPresented => format!("{who} shows no certificate"),
        Error::AlertReceived(alert) => format!("{who} refused ({})", words(alert)),
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
            format!("what {who} says is no TLS")
        }
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => format!("{who} speaks neither TLS 1.2 nor TLS 1.3"),
        Error::PeerIncompatible(why) => {
            format!("{who} speaks another TLS than is spoken here ({})", words(why))
        }
        Error::PeerMisbehaved(why) => format!("{who} breaks the rules of TLS ({})", words(why)),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            format!("{who} breaks the rules of TLS (a message out of its turn)")
        }
        Error::DecryptError => format!("what {who} says cannot be decrypted"),
        Error::NoApplicationProtocol => format!("{who} speaks neither HTTP/1.1 nor HTTP/2"),
        Error::FailedToGetCurrentTime => "the time cannot be had".to_owned(),
        Error::FailedToGetRandomBytes => "the kernel gave no random bytes".to_owned(),
        Error::General(why) => why.clone(),
        _ => format!("{who} and this program do not get along"),
    }
}

/// What is wrong with a certificate.
fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::BadEncoding => "cannot be read".to_owned(),
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            format!("has expired, {} ago", long(time.as_secs().saturating_sub(not_after.as_secs())))
        }
        CertificateError::NotValidYet => "is not valid yet: does the clock go right?".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "is not valid yet, but in {}: does the clock go right?",
            long(not_before.as_secs().saturating_sub(time.as_secs()))
        ),
        CertificateError::Revoked => "was revoked".to_owned(),
        CertificateError::UnknownIssuer => {
            "is by nobody whom this host trusts (more are named by SSL_CERT_FILE, outside)".to_owned()
        }
        CertificateError::NotValidForName => "is for other names".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            match presented.as_slice() {
                [] => format!("is for no name (no subjectAltName), and so not for {expected}"),
                names => format!("is for {}, and not for {expected}", listed(names)),
            }
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for servers (extKeyUsage)".to_owned()
        }
        CertificateError::BadSignature => "has a wrong signature".to_owned(),
        CertificateError::UnhandledCriticalExtension => {
            "has something critical in it that is not known here".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "has a key or a signature of a kind that is weak, or not known here".to_owned()
        }
        CertificateError::Other(other) => match other.0.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) => {
                "is an authority's (CA:TRUE): it is taken for a server where it is itself one of those that this host \
                 trusts (SSL_CERT_FILE, outside), and for servers"
                    .to_owned()
            }
            Some(why) => format!("does not hold ({})", words(why)),
            None => "does not hold".to_owned(),
        },
        _ => "does not hold".to_owned(),
    }
}

/// A length of time, in its largest unit.
fn long(seconds: u64) -> String {
    let units = [(24 * 3600, "day"), (3600, "hour"), (60, "minute")];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1, "second"));
    let many = seconds / unit;
    format!("{many} {name}{}", if many == 1 { "" } else { "s" })
}

/// A certificate's names, the first of very many.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    // `DnsName("example.org")`, `IpAddress(192.0.2.1)`.
    let plain = |name: &String| {
        let within = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        let plain = within.unwrap_or(name).trim_matches('"');
        plain.replace(char::is_control, "\u{fffd}")
    };
    let text = names.iter().take(MOST).map(plain).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// A name of the source's, without what is behind it, as words: `HandshakeFailure` is "handshake failure".
fn words(name: &impl Debug) -> String {
    let name = format!("{name:?}");
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    let mut words = String::new();
    let mut before = 'A';
    for c in name[..end].chars() {
        if c.is_ascii_uppercase() && !before.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn what_is_said_is_for_people() {
        let said =
            |error: Error| no_tls(&io::Error::new(io::ErrorKind::InvalidData, error), "the server");
        for (error, wanted) in [
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "the server refused (handshake failure)",
            ),
            (Error::AlertReceived(AlertDescription::UnknownCA), "the server refused (unknown ca)"),
            (
                Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
                "what the server says is no TLS",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
                "the server speaks neither TLS 1.2 nor TLS 1.3",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "the server speaks another TLS than is spoken here (no cipher suites in common)",
            ),
            (
                CertificateError::UnknownIssuer.into(),
                "the server's certificate is by nobody whom this host trusts (more are named by SSL_CERT_FILE, outside)",
            ),
        ] {
            assert_eq!(said(error), wanted);
        }
        let early = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        assert_eq!(no_tls(&early, "the server"), "the server ended the connection too early");
        let names: Vec<String> = (0..10).map(|n| format!("DnsName(\"{n}.\u{1b}x\")")).collect();
        let text = listed(&names);
        assert!(text.starts_with("0.\u{fffd}x, 1.") && text.ends_with(" and 2 more"), "{text}");
        assert_eq!(
            (long(59), long(60), long(49 * 3600)),
            ("59 seconds".into(), "1 minute".into(), "2 days".into())
        );
    }
}
