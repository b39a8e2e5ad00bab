//! `dns ADDRESS NAME QUESTIONS SOCKETS`: a load generator for a resolver. Each socket has one question
//! under way; an answer without an address, or none within two seconds, makes the whole run fail.

use super::{number, print, text};
use crate::error::{Result, error};
use crate::model::Better;
use crate::stats;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// How long an answer may take: the kernel loses no packet on a loopback unless a queue is full.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let to: SocketAddr = number(args, 0)?;
    let query = query(text(args, 1)?);
    let (questions, sockets): (usize, usize) = (number(args, 2)?, number(args, 3)?);
    let share = questions.div_ceil(sockets.max(1));
    let began = Instant::now();
    let mut latencies = Vec::with_capacity(questions);
    super::runtime()?.block_on(async {
        let clients: Vec<_> =
            (0..sockets).map(|_| tokio::spawn(client(to, query.clone(), share))).collect();
        for client in clients {
            let gone = |cause| error!("bench: dns: a task ended: {cause}");
            latencies.extend(client.await.map_err(gone)??);
        }
        Ok::<(), crate::error::Error>(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    print("answers", "1/s", Better::Higher, latencies.len() as f64 / seconds);
    for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
        print(name, "ms", Better::Lower, stats::quantile(&latencies, q));
    }
    Ok(0)
}

/// A question for the IPv4 address of a name (RFC 1035 §4.1).
fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    query
}

async fn client(to: SocketAddr, mut query: Vec<u8>, count: usize) -> Result<Vec<f64>> {
    let failed = |cause: std::io::Error| error!("bench: dns: {cause}");
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await.map_err(failed)?;
    socket.connect(to).await.map_err(failed)?;
    let mut times = Vec::with_capacity(count);
    let mut buffer = [0; 512];
    for number in 0..count {
        query[..2].copy_from_slice(&(number as u16).to_be_bytes());
        let begun = Instant::now();
        socket.send(&query).await.map_err(failed)?;
        let answered = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await;
        let lost = |_| error!("bench: dns: a question was lost: no answer within 2 s");
        let length = answered.map_err(lost)?.map_err(failed)?;
        let good = length > 8 && buffer[..2] == query[..2] && buffer[3] & 15 == 0 && buffer[7] == 1;
        if !good {
            return Err(error!("bench: dns: the answer has no address"));
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}
