//! Whom this host trusts, and how what runs inside learns that the session's authority is to be
//! trusted as well.

use super::truststore::truststore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where systems keep the certificates of those they trust, in one file.
pub const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/lib/ssl/cert.pem",
];

/// Variables by which programs are told of a file with the certificates to trust. A corporate
/// authority outside is often named by one of them only.
pub use ringfence_policy::authorities::VARIABLES as BUNDLE_VARIABLES;

/// The public files of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// All that this host trusts and the session's authority, as PEM.
    pub bundle: Vec<u8>,
    /// The same for Java, as PKCS#12 without a password.
    pub truststore: Vec<u8>,
}

impl Files {
    pub(super) fn of(
        roots: &[CertificateDer<'static>],
        authority: &CertificateDer<'static>,
    ) -> Files {
        let all = || std::iter::once(authority).chain(roots);
        let mut bundle = Vec::with_capacity(roots.len() * 2048);
        all().for_each(|certificate| pem(certificate, &mut bundle));
        Files { bundle, truststore: truststore(all()) }
    }
}

/// Writes a certificate as PEM (RFC 7468).
fn pem(certificate: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"-----BEGIN CERTIFICATE-----\n");
    // 48 bytes make a line of 64 characters.
    for line in certificate.chunks(48) {
        out.extend_from_slice(crate::upstream::base64(line).as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"-----END CERTIFICATE-----\n");
}

/// The certificates that this host trusts: the system's, or those of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`, and what other variables of this kind name besides.
pub(super) fn roots(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<CertificateDer<'static>> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut files = BTreeSet::new();
    let system = || BUNDLES.iter().map(PathBuf::from).find(|bundle| bundle.exists());
    files.extend(path("SSL_CERT_FILE").or_else(system));
    files.extend(BUNDLE_VARIABLES.iter().filter_map(|name| path(name)));
    // A directory that holds the bundle itself holds the same once more, one file for each.
    let directory = path("SSL_CERT_DIR")
        .filter(|directory| !files.iter().any(|file| file.parent() == Some(directory)));
    if let Some(directory) = directory {
        let directories = std::env::split_paths(&directory).collect::<Vec<_>>();
        files.extend(directories.iter().flat_map(|directory| listed(directory)));
    }
    let mut seen = BTreeSet::new();
    let mut roots = Vec::with_capacity(160);
    for file in files {
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let certificates = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
        roots.extend(certificates.filter(|certificate| seen.insert(certificate.to_vec())));
    }
    roots
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::authority::Authority;

    #[test]
    fn what_is_trusted_outside_is_trusted_inside_and_the_authority_too() {
        let directory =
            std::env::temp_dir().join(format!("ringfence-trust-{}", std::process::id()));
        let store = directory.join("store");
        std::fs::create_dir_all(&store).expect("a directory");
        let write = |path: &Path, certificate: &CertificateDer<'_>| {
            let mut text = b"# a comment\n".to_vec();
            pem(certificate, &mut text);
            std::fs::write(path, text).expect("written");
        };
        let [own, corporate, other] =
            [(); 3].map(|()| Authority::new().expect("made").certificate().clone());
        write(&directory.join("own.pem"), &own);
        write(&directory.join("corporate.pem"), &corporate);
        write(&store.join("other.pem"), &other);
        let variable = |name: &str| match name {
            "SSL_CERT_FILE" => Some(directory.join("own.pem").into_os_string()),
            "SSL_CERT_DIR" => Some(store.clone().into_os_string()),
            "PIP_CERT" | "NODE_EXTRA_CA_CERTS" => {
                Some(directory.join("corporate.pem").into_os_string())
            }
            "AWS_CA_BUNDLE" => Some(directory.join("absent.pem").into_os_string()),
            _ => None,
        };
        let roots = roots(&variable);
        let mut found = roots.clone();
        found.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
        let mut wanted = vec![own, corporate, other];
        wanted.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
        assert_eq!(found, wanted);
        let session = Authority::new().expect("made").certificate().clone();
        let files = Files::of(&roots, &session);
        let inside: Vec<_> =
            CertificateDer::pem_slice_iter(&files.bundle).map(|pem| pem.expect("PEM")).collect();
        assert_eq!(inside[0], session);
        assert_eq!(inside[1..], roots[..]);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
