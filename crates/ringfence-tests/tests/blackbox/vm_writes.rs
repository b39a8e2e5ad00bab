//! `--tier vm`: what a guest's programs write is the host's, whole, when they are told so and when they end.

use super::vm::{guests, guests_of_one, ringfence, sh, start};
use ringfence_tests::Running;
use rustix::process::Signal;

/// Marks each page of a file through a mapping, and says `marked`. An appending handle is open as well:
/// the kernel writes pages back by whatever handle can write.
const MARK: &str = "\
import mmap, os, sys
pages = 1024
with open('mapped', 'w+b') as file:
    file.truncate(pages * 4096)
    view = mmap.mmap(file.fileno(), pages * 4096)
appending = open('mapped', 'ab')
for page in range(pages):
    view[page * 4096:page * 4096 + 4] = page.to_bytes(4, 'little')
";

/// Whether each page is marked, and nothing was appended.
fn marked(bytes: &[u8]) -> bool {
    let own = |(at, page): (usize, &[u8])| page[..4] == (at as u32).to_le_bytes();
    bytes.len() == 1024 * 4096 && bytes.chunks(4096).enumerate().all(own)
}

#[test]
fn what_programs_leave_in_mappings_reaches_the_host_before_the_run_ends() {
    guests(|place| {
        // Nobody unmaps it, nobody closes it: its program is killed with the guest.
        let holder = format!("{MARK}print('marked', flush=True)\nos.read(0, 1)\n");
        place.file("home/project/holder.py", holder);
        let script =
            "mkfifo said; sleep 1000 | python3 holder.py >said & read word <said; echo $word";
        assert_eq!(sh(place, &[], script).quiet(), "marked");
        assert!(marked(&std::fs::read(place.project("mapped")).unwrap()));
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn what_is_synced_is_on_the_host_when_all_is_killed() {
    guests(|place| {
        let program = format!(
            "{MARK}view.flush()\nwith open('plain', 'wb') as plain:\n    plain.write(b'x' * 100000)\n    \
             plain.flush()\n    os.fsync(plain.fileno())\n    print('marked', flush=True)\n    \
             os.read(0, 1)\n"
        );
        place.file("home/project/program.py", program);
        let mut running = start(place, &[], &["sh", "-c", "sleep 1000 | python3 program.py"]);
        running.printed("marked\n");
        running.signal(Signal::KILL);
        running.finish();
        assert!(marked(&std::fs::read(place.project("mapped")).unwrap()));
        assert_eq!(std::fs::read(place.project("plain")).unwrap(), [b'x'; 100_000]);
    });
}

#[test]
fn many_megabytes_are_the_same_bytes_both_ways() {
    // Whose they are makes no difference: they are what takes time here.
    guests_of_one(|place| {
        let size = 64_u32 << 20;
        let bytes: Vec<u8> =
            (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        place.file("home/project/big", &bytes);
        let mut command = ringfence(place, &["run", "--tier", "vm", "--"]);
        command.args(["sh", "-c", "head -c 1000000 big | cmp -n 1000000 - big; cat >copy"]);
        let ended = Running::start_with(command, bytes.clone()).finish();
        ended.ends(0);
        assert!(std::fs::read(place.project("copy")).unwrap() == bytes, "by a pipe, written");
        let ended = sh(place, &[], "cp big second; exec cat copy");
        assert!(ended.ends(0).out == bytes, "read, by a pipe");
        assert!(std::fs::read(place.project("second")).unwrap() == bytes, "read and written");
    });
}

#[test]
fn extended_attributes_that_are_a_users_own_are_the_hosts() {
    guests(|place| {
        let file = place.file("home/project/file", "");
        let set =
            rustix::fs::setxattr(&file, "user.outside", b"1", rustix::fs::XattrFlags::empty());
        if let Err(errno) = set {
            return ringfence_tests::left_out("extended attributes", &errno.to_string());
        }
        place.file(
            "home/project/program.py",
            "import os, errno\n\
             def call(name, *words):\n    \
                 try:\n        print(getattr(os, name)(*words))\n    \
                 except OSError as error:\n        print(errno.errorcode[error.errno])\n\
             call('listxattr', 'file')\n\
             call('getxattr', 'file', 'user.outside')\n\
             call('setxattr', 'file', 'user.inside', b'x' * 2000)\n\
             call('setxattr', 'file', 'user.inside', b'2', os.XATTR_CREATE)\n\
             call('removexattr', 'file', 'user.outside')\n\
             call('getxattr', 'file', 'user.outside')\n\
             call('setxattr', 'file', 'security.ringfence', b'3')\n\
             call('setxattr', '/etc/passwd', 'user.inside', b'4')\n",
        );
        let said = start(place, &[], &["python3", "program.py"]).finish().quiet();
        let lines: Vec<&str> = said.lines().collect();
        let expected =
            ["['user.outside']", "b'1'", "None", "EEXIST", "None", "ENODATA", "EPERM", "EROFS"];
        assert_eq!(lines, expected);
        let mut value = [0; 4096];
        let length = rustix::fs::getxattr(&file, "user.inside", &mut value[..]).unwrap();
        assert_eq!(value[..length], [b'x'; 2000]);
        assert!(rustix::fs::getxattr(&file, "user.outside", &mut value[..]).is_err());
        assert!(rustix::fs::getxattr("/etc/passwd", "user.inside", &mut value[..]).is_err());
    });
}

#[test]
fn a_name_that_is_too_long_is_refused_as_one() {
    guests_of_one(|place| {
        let (longest, longer) = ("x".repeat(255), "x".repeat(256));
        let script = format!(
            "echo kept >{longest} && cat {longest}; for what in 'mkdir {longer}' 'cat {longer}' \
             'mv {longest} {longer}'; do $what; done; true"
        );
        let ended = sh(place, &[], &script);
        ended.ends(0);
        assert_eq!(ended.text(), "kept");
        let said: Vec<&str> = ended.err.lines().collect();
        assert_eq!(said.len(), 3, "{}", ended.err);
        assert!(said.iter().all(|line| line.ends_with("File name too long")), "{}", ended.err);
        assert_eq!(std::fs::read_to_string(place.project(&longest)).unwrap(), "kept\n");
    });
}

/// Lock files by link(2) look at the number of names (open(2), "NFS"); shells give the input of a long here-document as a
/// file without a name.
#[test]
fn a_files_names_and_what_is_open_without_one_are_one_file() {
    guests_of_one(|place| {
        place.file(
            "home/project/program.py",
            "import os, shutil, tempfile\n\
             def put(name, text):\n    \
                 with open(name, 'r+') as file:\n        file.write(text)\n\
             open('one', 'w').write('1' * 9)\n\
             os.link('one', 'two')\n\
             print(os.stat('one').st_nlink, os.path.samefile('one', 'two'), open('two').read())\n\
             put('one', '2')\n\
             print(open('two').read())\n\
             put('two', '33')\n\
             print(open('one').read())\n\
             os.unlink('one')\n\
             print(os.stat('two').st_nlink, open('two').read())\n\
             file = tempfile.TemporaryFile(dir='.')\n\
             file.write(b'nameless')\n\
             file.flush()\n\
             name = f'/proc/self/fd/{file.fileno()}'\n\
             print(open(name).read())\n\
             os.truncate(name, 4)\n\
             print(open(name).read())\n\
             for level in range(20):\n    \
                 os.mkdir('d' * 250)\n    \
                 os.chdir('d' * 250)\n\
             open('deep', 'w').write('deep')\n\
             print(os.listdir('.'), open('deep').read())\n\
             for level in range(20):\n    \
                 os.chdir('..')\n\
             shutil.rmtree('d' * 250)\n",
        );
        let script = format!(
            "python3 program.py && cat /dev/stdin <<END | wc -c\n{}\nEND",
            "x".repeat(100_000)
        );
        let said = start(place, &[], &["bash", "-c", &script]).finish().quiet();
        let lines: Vec<&str> = said.lines().collect();
        let expected = [
            "2 True 111111111",
            "211111111",
            "331111111",
            "1 331111111",
            "nameless",
            "name",
            "['deep'] deep",
            "100001",
        ];
        assert_eq!(lines, expected);
        assert_eq!(std::fs::read(place.project("two")).unwrap(), b"331111111");
        assert!(!place.project("one").exists());
        // Nothing else is left, and the deep directories went as they came.
        assert!(!place.project("d".repeat(250)).exists());
        assert_eq!(place.left_behind(), [""; 0]);
    });
}
