//! Modes, owners, times and attributes: the program's own to change where it may write, and
//! nowhere else, by whichever of the many calls and ways to name a file.

use ringfence_tests::{Place, everywhere};

/// Every way to reach `there`, of which the caller is the owner, and `here`, which may be
/// written. Prints the errno of each act on each.
const ACTS: &str = r#"
import ctypes, errno, os, sys
there, here = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def way(path):
    folder, name = os.path.split(path)
    d = os.open(folder, os.O_PATH)
    f = None
    try: f = os.open(path, os.O_RDONLY)
    except OSError: pass
    p = os.open(path, os.O_PATH)
    os.symlink(path, 'link') if not os.path.islink('link') else None
    yield 'chmod', lambda: os.chmod(path, 0o640)
    yield 'relative', lambda: os.chmod(os.path.relpath(path), 0o640)
    yield 'dotted', lambda: os.chmod('./../project/../../' + os.path.relpath(path, '../..'), 0o640)
    yield 'link', lambda: os.chmod('link', 0o640)
    yield 'fchmodat', lambda: os.chmod(name, 0o640, dir_fd=d)
    yield 'own', lambda: os.chmod('/proc/self/fd/%d' % p, 0o640)
    yield 'thread', lambda: os.chmod('/proc/thread-self/fd/%d' % p, 0o640)
    yield 'root', lambda: os.chmod('/proc/self/root' + path, 0o640)
    yield 'cwd', lambda: os.chmod('/proc/self/cwd/' + os.path.relpath(path), 0o640)
    yield 'utime', lambda: os.utime(path, (1, 1))
    yield 'utimensat', lambda: os.utime(name, (1, 1), dir_fd=d)
    yield 'chown', lambda: os.chown(path, os.getuid(), os.getgid())
    yield 'lchown', lambda: os.lchown(path, os.getuid(), os.getgid())
    yield 'truncate', lambda: os.truncate(path, 0)
    if f is not None:
        yield 'fchmod', lambda: os.fchmod(f, 0o640)
        yield 'futimens', lambda: os.utime(f, (1, 1))
        yield 'fchown', lambda: os.fchown(f, os.getuid(), os.getgid())
    yield 'creat', lambda: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    yield 'hardlink', lambda: os.link(path, 'hard')
    yield 'rename', lambda: os.rename(path, path + '.new')
def tried(path):
    for name, act in way(path):
        try: act(); print(name, 'done')
        except OSError as error: print(name, errno.errorcode[error.errno])
    if os.path.islink('link'): os.unlink('link')
try:
    print('there'); tried(there)
except OSError as error:
    print('all', errno.errorcode[error.errno])
print('control'); tried(here)
"#;

fn state(place: &Place) -> String {
    let secret = place.text("outside/secret");
    place.shell(&format!("stat -c '%a %u %g %Y %Z %h %s' {secret}; cat {secret}")).well()
}

#[test]
fn no_call_and_no_name_changes_what_is_only_readable() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/acts.py", ACTS);
        place.file("home/project/mine", "mine");
        let secret = place.text("outside/secret");
        let mine = place.text("home/project/mine");
        for options in [&["-r", &secret][..], &["-r", &place.text("outside")], &[]] {
            let before = state(place);
            let said = place.run(options, &["python3", "acts.py", &secret, &mine]).well();
            let (there, here) = said.split_once("control\n").unwrap();
            let who = format!("{:?} {:?} {options:?}", place.person, place.tier);
            let done: Vec<_> = there.lines().filter(|line| line.ends_with("done")).collect();
            assert_eq!(done, [""; 0], "{who}");
            assert_eq!(state(place), before, "{who}: {there}");
            let failed: Vec<_> = here.lines().filter(|line| !line.ends_with("done")).collect();
            assert_eq!(failed, [""; 0], "the control, {who}");
            place.shell("mv mine.new mine; rm -f hard link").ends(0);
        }
    });
}

#[test]
fn a_name_that_changes_while_it_is_judged_leads_nowhere_else() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/mine", "mine");
        place.directory("home/project/d");
        // One process exchanges what a name stands for as fast as it can, another acts on it.
        let script = r#"
import os, sys
there = sys.argv[1]
child = os.fork()
if child == 0:
    while True:
        for target in ('mine', there):
            os.symlink(target, 'd/next'); os.rename('d/next', 'd/name')
for _ in range(3000):
    try: os.chmod('d/name', 0o604)
    except OSError: pass
os.kill(child, 9)
"#;
        let secret = place.text("outside/secret");
        let before = state(place);
        place.run(&["-r", &secret], &["python3", "-c", script, &secret]).ends(0);
        assert_eq!(state(place), before, "{:?} {:?}", place.person, place.tier);
    });
}

#[test]
fn programs_that_set_modes_and_times_work() {
    everywhere(|place| {
        place
            .sh(&[], "echo x > a && chmod 750 a && touch -d 2001-01-01 a && cp -p a b && cmp a b")
            .quiet();
        place
            .sh(&[], "mkdir d && cp -a a d/ && tar cf t.tar d && rm -r d && tar xpf t.tar")
            .quiet();
        place.sh(&[], "install -m 711 a c && ln -s a l && chmod -R u+w d").quiet();
        place
            .sh(
                &[],
                "cd ~ && touch f && chmod 600 f && cd ${TMPDIR:-/tmp} && touch g && chmod 600 g",
            )
            .quiet();
        let modes = place.shell("stat -c '%a %Y' a b d/a; stat -c %a c").well();
        let lines: Vec<&str> = modes.lines().collect();
        assert!(lines[0].starts_with("750 978") && lines[0] == lines[1], "{modes}");
        assert_eq!(lines[3], "711");
    });
}

/// Gives a file and a directory access lists, as `setfacl`, `tar --acls` and `rsync -A` do, prints them, and takes
/// the directory's away.
const LISTS: &str = r#"
import errno, os, struct, sys
entry = lambda tag, rights, who=0xFFFFFFFF: struct.pack('<HHI', tag, rights, who)
value = struct.pack('<I', 2) + entry(1, 6) + entry(2, 4, os.getuid()) + entry(4, 4) + entry(16, 4) + entry(32, 0)
def tried(what, act):
    try: print(what, act() or 'done')
    except OSError as error: print(what, errno.errorcode[error.errno])
for path in sys.argv[1:]:
    access, default = 'system.posix_acl_access', 'system.posix_acl_default'
    tried('set', lambda: os.setxattr(path, access, value))
    tried('default', lambda: os.setxattr(os.path.dirname(path), default, value))
    tried('is', lambda: os.getxattr(path, access) == value)
    tried('remove', lambda: os.removexattr(os.path.dirname(path), default))
"#;

#[test]
fn access_lists_are_the_programs_to_give_where_it_may_write() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/lists.py", LISTS);
        place.file("home/project/d/mine", "mine");
        let (outside, secret) = (place.text("outside"), place.text("outside/secret"));
        let done = "set done\ndefault done\nis True\nremove done";
        if place.shell("python3 lists.py d/mine").well().trim() != done {
            return;
        }
        place.file("home/project/e/mine", "mine");
        place.run(&[], &["python3", "lists.py", "e/mine"]).prints(done);
        let before = state(place);
        let listed = || {
            let print = "import os, sys; print(*map(os.listxattr, sys.argv[1:]))";
            place.shell(&format!("python3 -c '{print}' {outside} {secret}")).well()
        };
        let had = listed();
        let said = place.run(&["-r", &outside], &["python3", "lists.py", &secret]).well();
        assert!(!said.contains("done") && !said.contains("True"), "{said}");
        assert_eq!((state(place), listed()), (before, had));
    });
}

/// `cp -a` and `touch -h` act on a symbolic link itself, and on nothing that it leads to.
#[test]
fn a_link_is_changed_itself_where_it_may_be_and_never_what_it_leads_to() {
    everywhere(|place| {
        let (secret, link) = (place.text("outside/secret"), place.text("outside/link"));
        place.shell(&format!("ln -sf {secret} {link}; touch -h -d 2002-02-02 {link}")).ends(0);
        let before = state(place);
        let who = format!("{:?} {:?}", place.person, place.tier);
        let script = "mkdir d && ln -s f d/l && ln -s $0 d/out && touch -h -d 2001-01-01 d/l d/out && \
                      cp -a d e && chown -h $(id -u):$(id -g) e/l e/out && stat -c %Y e/l e/out";
        let said = place.run(&["-r", &secret], &["sh", "-c", script, &secret]).well();
        // The first of January 2001 in this machine's time zone.
        let then = place.shell("date -d 2001-01-01 +%s").well();
        assert_eq!(said, format!("{then}\n{then}"), "{who}");
        let refused = place.run(&["-r", &place.text("outside")], &["touch", "-h", &link]);
        assert_ne!(refused.code, 0, "{who}: {}", refused.err);
        let given = place.run(&[], &["sh", "-c", "chown -h 12345 e/l"]);
        assert_ne!(given.code, 0, "{who}: {}", given.err);
        let of_link = place.shell(&format!("date -d 2002-02-02 +%s; stat -c %Y {link}")).well();
        let (wanted, is) = of_link.split_once('\n').unwrap();
        assert_eq!(is, wanted, "{who}");
        assert_eq!(state(place), before, "{who}");
        place.shell(&format!("rm -r d e {link}")).ends(0);
    });
}

/// Who gives a file away is told what the kernel says outside: `fakeroot` and programs that copy put up with that.
#[test]
fn a_file_that_is_given_away_stays_with_the_same_word_as_outside() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = "import os, errno
open('f', 'w').close()
for user, group in ((12345, -1), (-1, 12345), (12345, 12345)):
    for act in (os.chown, os.lchown):
        try: act('f', user, group); print('given')
        except OSError as error: print(errno.errorcode[error.errno])
os.chown('f', os.getuid(), os.getgid()); os.chown('f', -1, -1); print('kept')";
        let said = place.run(&[], &["python3", "-c", script]).well();
        assert_eq!(
            said,
            format!("{}kept", "EPERM\n".repeat(6)),
            "{:?} {:?}",
            place.person,
            place.tier
        );
    });
}

/// `AT_EMPTY_PATH` names the directory itself only where the path is empty.
#[test]
fn a_path_that_may_be_empty_is_followed_where_it_is_not() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = "import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir('d', 0o755); os.close(os.open('d/f', os.O_CREAT, 0o644)); d = os.open('d', os.O_RDONLY)
def said(code): return 'done' if code == 0 else errno.errorcode[ctypes.get_errno()]
FCHMODAT2, EMPTY = 452, 0x1000
times = struct.pack('=qqqq', 1, 0, 1, 0)
def modes(): return '%o %o' % (os.stat('d').st_mode & 0o777, os.stat('d/f').st_mode & 0o777)
for name in (b'f', b'absent', b''):
    mode = libc.syscall(FCHMODAT2, d, name, 0o700, EMPTY)
    print(said(mode), modes(), said(libc.utimensat(d, name, times, EMPTY)), said(libc.fchownat(d, name, os.getuid(), -1, EMPTY)))
print(os.stat('d').st_mtime, os.stat('d/f').st_mtime)";
        std::fs::write(place.project("empty.py"), script).unwrap();
        let outside = place.shell("python3 empty.py; rm -r d").well();
        let inside = place.run(&[], &["python3", "empty.py"]).well();
        assert_eq!(inside, outside, "{:?} {:?}", place.person, place.tier);
        assert!(inside.contains("\nENOENT 755 700 ENOENT ENOENT\n"), "{inside}");
        place.shell("rm -r d empty.py").ends(0);
    });
}
