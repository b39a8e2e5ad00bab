//! The session's certificate authority: made in the launcher, after the sandbox has been cloned
//! from it, so that no memory inside ever held its key; gone with the session.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Clients whose clock is behind accept it too.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);
/// Longer than sessions live, shorter than what clients refuse (398 days).
const VALID: Duration = Duration::from_secs(365 * 24 * 3600);

/// An authority, and the one key that its leaves share.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaf: KeyPair,
    leaf_key: Arc<dyn SigningKey>,
}

impl Authority {
    /// Makes one.
    ///
    /// # Errors
    /// A sentence: the kernel gave no random bytes.
    pub fn new() -> Result<Authority, String> {
        let failed = |error: rcgen::Error| format!("cannot make a certificate authority: {error}");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ringfence session authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        dated(&mut params);
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        let leaf = KeyPair::generate().map_err(failed)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.serialize_der()));
        let leaf_key = any_ecdsa_type(&der).map_err(|error| error.to_string())?;
        Ok(Authority { issuer, leaf, leaf_key })
    }

    /// Its certificate, which is public.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// A certificate for one host: a DNS name, or an address as text.
    ///
    /// # Errors
    /// A sentence: the name is none that a certificate can hold.
    pub fn leaf(&self, host: &str) -> Result<Arc<CertifiedKey>, String> {
        let failed = |error: rcgen::Error| format!("cannot make a certificate for {host}: {error}");
        // A client that names no host in its greeting (Java, where a name has no dot) has its loopback's
        // address for it, and expects the name that it knows.
        const HERE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
        let names = if HERE.contains(&host) { HERE.to_vec() } else { vec![host] };
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        // A common name holds 64 characters; clients read the alternative names.
        let common = if host.len() <= 64 { host } else { "ringfence" };
        params.distinguished_name.push(DnType::CommonName, common);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        dated(&mut params);
        let leaf = params.signed_by(&self.leaf, &self.issuer).map_err(failed)?;
        let chain = vec![leaf.der().clone(), self.certificate().clone()];
        Ok(Arc::new(CertifiedKey::new(chain, self.leaf_key.clone())))
    }
}

fn dated(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + VALID).into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};

    #[test]
    fn a_leaf_is_good_for_its_host_and_for_nothing_else() {
        let authority = Authority::new().expect("made");
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("a verifier");
        let good = |certificate: &str, name: &str| {
            let leaf = authority.leaf(certificate).expect("a leaf");
            let name = ServerName::try_from(name.to_owned()).expect("a name");
            let end = &leaf.cert[0];
            verifier.verify_server_cert(end, &leaf.cert[1..], &name, &[], UnixTime::now()).is_ok()
        };
        let long = format!("{}.example.org", "a".repeat(63));
        for host in ["example.org", "10.0.0.1", "2001:db8::1", &long] {
            assert!(good(host, host), "{host}");
        }
        assert!(!good("example.org", "www.example.org") && !good("10.0.0.1", "10.0.0.2"));
        assert!(good("127.0.0.1", "localhost") && !good("10.0.0.1", "localhost"));
        let other = Authority::new().expect("made");
        assert_ne!(other.certificate(), authority.certificate());
    }
}
