//! How many names there can be.

use crate::world::Sandbox;
use ringfence_net::{Event, NetDecision, Way};

/// All of them.
pub const ALL: &[(&str, fn())] = &[("names_beyond_the_most_are_told", names_beyond_the_most)];

/// The last ones get no address, which is told once; those that have one keep it.
fn names_beyond_the_most() {
    let script = r#"
python3 - <<'EOF'
import socket, struct, threading
def query(name):
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    q = b"\x07\x07\x01\x00\x00\x01" + bytes(6) + labels + b"\0\0\1\0\1"
    return struct.pack(">H", len(q)) + q
s = socket.create_connection(("8.8.8.8", 53), 60)
names = ["n%d.test" % n for n in range(65536)] + ["one.more.test", "two.more.test", "n7.test"]
threading.Thread(target=lambda: s.sendall(b"".join(map(query, names)))).start()
f = s.makefile("rb")
codes = [f.read(struct.unpack(">H", f.read(2))[0])[3] & 15 for _ in names]
print(codes.count(0), codes[-3:])
EOF"#;
    let ran = Sandbox::new(&["*"], &[], "").run(script, vec![]);
    assert_eq!(ran.output, "65537 [2, 2, 0]\n");
    let told = |d: &&NetDecision| d.way == Way::Dns(1) && matches!(d.event, Event::Failed(_));
    let told: Vec<_> = ran.decisions.iter().filter(told).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].host.to_string(), "one.more.test");
    assert!(format!("{:?}", told[0].event).contains("65536 names were used within 300 seconds"));
}
