//! Inspection: the requests to hosts that rules about requests or credentials name are looked at
//! one by one. TLS ends here, with a certificate of the session's own authority, and begins anew
//! towards the real server, whose certificate is checked as this host checks it.
//!
//! ```text
//! launcher                                          sandbox
//! Inspection::prepare: secrets read, roots read
//! clone ─────────────────────────────────────────►  Inspection::forget: its copy of them wiped
//! Inspection::begin: authority made ──public files►  Inspection::wait: put where programs look
//! a program connects to such a host:
//!   TLS from it, TLS to the server, the same protocol (HTTP/1.1 or HTTP/2) on both
//!   each request: host, method and path judged; headers put in; sent by the path that was judged
//!   each answer: passed on as it comes; secrets taken out of its headers
//! ```
//!
//! The authority's key exists in the launcher's memory alone and is made after the clone.

mod allowance;
mod any;
mod authority;
mod begin;
mod besides;
mod body;
mod exchange;
mod expected;
mod heads;
mod model;
mod passage;
mod request;
mod secret;
mod serve;
mod tls;
mod trailers;
pub mod trust;
mod truststore;
mod unread;
mod upstream;
mod vouched;
mod why;
mod wire;

pub(crate) use any::judge_any;
pub(crate) use begin::connection;

use allowance::Measure;
use authority::Authority;
use ringfence_policy::Policy;
use ringfence_sys::fd;
use rustls::pki_types::CertificateDer;
use secret::Secrets;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tls::Tls;
use trust::Files;

/// A public file of a session, for those inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// All that this host trusts and the session's authority, as PEM.
    Bundle,
    /// The same for Java, as PKCS#12 without a password.
    Truststore,
}

/// What inspection needs for the length of a session.
pub struct Inspection {
    secrets: Secrets,
    roots: Arc<[CertificateDer<'static>]>,
    /// In memory: empty until [`Inspection::begin`].
    bundle: OwnedFd,
    truststore: OwnedFd,
    /// Tells the sandbox that they are not empty any more.
    ready: Mutex<(Option<OwnedFd>, Option<OwnedFd>)>,
    tls: OnceLock<Tls>,
    /// What its connections share.
    measure: Arc<Measure>,
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
        let roots = trust::roots(&|name| std::env::var_os(name)).into();
        let failed = |errno| format!("cannot prepare the inspection of requests: {errno:?}");
        let (reader, writer) = fd::pipe().map_err(failed)?;
        Ok(Some(Inspection {
            secrets,
            roots,
            bundle: fd::in_memory(&[]).map_err(failed)?,
            truststore: fd::in_memory(&[]).map_err(failed)?,
            ready: Mutex::new((Some(reader), Some(writer))),
            tls: OnceLock::new(),
            measure: Arc::default(),
        }))
    }

    /// In the launcher, once the sandbox has been cloned: makes the authority, and the public
    /// files for those inside. Later calls do nothing.
    ///
    /// # Errors
    /// A sentence. The sandbox then waits for nothing and refuses to start.
    pub fn begin(&self) -> Result<(), String> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        drop(ready.0.take());
        let Some(writer) = ready.1.take() else { return Ok(()) };
        let authority = Authority::new()?;
        let files = Files::of(&self.roots, authority.certificate());
        let failed = |errno| format!("cannot write the session's certificates: {errno:?}");
        fd::write_all(self.bundle.as_fd(), &files.bundle).map_err(failed)?;
        fd::write_all(self.truststore.as_fd(), &files.truststore).map_err(failed)?;
        // A sandbox that has died does not read it.
        let _ = fd::write(writer.as_fd(), &[1]);
        let _ = self.tls.set(Tls::new(authority, self.roots.clone())?);
        Ok(())
    }

    /// In the sandbox's first process: overwrites its copy of the secrets.
    pub fn forget(&self) {
        self.secrets.forget();
    }

    /// In the sandbox's first process: waits until the public files are there, which the launcher
    /// is about to make.
    ///
    /// # Errors
    /// A sentence: they do not come.
    pub fn wait(&self) -> Result<(), String> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        // With it open here the end would not be seen.
        drop(ready.1.take());
        let Some(reader) = ready.0.take() else { return Ok(()) };
        match fd::read(reader.as_fd(), &mut [0]) {
            Ok(1) => Ok(()),
            _ => Err("the launcher made no certificate authority for inspection".to_owned()),
        }
    }

    /// One of the public files.
    pub fn content(&self, content: Content) -> BorrowedFd<'_> {
        match content {
            Content::Bundle => self.bundle.as_fd(),
            Content::Truststore => self.truststore.as_fd(),
        }
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
    fn the_public_files_come_to_the_other_side_and_the_key_does_not() {
        let mut policy = policy(&["a.org"], &[]);
        policy.network.http.push(ringfence_policy::HttpRule {
            methods: Vec::new(),
            host: "a.org".parse().expect("a host"),
            path: "/*".to_owned(),
            source: policy.network.allow[0].source.clone(),
        });
        let inspection = Inspection::prepare(&policy).expect("prepared").expect("needed");
        let reader = inspection.ready.lock().expect("alone").0.take().expect("a reader");
        let read = |content| fd::content(inspection.content(content), 1 << 24).expect("read");
        assert_eq!(read(Content::Bundle), b"");
        inspection.begin().expect("begun");
        inspection.begin().expect("nothing is done twice");
        assert_eq!(fd::read(reader.as_fd(), &mut [0; 2]), Ok(1));
        assert_eq!(fd::read(reader.as_fd(), &mut [0; 2]), Ok(0), "and its end is seen");
        let bundle = String::from_utf8(read(Content::Bundle)).expect("PEM");
        assert!(bundle.contains("BEGIN CERTIFICATE") && !bundle.contains("PRIVATE KEY"));
        assert!(!read(Content::Truststore).is_empty());
    }

    #[test]
    fn without_a_launcher_nothing_is_waited_for() {
        let mut policy = policy(&["a.org"], &[]);
        policy.network.inject.push(ringfence_policy::InjectRule {
            host: "a.org".parse().expect("a host"),
            header: "x-key".to_owned(),
            secret: "cmd:echo secret".to_owned(),
            file: None,
            source: policy.network.allow[0].source.clone(),
        });
        let inspection = Inspection::prepare(&policy).expect("prepared").expect("needed");
        assert!(inspection.wait().is_err());
    }
}
