use super::*;

/// A flow of a peer to a server, with nothing of the sandbox's between: all is on this host's loopback.
fn flow(port: &Port, server: SocketAddr, silent: Duration) -> (std::net::UdpSocket, Arc<Flow>) {
    let bound = || std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let (peer, socket) = (bound(), bound());
    socket.set_nonblocking(true).expect("set");
    let peer_address = (peer.local_addr().expect("an address"), None);
    let flow = Arc::new(Flow {
        id: 0,
        number: 0,
        told: true,
        peer: peer_address,
        socket: UdpSocket::from_std(socket).expect("watched"),
        target: server,
        begun: Instant::now() - silent,
        last: AtomicU64::default(),
        sent: AtomicU64::default(),
        received: AtomicU64::default(),
        task: OnceLock::new(),
    });
    let room = crowd::flow().expect("room");
    locked(&port.flows).insert(peer_address, (flow.clone(), room));
    (peer, flow)
}

#[test]
fn an_answer_that_has_come_arrives_before_a_place_is_given_away() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let at = server.local_addr().expect("an address");
        let source = ringfence_policy::Source {
            origin: "option --publish".to_owned(),
            key: String::new(),
            text: "7003/udp".to_owned(),
        };
        let port = Port {
            publish: Publish {
                transport: ringfence_policy::Transport::Udp,
                address: Ipv4Addr::LOCALHOST.into(),
                host_port: 7003,
                port: 7003,
                source,
            },
            host: std::net::UdpSocket::bind("127.0.0.1:0").expect("bound"),
            within: Within::of(std::process::id() as i32).expect("our own"),
            targets: Mutex::default(),
            flows: Mutex::default(),
            process: None,
            teller: None,
            told: Mutex::default(),
            next: AtomicU64::new(FIRST),
            full: AtomicBool::default(),
        };
        let (peer, first) = flow(&port, at, Duration::from_secs(9));
        let (_, second) = flow(&port, at, Duration::from_secs(5));
        server.send_to(b"answer", first.socket.local_addr().expect("an address")).expect("sent");
        // The first was silent longer, but it is answered.
        assert!(port.make_room().is_some());
        let mut heard = [0; 16];
        peer.set_nonblocking(true).expect("set");
        assert_eq!(peer.recv(&mut heard).ok(), Some(6));
        assert_eq!(&heard[..6], b"answer");
        let left: Vec<Peer> = locked(&port.flows).keys().copied().collect();
        assert_eq!(left, [first.peer]);
        assert_ne!(first.peer, second.peer);
        // Whoever was answered a moment ago keeps its place.
        assert!(port.make_room().is_none());
    });
}
