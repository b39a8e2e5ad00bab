//! Whether a real server is the one that it was meant to be: as rustls checks it, and one kind of certificate besides.
//!
//! `openssl req -x509`, and devices that make their own, give a server a certificate that is an authority's too. Who
//! names it as trusted (`SSL_CERT_FILE`) has curl and OpenSSL take it; rustls takes no authority's as a server's.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Checks the certificates of real servers.
#[derive(Debug)]
pub(super) struct Vouched {
    /// Whom this host trusts.
    roots: Arc<[CertificateDer<'static>]>,
    /// `None`: it trusts nobody.
    by_authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Vouched {
    /// Trusts `roots`, those of them that can be read.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(
        roots: Arc<[CertificateDer<'static>]>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Vouched, String> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let by_authorities = (!store.is_empty())
            .then(|| {
                WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone()).build()
            })
            .transpose()
            .map_err(|error| format!("cannot check the certificates of servers: {error}"))?;
        Ok(Vouched { roots, by_authorities, provider })
    }

    /// Whether a certificate was found to be an authority's, by itself one of those that are trusted, and for servers.
    ///
    /// That is found out after its time was looked at, and before anything else.
    fn itself(&self, error: &Error, certificate: &CertificateDer<'_>) -> bool {
        let authority = matches!(error, Error::InvalidCertificate(CertificateError::Other(why))
            if why.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity));
        authority && self.roots.iter().any(|root| root == certificate) && for_servers(certificate)
    }
}

/// Whether a certificate that says what it is for (`extKeyUsage`) says that it is for servers.
fn for_servers(certificate: &[u8]) -> bool {
    const USAGE: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x25];
    const SERVERS: [u8; 10] = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
    let has = |wanted: &[u8]| certificate.windows(wanted.len()).any(|bytes| bytes == wanted);
    !has(&USAGE) || has(&SERVERS)
}

impl ServerCertVerifier for Vouched {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(by_authorities) = &self.by_authorities else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let checked = by_authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match checked {
            Err(error) if self.itself(&error, end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::why;
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use std::io;
    use std::time::Duration;

    /// A certificate of one's own, as `openssl req -x509` makes it.
    fn own(
        change: impl Fn(&mut CertificateParams),
    ) -> (CertificateDer<'static>, CertificateParams, KeyPair) {
        let names = vec!["box.example.org".to_owned(), "192.0.2.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        (params.self_signed(&key).expect("made").der().clone(), params, key)
    }

    /// What is said of a server with this certificate; nothing where it is taken.
    fn refused(
        roots: &[CertificateDer<'static>],
        end: &CertificateDer<'_>,
        name: &str,
    ) -> Option<String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let vouched = Vouched::new(roots.into(), provider).expect("a verifier");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let checked = vouched.verify_server_cert(end, &[], &name, &[], UnixTime::now());
        let error = io::Error::other(checked.err()?);
        Some(why::no_tls(&error, "the server"))
    }

    #[test]
    fn a_certificate_that_is_trusted_itself_is_taken_for_its_names_and_its_time() {
        let (own_one, params, key) = own(|_| ());
        let (other, ..) = own(|_| ());
        let both = [other.clone(), own_one.clone()];
        for name in ["box.example.org", "192.0.2.1"] {
            assert_eq!(refused(&both, &own_one, name), None, "{name}");
        }
        let why = refused(&both, &own_one, "example.org").expect("refused");
        assert_eq!(
            why,
            "the server's certificate is for box.example.org, 192.0.2.1, and not for example.org"
        );
        // One that is like it, byte for byte, but for one.
        for roots in [&[other][..], &[]] {
            let why = refused(roots, &own_one, "box.example.org").expect("refused");
            assert!(!why.contains("CaUsed") && why.contains("trust"), "{why}");
        }
        // What it has signed is a server's certificate, and no authority's.
        let issuer = Issuer::from_params(&params, &key);
        let signed = |is_ca: IsCa| {
            let mut leaf = CertificateParams::new(vec!["x.example.org".to_owned()]).expect("names");
            leaf.is_ca = is_ca;
            leaf.signed_by(&KeyPair::generate().expect("a key"), &issuer)
                .expect("made")
                .der()
                .clone()
        };
        assert_eq!(refused(&both, &signed(IsCa::ExplicitNoCa), "x.example.org"), None);
        let below = signed(IsCa::Ca(BasicConstraints::Unconstrained));
        let why = refused(&both, &below, "x.example.org").expect("refused");
        assert!(why.starts_with("the server's certificate is an authority's"), "{why}");
    }

    #[test]
    fn its_time_and_its_purpose_are_looked_at() {
        let half = Duration::from_secs(12 * 3600);
        let now = std::time::SystemTime::now();
        for (change, wanted) in [
            (
                Box::new(move |params: &mut CertificateParams| {
                    params.not_before = (now - half * 19).into();
                    params.not_after = (now - half * 7).into();
                }) as Box<dyn Fn(&mut CertificateParams)>,
                "the server's certificate has expired, 3 days ago",
            ),
            (
                Box::new(move |params| params.not_before = (now + half * 7).into()),
                "the server's certificate is not valid yet, but in 3 days: does the clock go right?",
            ),
            (
                Box::new(|params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                }),
                "the server's certificate is an authority's",
            ),
        ] {
            let (end, ..) = own(change);
            let why =
                refused(std::slice::from_ref(&end), &end, "box.example.org").expect("refused");
            assert!(why.starts_with(wanted), "{why}");
        }
        let (end, ..) = own(|params| {
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        });
        assert_eq!(refused(std::slice::from_ref(&end), &end, "box.example.org"), None);
    }
}
