//! Names on the host: `/etc/hosts`, then the servers of `/etc/resolv.conf`, asked directly.
//!
//! Not by `getaddrinfo(3)`: in a static binary it loads the host's NSS modules, and it blocks a
//! thread for each name.

use crate::dns::encode;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
/// How long a server may take, and how often all are asked.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
/// The least and the most that an answer is kept.
const SHORTEST: u64 = 5;
const LONGEST: u64 = 60;
/// The most answers that are kept.
const MOST_KEPT: usize = 4096;

/// Resolves names as this host does.
#[derive(Debug)]
pub struct Resolver {
    hosts: PathBuf,
    configuration: PathBuf,
    kept: Mutex<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver::of("/etc/hosts".into(), "/etc/resolv.conf".into())
    }
}

impl Resolver {
    /// A resolver that reads these two files (hosts(5), resolv.conf(5)).
    pub fn of(hosts: PathBuf, configuration: PathBuf) -> Resolver {
        Resolver { hosts, configuration, kept: Mutex::default() }
    }

    /// The addresses of a name, IPv4 first.
    ///
    /// # Errors
    /// A sentence: no such name, no server answers.
    pub async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let now = Instant::now();
        {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((until, addresses)) = kept.get(name).filter(|(until, _)| *until > now) {
                let _ = until;
                return Ok(addresses.clone());
            }
        }
        let text = std::fs::read_to_string(&self.hosts).unwrap_or_default();
        let of_file = in_hosts(&text, name);
        let (addresses, seconds) =
            if of_file.is_empty() { self.ask(name).await? } else { (of_file, SHORTEST) };
        let until = now + Duration::from_secs(seconds.clamp(SHORTEST, LONGEST));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(name.to_owned(), (until, addresses.clone()));
        Ok(addresses)
    }

    async fn ask(&self, name: &str) -> Result<(Vec<IpAddr>, u64), String> {
        let text = std::fs::read_to_string(&self.configuration).unwrap_or_default();
        let configuration = Configuration::of(&text);
        let mut failure = "no name server answers".to_owned();
        for full in configuration.spellings(name) {
            let four = lookup(&configuration, &full, TYPE_A);
            let six = lookup(&configuration, &full, TYPE_AAAA);
            // The second question waits in the socket while the first answer is read.
            let (four, six) = both(four, six).await;
            match (four, six) {
                (Err(reason), Err(_)) => failure = reason,
                (four, six) => {
                    let (mut addresses, first) = four.unwrap_or((Vec::new(), LONGEST));
                    let (more, second) = six.unwrap_or((Vec::new(), LONGEST));
                    addresses.extend(more);
                    if !addresses.is_empty() {
                        return Ok((addresses, first.min(second)));
                    }
                    failure = "it has no address".to_owned();
                }
            }
        }
        Err(failure)
    }
}

/// Waits for both.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(move |context| {
        use std::task::Poll;
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(context)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// The addresses that a hosts file gives a name.
fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = text
        .lines()
        .filter_map(|line| {
            let line = line.split('#').next().unwrap_or(line);
            let mut words = line.split_whitespace();
            let address: IpAddr = words.next()?.parse().ok()?;
            let same = |word: &str| word.trim_end_matches('.').eq_ignore_ascii_case(name);
            words.any(same).then_some(address)
        })
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

/// What resolv.conf says.
#[derive(Debug, PartialEq, Eq)]
struct Configuration {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
}

impl Configuration {
    fn of(text: &str) -> Configuration {
        let mut servers = Vec::new();
        let mut search = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    servers.extend(address.map(|address| SocketAddr::new(address, 53)));
                }
                Some("search" | "domain") => {
                    search = words.map(|word| word.trim_end_matches('.').to_owned()).collect();
                }
                _ => {}
            }
        }
        if servers.is_empty() {
            servers.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 53)));
        }
        servers.truncate(3);
        search.truncate(6);
        Configuration { servers, search }
    }

    /// A name with a dot is whole; another may be short for one of a search domain.
    fn spellings(&self, name: &str) -> Vec<String> {
        let mut spellings = Vec::new();
        if !name.contains('.') {
            spellings.extend(self.search.iter().map(|domain| format!("{name}.{domain}")));
        }
        spellings.push(name.to_owned());
        spellings
    }
}

async fn lookup(
    configuration: &Configuration,
    name: &str,
    kind: u16,
) -> Result<(Vec<IpAddr>, u64), String> {
    let mut failure = "no name server answers".to_owned();
    for server in configuration.servers.iter().cycle().take(configuration.servers.len() * ROUNDS) {
        let query = query(name, kind);
        match tokio::time::timeout(PATIENCE, exchange(*server, &query)).await {
            Ok(Ok(answer)) => match read_answer(&query, &answer, kind) {
                Some(Answer::Records(addresses, seconds)) => return Ok((addresses, seconds)),
                Some(Answer::NoSuchName) => return Err("the name does not exist".to_owned()),
                _ => failure = format!("the name server {} gave no answer", server.ip()),
            },
            Ok(Err(error)) => {
                failure =
                    format!("the name server {}: {}", server.ip(), crate::flow::io_text(&error));
            }
            Err(_) => failure = format!("the name server {} does not answer", server.ip()),
        }
    }
    Err(failure)
}

/// Asks over UDP, and over TCP when the answer did not fit.
async fn exchange(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A socket of its own for each question: its port is as hard to guess as the number.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut answer = vec![0; 4096];
    loop {
        let count = socket.recv(&mut answer).await?;
        let head = &answer[..count];
        if count < 12
            || head[..2] != query[..2]
            || head[2] & 0x80 == 0
            || !same_question(query, head)
        {
            continue;
        }
        if head[2] & 2 == 0 {
            answer.truncate(count);
            return Ok(answer);
        }
        break;
    }
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = (query.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(query);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    answer.resize(usize::from(length), 0);
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn query(name: &str, kind: u16) -> Vec<u8> {
    let id = ringfence_sys::identity::random() as u16;
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    out.extend(encode(name));
    out.extend(kind.to_be_bytes());
    out.extend([0, 1]);
    out
}

fn same_question(query: &[u8], answer: &[u8]) -> bool {
    let question = &query[12..];
    answer.get(12..12 + question.len()).is_some_and(|other| other.eq_ignore_ascii_case(question))
}

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// These addresses, for so many seconds; there may be none.
    Records(Vec<IpAddr>, u64),
    /// There is no such name.
    NoSuchName,
    /// It cannot tell.
    Failure,
}

/// Reads an answer; nothing when it is broken or belongs to another question.
fn read_answer(query: &[u8], answer: &[u8], kind: u16) -> Option<Answer> {
    if answer.len() < 12 || answer[..2] != query[..2] || !same_question(query, answer) {
        return None;
    }
    match answer[3] & 15 {
        0 => {}
        3 => return Some(Answer::NoSuchName),
        _ => return Some(Answer::Failure),
    }
    let records = u16::from_be_bytes([answer[6], answer[7]]);
    let mut at = query.len();
    let (mut addresses, mut seconds) = (Vec::new(), LONGEST);
    for _ in 0..records {
        at = after_name(answer, at)?;
        let head = answer.get(at..at + 10)?;
        let found = u16::from_be_bytes([head[0], head[1]]);
        let ttl = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = answer.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        seconds = seconds.min(u64::from(ttl));
        if found != kind {
            continue;
        }
        match (kind, data.len()) {
            (TYPE_A, 4) => addresses.push(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            (TYPE_AAAA, 16) => addresses.push(IpAddr::from(<[u8; 16]>::try_from(data).ok()?)),
            _ => return None,
        }
    }
    Some(Answer::Records(addresses, seconds))
}

/// Where the name that stands at `at` ends.
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xC0 == 0xC0 => return Some(at + 2),
            length if length > 63 => return None,
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hosts_file_is_read_as_the_c_library_reads_it() {
        let text =
            "# x\n::1 localhost\n10.0.0.1\ta.org A.alias # b.org\n10.0.0.2 a.org\nbad a.org\n";
        let ip = |text: &str| text.parse::<IpAddr>().expect(text);
        assert_eq!(in_hosts(text, "a.org"), [ip("10.0.0.1"), ip("10.0.0.2")]);
        assert_eq!(in_hosts(text, "a.alias"), [ip("10.0.0.1")]);
        assert_eq!(in_hosts(text, "b.org"), Vec::<IpAddr>::new());
    }

    #[test]
    fn servers_and_search_domains_are_taken_and_there_is_always_a_server() {
        let read = Configuration::of(
            "search corp.example. x\nnameserver 10.0.0.53\nnameserver fe80::1%2\n",
        );
        assert_eq!(read.servers, ["10.0.0.53:53".parse().expect("an address")]);
        assert_eq!(read.spellings("db"), ["db.corp.example", "db.x", "db"]);
        assert_eq!(read.spellings("a.org"), ["a.org"]);
        assert_eq!(Configuration::of("").servers.len(), 1);
    }

    #[test]
    fn addresses_behind_an_alias_are_taken_and_other_answers_are_not() {
        let query = query("a.org", TYPE_A);
        let mut answer = query.clone();
        answer[2] |= 0x80;
        answer[7] = 2;
        answer.extend([0xC0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 3, 1, b'b', 0]);
        answer.extend([1, b'b', 0, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 1]);
        let found = vec![IpAddr::from([192, 0, 2, 1])];
        assert_eq!(read_answer(&query, &answer, TYPE_A), Some(Answer::Records(found, 9)));
        let mut other = answer.clone();
        other[0] ^= 1;
        assert_eq!(read_answer(&query, &other, TYPE_A), None);
        other = answer.clone();
        other[13] = b'c';
        assert_eq!(read_answer(&query, &other, TYPE_A), None);
        for length in 12..answer.len() {
            assert!(!matches!(
                read_answer(&query, &answer[..length], TYPE_A),
                Some(Answer::Records(..))
            ));
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let query = query("a.org", TYPE_A);
            let _ = read_answer(&query, &bytes, TYPE_A);
            let whole = [&query[..], &bytes].concat();
            let _ = read_answer(&query, &whole, TYPE_A);
        }
    }
}
