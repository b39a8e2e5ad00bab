//! `serve`: a small HTTP/1.1 server on 127.0.0.1: `/json` a short answer, `/bytes/N` N bytes.
//!
//! It is a fixture, so it must be out of the way: a thread for each connection, kept alive, answers
//! made beforehand. The host-direct lane shows how fast it is by itself.

use crate::error::{Result, error};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// What `/json` answers.
pub const JSON: &str = "{\"status\":\"ok\",\"service\":\"bench\"}\n";

/// The pieces that `/bytes/N` is sent in.
const PIECE: usize = 256 * 1024;

/// Runs the tool: prints the port, serves until standard input closes.
pub fn run(_args: &[OsString]) -> Result<i32> {
    let failed = |cause: std::io::Error| error!("bench: serve: {cause}");
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
    println!("{}", listener.local_addr().map_err(failed)?.port());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream));
        }
    });
    let mut stdin = std::io::stdin().lock();
    while matches!(stdin.read(&mut [0; 64]), Ok(1..)) {}
    Ok(0)
}

/// Answers the requests of one connection.
fn serve(mut stream: &TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return Some(());
        }
        let path = line.split(' ').nth(1)?.to_owned();
        loop {
            line.clear();
            if reader.read_line(&mut line).ok()? <= 2 {
                break;
            }
        }
        if let Some(size) = path.strip_prefix("/bytes/").and_then(|size| size.parse::<usize>().ok())
        {
            let head = head("200 OK", size);
            stream.write_all(head.as_bytes()).ok()?;
            send(stream, size)?;
        } else if path == "/json" {
            stream
                .write_all([head("200 OK", JSON.len()).as_str(), JSON].concat().as_bytes())
                .ok()?;
        } else {
            stream.write_all(head("404 Not Found", 0).as_bytes()).ok()?;
        }
    }
}

fn head(status: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

fn send(mut stream: &TcpStream, size: usize) -> Option<()> {
    let piece: Vec<u8> = (0..PIECE).map(|at| (at * 31 % 251) as u8).collect();
    let mut left = size;
    while left > 0 {
        let now = left.min(PIECE);
        stream.write_all(&piece[..now]).ok()?;
        left -= now;
    }
    Some(())
}
