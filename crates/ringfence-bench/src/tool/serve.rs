//! `serve DIR`: a small server on 127.0.0.1, for HTTP/1.1, the same over TLS, and DNS. `/json` is a
//! short answer, `/bytes/N` are N bytes; to any question of DNS the answer is one address.
//!
//! It is a fixture, so it must be out of the way: one thread for all connections, kept alive, answers
//! made beforehand. The unsandboxed lane shows how fast it is by itself.

use crate::error::{Result, error};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio_rustls::TlsAcceptor;

/// What `/json` answers.
pub const JSON: &str = "{\"status\":\"ok\",\"service\":\"bench\"}\n";

/// The name of the file in DIR that holds the certificate that the server's is made from.
pub const AUTHORITY: &str = "authority.pem";

/// The pieces that `/bytes/N` is sent in.
const PIECE: usize = 256 * 1024;
/// Connections that wait to be accepted: bursts must find no queue of the fixture's full.
const BACKLOG: u32 = 4096;

/// Runs the tool: prints the ports of HTTP, HTTPS and DNS, serves until standard input closes.
pub fn run(args: &[OsString]) -> Result<i32> {
    let dir = args.first().ok_or_else(|| error!("bench: serve: no directory"))?;
    let acceptor = acceptor(Path::new(dir))?;
    std::thread::spawn(|| {
        let mut stdin = std::io::stdin().lock();
        while matches!(stdin.read(&mut [0; 64]), Ok(1..)) {}
        std::process::exit(0);
    });
    super::runtime()?.block_on(serve(acceptor))
}

async fn serve(acceptor: TlsAcceptor) -> Result<i32> {
    let failed = |cause: std::io::Error| error!("bench: serve: {cause}");
    let plain = listener().map_err(failed)?;
    let secure = listener().map_err(failed)?;
    let dns = UdpSocket::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let ports = [plain.local_addr(), secure.local_addr(), dns.local_addr()];
    let [http, https, names] = ports.map(|address| address.map(|address| address.port()));
    println!("{} {} {}", http.map_err(failed)?, https.map_err(failed)?, names.map_err(failed)?);
    tokio::spawn(answer_names(dns));
    tokio::spawn(async move {
        while let Ok((stream, _)) = secure.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = talk(stream).await;
                }
            });
        }
    });
    loop {
        let (stream, _) = plain.accept().await.map_err(failed)?;
        let _ = stream.set_nodelay(true);
        tokio::spawn(talk(stream));
    }
}

/// A listener with a long queue.
fn listener() -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))?;
    socket.listen(BACKLOG)
}

/// A certificate for `localhost`, of an authority whose certificate is written to a file.
fn acceptor(dir: &Path) -> Result<TlsAcceptor> {
    let failed = |cause: &dyn std::fmt::Display| error!("bench: serve: a certificate: {cause}");
    let key = rcgen::KeyPair::generate().map_err(|cause| failed(&cause))?;
    let mut authority =
        rcgen::CertificateParams::new(Vec::new()).map_err(|cause| failed(&cause))?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "ringfence bench");
    let issuer = authority.self_signed(&key).map_err(|cause| failed(&cause))?;
    crate::work::write(&dir.join(AUTHORITY), pem(issuer.der()).as_bytes())?;
    let issuer = rcgen::Issuer::new(authority, key);
    let own = rcgen::KeyPair::generate().map_err(|cause| failed(&cause))?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let leaf = rcgen::CertificateParams::new(names).map_err(|cause| failed(&cause))?;
    let leaf = leaf.signed_by(&own, &issuer).map_err(|cause| failed(&cause))?;
    let chain: Vec<CertificateDer<'static>> = vec![leaf.der().clone()];
    let key = PrivateKeyDer::try_from(own.serialize_der()).map_err(|cause| failed(&cause))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| failed(&cause))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|cause| failed(&cause))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for place in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
                text.push(if place > three.len() { '=' } else { char::from(digit) });
            }
        }
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// Answers the requests of one connection.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> Option<()> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return Some(());
            }
        };
        let head = std::str::from_utf8(&buffer[..end]).ok()?;
        let path = head.split(' ').nth(1)?;
        if path == "/json" {
            stream.write_all(SHORT.as_bytes()).await.ok()?;
        } else if let Some(size) = path.strip_prefix("/bytes/").and_then(|size| size.parse().ok()) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.ok()?;
            send(&mut stream, size).await?;
        } else {
            let none = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(none).await.ok()?;
        }
        stream.flush().await.ok()?;
        buffer.drain(..end);
    }
}

/// The whole answer to `/json`.
const SHORT: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n\
                     {\"status\":\"ok\",\"service\":\"bench\"}\n";

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, size: usize) -> Option<()> {
    let piece: Vec<u8> = (0..PIECE).map(|at| (at * 31 % 251) as u8).collect();
    let mut left = size;
    while left > 0 {
        let now = left.min(PIECE);
        stream.write_all(&piece[..now]).await.ok()?;
        left -= now;
    }
    Some(())
}

/// Answers each question with 192.0.2.1.
async fn answer_names(socket: UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
        // A header, then the question, which `bench __tool dns` puts last.
        if count < 17 {
            continue;
        }
        let mut answer = buffer[..count].to_vec();
        (answer[2], answer[3], answer[7]) = (0x84, 0x80, 1);
        answer.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1]);
        let _ = socket.try_send_to(&answer, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_answer_is_as_long_as_it_says() {
        assert!(SHORT.ends_with(JSON));
        assert!(SHORT.contains(&format!("Content-Length: {}\r\n", JSON.len())));
    }

    #[test]
    fn certificates_are_written_as_others_write_them() {
        assert_eq!(
            pem(b"a certificate"),
            "-----BEGIN CERTIFICATE-----\nYSBjZXJ0aWZpY2F0ZQ==\n-----END CERTIFICATE-----\n"
        );
    }
}
