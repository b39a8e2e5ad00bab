//! Programs whose first thread has ended, and which go on with others.

use ringfence_tests::everywhere;

/// A thread binds and connects a socket when the first one has ended.
const ALONE: &str = r#"
import ctypes, os, socket, threading
def thread(first):
    while "Z" not in open(f"/proc/self/task/{first}/stat").read().rsplit(")", 1)[1].split()[0]:
        os.sched_yield()
    try:
        server = socket.socket()
        server.bind(("127.0.0.1", 0))
        server.listen()
        socket.create_connection(server.getsockname()).close()
        os.write(1, b"connected\n")
    except OSError as error:
        os.write(1, str(error).encode())
    os._exit(0)
threading.Thread(target=thread, args=(os.getpid(),)).start()
ctypes.CDLL(None).pthread_exit(None)
"#;

#[test]
fn supervised_calls_are_answered_when_the_first_thread_has_ended() {
    everywhere(|place| {
        place.file("home/project/alone.py", ALONE);
        let run = place.run(&["-n", "example.org"], &["/usr/bin/python3", "alone.py"]);
        run.ends(0);
        assert_eq!(run.text(), "connected", "{}", run.err);
    });
}
