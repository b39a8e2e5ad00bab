//! Names on the host: `/etc/hosts`, then the servers of `/etc/resolv.conf`, asked directly.
//!
//! Not by `getaddrinfo(3)`: in a static binary it loads the host's NSS modules, and it blocks a
//! thread for each name.

mod configuration;
mod hosts;

use crate::dns::encode;
use configuration::Configuration;
use hosts::{in_hosts, names_in_hosts};
use ringfence_policy::Host;
use std::collections::HashMap;
use std::io::{self, ErrorKind::NotFound, ErrorKind::PermissionDenied};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
/// The least and the most that an answer is kept.
const SHORTEST: u64 = 5;
const LONGEST: u64 = 60;
/// The most answers that are kept.
const MOST_KEPT: usize = 4096;

/// The most addresses of a family that are taken of an answer, in which thousands fit.
const MOST_FOUND: usize = 64;
/// The most names of one address: lists of what is not to be reached give one to very many.
const MOST_NAMES: usize = 64;

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
        let of_file = self.listed(name)?;
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

    /// The addresses that this host's own file gives a name, which nobody else is asked about then.
    ///
    /// # Errors
    /// A sentence: it cannot be read.
    pub fn listed(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        Ok(in_hosts(&read(&self.hosts)?, name))
    }

    /// The names that this host's own file gives an address.
    ///
    /// # Errors
    /// A sentence: it cannot be read.
    pub fn names(&self, address: IpAddr) -> Result<Vec<Host>, String> {
        let text = read(&self.hosts)?;
        let names = names_in_hosts(&text, address).filter_map(|name| Host::parse(name).ok());
        Ok(names.take(MOST_NAMES).collect())
    }

    async fn ask(&self, name: &str) -> Result<(Vec<IpAddr>, u64), String> {
        let text = read(&self.configuration)?;
        let configuration = Configuration::of(&text);
        let mut failure = "no name server answers".to_owned();
        for full in configuration.spellings(name) {
            match lookup(&configuration, &full).await {
                [Err(reason), Err(_)] => failure = reason,
                [four, six] => {
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

/// The text of a file; of one that is not there for this user, nothing, as the C library takes it. What cannot be read for
/// another reason may say what must not be passed over.
fn read(path: &Path) -> Result<String, String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if matches!(error.kind(), NotFound | PermissionDenied) => Ok(String::new()),
        Err(error) => {
            Err(format!("{} cannot be read: {}", path.display(), crate::flow::io_text(&error)))
        }
    }
}

/// Addresses, and for how many seconds; or why there are none.
type Found = Result<(Vec<IpAddr>, u64), String>;

/// What is asked of a server, and what it said.
struct Question {
    kind: u16,
    query: Vec<u8>,
    answer: Option<Vec<u8>>,
}

/// The addresses of both families. While it is asked for them, a connection has no other descriptor than its client's:
/// so one socket is for both questions, and it stays within its two.
async fn lookup(configuration: &Configuration, name: &str) -> [Found; 2] {
    let kinds = [TYPE_A, TYPE_AAAA];
    let mut found = kinds.map(|_| Found::Err("no name server answers".to_owned()));
    let mut known = [false; 2];
    for server in configuration
        .servers
        .iter()
        .cycle()
        .take(configuration.servers.len() * configuration.rounds)
    {
        let mut asked: Vec<Question> = std::iter::zip(kinds, known)
            .filter(|(_, known)| !known)
            .map(|(kind, _)| Question { kind, query: query(name, kind), answer: None })
            .collect();
        if asked.is_empty() {
            break;
        }
        let failure =
            match tokio::time::timeout(configuration.patience, exchange(*server, &mut asked)).await
            {
                Ok(Ok(())) => format!("the name server {} gave no answer", server.ip()),
                Ok(Err(error)) => {
                    format!("the name server {}: {}", server.ip(), crate::flow::io_text(&error))
                }
                Err(_) => format!("the name server {} does not answer", server.ip()),
            };
        for Question { kind, query, answer } in asked {
            let at = usize::from(kind != TYPE_A);
            let answer = answer.and_then(|answer| read_answer(&query, &answer, kind));
            (found[at], known[at]) = match answer {
                Some(Answer::Records(addresses, seconds)) => (Ok((addresses, seconds)), true),
                Some(Answer::NoSuchName) => (Err("the name does not exist".to_owned()), true),
                _ => (Err(failure.clone()), false),
            };
        }
    }
    found
}

/// Asks over UDP, and over TCP where an answer did not fit. What was answered before an error is there.
async fn exchange(server: SocketAddr, asked: &mut [Question]) -> io::Result<()> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A socket of its own for each name: its port is as hard to guess as the number.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    for question in &*asked {
        socket.send(&question.query).await?;
    }
    let mut buffer = vec![0; 4096];
    while asked.iter().any(|question| question.answer.is_none()) {
        let count = socket.recv(&mut buffer).await?;
        let said = &buffer[..count];
        let of_it =
            |question: &&mut Question| question.answer.is_none() && answers(said, &question.query);
        if let Some(question) = asked.iter_mut().find(of_it) {
            question.answer = Some(said.to_vec());
        }
    }
    drop(socket);
    for question in asked {
        // A part of an answer is none.
        if question.answer.take_if(|said| is_cut_short(said)).is_some() {
            question.answer = Some(over_tcp(server, &question.query).await?);
        }
    }
    Ok(())
}

/// Whether a message is an answer to this query.
fn answers(said: &[u8], query: &[u8]) -> bool {
    said.len() >= 12 && said[..2] == query[..2] && said[2] & 0x80 != 0 && same_question(query, said)
}

/// Whether a message is only a part, by its TC bit (RFC 1035, section 4.1.1).
fn is_cut_short(message: &[u8]) -> bool {
    message[2] & 2 != 0
}

async fn over_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = (query.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(query);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
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

/// Reads an answer; nothing when it is broken, cut short or belongs to another question.
fn read_answer(query: &[u8], answer: &[u8], kind: u16) -> Option<Answer> {
    if answer.len() < 12 || answer[..2] != query[..2] || !same_question(query, answer) {
        return None;
    }
    // RFC 2181, section 9. One is left where the other question's answer did not come in time, or not over TCP.
    if is_cut_short(answer) {
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
    addresses.truncate(MOST_FOUND);
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
        let names = |address| names_in_hosts(text, ip(address)).collect::<Vec<_>>();
        assert_eq!(names("10.0.0.1"), ["a.org", "A.alias"]);
        assert_eq!(names("::1"), ["localhost"]);
        assert_eq!(names("10.0.0.9"), Vec::<&str>::new());
        let text = "0:0::0001 a.org\n::ffff:10.0.0.1 b.org\n10.0.0.01 c.org";
        assert_eq!(names_in_hosts(text, ip("::1")).collect::<Vec<_>>(), ["a.org"]);
        assert_eq!(names_in_hosts(text, ip("10.0.0.1")).next(), None);
        assert_eq!(in_hosts(text, "c.org"), Vec::<IpAddr>::new());
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

    /// They are kept, and judged one by one.
    #[test]
    fn of_very_many_addresses_some_are_taken() {
        let query = query("a.org", TYPE_A);
        let answer = |count: u8| {
            let record = |last| [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, last];
            let mut answer =
                [&query[..], &(0..count).flat_map(record).collect::<Vec<_>>()].concat();
            (answer[2], answer[7]) = (answer[2] | 0x80, count);
            match read_answer(&query, &answer, TYPE_A) {
                Some(Answer::Records(found, 9)) => found.len(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(answer(MOST_FOUND as u8), MOST_FOUND);
        assert_eq!(answer(255), MOST_FOUND);
    }

    /// An answer to a query: one address, and whether it is cut short.
    fn says(query: &[u8], short: bool) -> Vec<u8> {
        let mut answer = query.to_vec();
        answer[2] |= if short { 0x82 } else { 0x80 };
        answer[7] = u8::from(!short);
        if !short {
            let six = query[query.len() - 3] == TYPE_AAAA as u8;
            let data: &[u8] = if six { &[0x20; 16] } else { &[192, 0, 2, 1] };
            answer.extend([0xC0, 12, 0, query[query.len() - 3], 0, 1, 0, 0, 0, 30, 0]);
            answer.push(data.len() as u8);
            answer.extend(data);
        }
        answer
    }

    #[test]
    fn both_families_are_asked_for_over_one_socket() {
        use std::io::{Read, Write};
        let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let at = server.local_addr().expect("an address");
        let long = std::net::TcpListener::bind(at).expect("bound");
        let served = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..2 {
                let mut query = vec![0; 512];
                let (count, from) = server.recv_from(&mut query).expect("asked");
                query.truncate(count);
                asked.push((query, from));
            }
            let [(four, one), (six, other)] = &asked[..] else { panic!("two") };
            // In another order, after what is no answer, and one that has to be asked for anew.
            for said in [four.clone(), says(six, false), says(four, true)] {
                server.send_to(&said, one).expect("sent");
            }
            let (mut stream, _) = long.accept().expect("asked again");
            let mut query = vec![0; 2 + four.len()];
            stream.read_exact(&mut query).expect("read");
            assert_eq!(&query[2..], four);
            let answer = says(four, false);
            let length = (answer.len() as u16).to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).expect("sent");
            (*one, *other)
        });
        let configuration = Configuration { servers: vec![at], ..Configuration::of("") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let found = runtime.expect("a runtime").block_on(lookup(&configuration, "a.org"));
        let addresses = found.map(|found| found.expect("found").0);
        assert_eq!(addresses, [vec![IpAddr::from([192, 0, 2, 1])], vec![[0x20; 16].into()]]);
        let (one, other) = served.join().expect("served");
        assert_eq!(one, other, "one socket");
    }

    /// What does not come over TCP either is not taken for a name without addresses, of neither family.
    #[test]
    fn a_part_of_an_answer_is_none() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let at = server.local_addr().expect("an address");
        // Nobody listens there over TCP.
        let served = std::thread::spawn(move || {
            for _ in 0..4 {
                let mut query = vec![0; 512];
                let (count, from) = server.recv_from(&mut query).expect("asked");
                server.send_to(&says(&query[..count], true), from).expect("sent");
            }
        });
        let configuration = Configuration { servers: vec![at], ..Configuration::of("") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let found = runtime.expect("a runtime").block_on(lookup(&configuration, "a.org"));
        for found in found {
            let error = found.expect_err("a part");
            assert!(error.starts_with("the name server 127.0.0.1: "), "{error}");
        }
        served.join().expect("served");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (here, nowhere) = (std::env::temp_dir(), PathBuf::from("/nowhere"));
        for (hosts, configuration) in [(here.clone(), nowhere.clone()), (nowhere, here)] {
            let resolver = Resolver::of(hosts, configuration);
            let error = runtime.block_on(resolver.resolve("a.invalid")).expect_err("unread");
            assert!(error.ends_with("cannot be read: Is a directory"), "{error}");
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
