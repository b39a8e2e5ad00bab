//! Places that the user names beside a session, while its program changes what names on the way mean.
#![allow(missing_docs, clippy::unwrap_used)]

mod racing;

use racing::{Racer, nowhere, untouched};
use ringfence_session::outside::directory_made;
use rustix::fd::AsRawFd;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

/// So often it is tried, and this often at most until it has worked and has been refused.
const TRIES: std::ops::Range<usize> = 5_000..500_000;

#[test]
fn directories_are_made_where_no_link_leads_that_turns_up_meanwhile() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    let (tree, outside) = (top.join("tree"), top.join("outside"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let before = untouched(&outside);
    let names = ["new", "new/0", "new/1", "new/2"];
    let racer = Racer::new(&tree, &outside, &names);
    let (mut made, mut refused, mut outdone) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| racer.run(1));
        scope.spawn(|| racer.run(2));
        racer.has_begun();
        let mut round = 0;
        while (made == 0 || refused == 0 || round < TRIES.start) && round < TRIES.end {
            // Below names that change, names that are new each time.
            let path = tree.join(names[round % names.len()]).join(format!("{round}/deep"));
            match directory_made(&path) {
                Ok(open) => {
                    // It may have been moved since, with all that is in it; it is a directory of the racer's.
                    let real =
                        fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
                    outdone.extend(real.starts_with(&outside).then_some(real));
                    made += 1;
                }
                Err(_) => refused += 1,
            }
            round += 1;
        }
        racer.stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((untouched(&outside), &outdone[..]), (before.clone(), &[][..]));
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
    nowhere(&tree, "secret");
    // Nobody races any more: a path is made whole, with the modes of new directories, and is there the next time.
    let path = top.join("calm/new/deep");
    drop(directory_made(&path).unwrap());
    drop(directory_made(&path).unwrap());
    let control = top.join("control");
    fs::create_dir(&control).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(path), mode(control));
    // A file, a link and a name that leads back are no directories to be made.
    fs::write(top.join("file"), "").unwrap();
    std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
    for (refused, why) in
        [("file/x", "os error 20"), ("link/x", "os error 40"), ("none/..", "os error 2")]
    {
        let error = directory_made(&top.join(refused)).unwrap_err().to_string();
        assert!(error.contains(why), "{refused}: {error}");
    }
    assert_eq!(untouched(&outside), before);
}
