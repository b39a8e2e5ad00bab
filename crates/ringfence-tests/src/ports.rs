//! Ports of the host that nobody has.

use std::net::{TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The lowest that is given.
const FIRST: u32 = 12_000;

/// Where the kernel's range begins of those that it gives to whoever asks for any (ip(7), `ip_local_port_range`).
fn kernels() -> u32 {
    static LOWEST: OnceLock<u32> = OnceLock::new();
    *LOWEST.get_or_init(|| {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let lowest = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
        lowest.unwrap_or(FIRST)
    })
}

/// A port, TCP's and UDP's, that nobody has, nor is given by the kernel or by this to anybody else: no neighbour takes it
/// while the test waits for its being free. Where the kernel gives all of them, it is one that was free just now.
///
/// # Panics
/// All are taken.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = kernels().saturating_sub(FIRST);
    // Of tests that are run beside these each process begins at a place of its own.
    let begin = std::process::id().wrapping_mul(61);
    for _ in 0..count {
        let next = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (FIRST + next % count) as u16;
        let udp = || UdpSocket::bind(("::", port)).or_else(|_| UdpSocket::bind(("0.0.0.0", port)));
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && udp().is_ok() {
            return port;
        }
    }
    assert_eq!(count, 0, "a port is free");
    let any = TcpListener::bind("127.0.0.1:0").and_then(|any| any.local_addr());
    any.expect("a port is free").port()
}
