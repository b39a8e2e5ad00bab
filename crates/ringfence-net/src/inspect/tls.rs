//! TLS on both sides: as the server towards the program, as a client towards the real server,
//! with one protocol spoken on both.

use super::authority::Authority;
use super::vouched::Vouched;
use ringfence_policy::Host;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Certificates kept at once; names below a granted `*.name` have no end.
const MOST_KEPT: usize = 1024;

/// What is spoken within TLS (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    const fn name(self) -> &'static [u8] {
        match self {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        }
    }

    /// What a negotiated name stands for; without one it is HTTP/1.
    pub fn of(name: Option<&[u8]>) -> Protocol {
        if name == Some(Protocol::Http2.name()) { Protocol::Http2 } else { Protocol::Http1 }
    }

    /// Those of a client's that we speak, in its order.
    pub fn offered<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<Protocol> {
        let known = |name: &[u8]| {
            [Protocol::Http1, Protocol::Http2].into_iter().find(|known| known.name() == name)
        };
        names.filter_map(known).collect()
    }
}

#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// How we speak to programs, by whom they mean and what they speak.
type Servers = HashMap<(Host, Option<Protocol>), Arc<ServerConfig>>;

/// Both sides' settings, made as they are needed.
pub(super) struct Tls {
    authority: Authority,
    provider: Arc<CryptoProvider>,
    client: ClientConfig,
    servers: Mutex<Servers>,
}

impl Tls {
    /// Trusts `roots` outside, and is trusted inside as `authority`.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(authority: Authority, roots: Arc<[CertificateDer<'static>]>) -> Result<Tls, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let vouched = Vouched::new(roots, provider.clone())?;
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(vouched))
            .with_no_client_auth();
        Ok(Tls { authority, provider, client, servers: Mutex::default() })
    }

    /// How we speak to a real server, offering what the program offered; `none` is asked for a certificate of the client's.
    pub fn client(
        &self,
        offered: &[Protocol],
        none: Arc<dyn ResolvesClientCert>,
    ) -> Arc<ClientConfig> {
        let mut config = self.client.clone();
        config.client_auth_cert_resolver = none;
        config.alpn_protocols = offered.iter().map(|protocol| protocol.name().to_vec()).collect();
        Arc::new(config)
    }

    /// How we speak to a program that means this host, in the protocol that was negotiated with
    /// the real one; `None` when the program knows nothing of protocols.
    ///
    /// # Errors
    /// A sentence.
    pub fn server(
        &self,
        host: &Host,
        protocol: Option<Protocol>,
    ) -> Result<Arc<ServerConfig>, String> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.clone(), protocol);
        if let Some(config) = servers.get(&key) {
            return Ok(config.clone());
        }
        let leaf = self.authority.leaf(plain(host).as_str())?;
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(One(leaf)));
        config.alpn_protocols = protocol.iter().map(|one| one.name().to_vec()).collect();
        let config = Arc::new(config);
        if servers.len() >= MOST_KEPT {
            servers.clear();
        }
        servers.insert(key, config.clone());
        Ok(config)
    }
}

/// A host's name or address, without brackets.
fn plain(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Address(address) => address.to_string(),
    }
}

/// Whose certificate the real server must have.
///
/// # Errors
/// A sentence: it is no name that certificates know.
pub(super) fn server_name(host: &Host) -> Result<ServerName<'static>, String> {
    match host {
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| format!("{name} is no name that a certificate can be for")),
        Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
    }
}
