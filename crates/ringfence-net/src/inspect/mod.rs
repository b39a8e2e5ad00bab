//! Inspection: the requests to hosts that rules about requests or credentials name are looked at
//! one by one. TLS ends here, with a certificate of the session's own authority, and begins anew
//! towards the real server, whose certificate is checked as this host checks it.
//!
//! ```text
//! launcher                                          sandbox
//! Inspection::prepare: secrets read, roots read
//! clone ─────────────────────────────────────────►  Inspection::forget: its copy of them wiped
//! Inspection::begin: authority made ──certificate►  Inspection::files: put where programs look
//! a program connects to such a host:
//!   TLS from it, TLS to the server, the same protocol (HTTP/1.1 or HTTP/2) on both
//!   each request: host, method and path judged; headers put in; sent by the path that was judged
//!   each answer: passed on as it comes; secrets taken out of its headers
//! ```
//!
//! The authority's key exists in the launcher's memory alone and is made after the clone.

mod authority;
mod body;
mod exchange;
mod request;
mod secret;
mod serve;
mod tls;
pub mod trust;
mod truststore;
mod wire;

pub(crate) use serve::connection;
pub use trust::Files;

use authority::Authority;
use ringfence_policy::Policy;
use rustls::pki_types::CertificateDer;
use secret::Secrets;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use tls::Tls;

/// The most bytes of an authority's certificate.
const CERTIFICATE: u64 = 16 * 1024;

/// What inspection needs for the length of a session.
pub struct Inspection {
    secrets: Secrets,
    roots: Vec<CertificateDer<'static>>,
    /// By which the certificate gets into the sandbox.
    pipe: Mutex<(Option<PipeReader>, Option<PipeWriter>)>,
    tls: OnceLock<Tls>,
}

impl Inspection {
    /// Reads the secrets that the policy's rules name and whom this host trusts; nothing where no
    /// rule needs inspection.
    ///
    /// # Errors
    /// A sentence that names the rule whose secret cannot be had.
    pub fn prepare(policy: &Policy) -> Result<Option<Inspection>, String> {
        let network = &policy.network;
        if network.mode != ringfence_policy::NetworkMode::Filtered
            || network.http.is_empty() && network.inject.is_empty()
        {
            return Ok(None);
        }
        let secrets = Secrets::read(policy)?;
        let roots = trust::roots(&|name| std::env::var_os(name));
        let (reader, writer) =
            std::io::pipe().map_err(|error| format!("cannot make a pipe: {error}"))?;
        let pipe = Mutex::new((Some(reader), Some(writer)));
        Ok(Some(Inspection { secrets, roots, pipe, tls: OnceLock::new() }))
    }

    /// In the launcher, once the sandbox has been cloned: makes the authority, and gives its
    /// certificate to the sandbox. Later calls do nothing.
    ///
    /// # Errors
    /// A sentence. The sandbox then waits for nothing and refuses to start.
    pub fn begin(&self) -> Result<(), String> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        drop(pipe.0.take());
        let Some(mut writer) = pipe.1.take() else { return Ok(()) };
        let authority = Authority::new()?;
        // It fits into the pipe. A sandbox that has died does not read it.
        let _ = writer.write_all(authority.certificate());
        let tls = Tls::new(authority, &self.roots)?;
        let _ = self.tls.set(tls);
        Ok(())
    }

    /// In the sandbox's first process: overwrites its copy of the secrets.
    pub fn forget(&self) {
        self.secrets.forget();
    }

    /// In the sandbox's first process: the public files for those inside. Waits for the
    /// authority's certificate, which the launcher is about to send.
    ///
    /// # Errors
    /// A sentence: it did not come.
    pub fn files(&self) -> Result<Files, String> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // With it open here the end would not be seen.
        drop(pipe.1.take());
        let mut certificate = Vec::new();
        if let Some(reader) = pipe.0.take() {
            let read = reader.take(CERTIFICATE).read_to_end(&mut certificate);
            read.map_err(|error| format!("cannot read the session's certificate: {error}"))?;
        }
        if certificate.is_empty() {
            return Err("the launcher made no certificate authority for inspection".to_owned());
        }
        Ok(Files::of(&self.roots, &certificate.into()))
    }
}

impl std::fmt::Debug for Inspection {
    /// Without anything that is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::policy;

    #[test]
    fn plain_policies_need_none() {
        assert!(Inspection::prepare(&policy(&["a.org"], &[])).expect("prepared").is_none());
    }

    #[test]
    fn the_certificate_comes_to_the_other_side_and_the_key_does_not() {
        let mut policy = policy(&["a.org"], &[]);
        policy.network.http.push(ringfence_policy::HttpRule {
            methods: Vec::new(),
            host: "a.org".parse().expect("a host"),
            path: "/*".to_owned(),
            source: policy.network.allow[0].source.clone(),
        });
        let inspection = Inspection::prepare(&policy).expect("prepared").expect("needed");
        let reader = {
            let mut pipe = inspection.pipe.lock().expect("alone");
            pipe.0.take().expect("a reader")
        };
        inspection.begin().expect("begun");
        inspection.begin().expect("nothing is done twice");
        let mut sent = Vec::new();
        (&reader).read_to_end(&mut sent).expect("read");
        let tls = inspection.tls.get().expect("made");
        assert!(!sent.is_empty() && tls.authority_certificate() == &sent[..]);
        assert!(inspection.files().is_err(), "nothing more comes");
    }
}
