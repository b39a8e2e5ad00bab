//! A guest that has booted, saved once: every session's machine is a clone of it.
//!
//! Clones map the memory privately, from a file that they cannot write ([`super::memory`]).

use super::Shape;
use super::accel::Accelerator;
use super::assets::{self, Assets};
#[cfg(target_arch = "x86_64")]
use super::checkpoint;
use super::initramfs;
use super::jail::Origin;
use super::machine::{self, Process, make_directory};
#[cfg(target_arch = "x86_64")]
use super::still;
use super::turn::{self, Turn, UNFINISHED};
use super::whole;
use crate::itself;
use ringfence_guest::rehearsal;
use ringfence_sys::file::next_part;
use ringfence_sys::memory::PAGE;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What templates' directories are called; the key follows.
const PREFIX: &str = "template-";
/// What directories are called that hold what libkrun's guests boot.
pub(super) const BOOTED: &str = "boot-";
/// Changes with the layout of what is saved and with how a guest is started.
const LAYOUT: u32 = 12;
/// What changes when libraries are installed.
const LIBRARIES: &str = "/etc/ld.so.cache";
/// What is looked at at once.
const PIECE: usize = 1 << 20;
/// How long a guest may take to boot; an emulated one on a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a guest that has said hello is left alone: its agent has to come back to where it waits for the host, which
/// each clone would have to do again.
const SETTLING: Duration = Duration::from_millis(100);
/// The most of the agent's greeting.
const GREETING: usize = 64;

/// What a template depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Of this program, QEMU, the kernel and the shape, as they are now.
    ///
    /// # Errors
    /// One of them cannot be looked at.
    pub fn of(assets: &Assets, shape: &Shape) -> Result<Key, String> {
        let mut hasher = DefaultHasher::new();
        LAYOUT.hash(&mut hasher);
        let own = Path::new(itself::OWN);
        for path in [own, &assets.monitor, &assets.kernel.image] {
            let data = path.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
            // Not when its inode changed: that is also when it gets or loses another name.
            (data.dev(), data.ino(), data.size(), data.mtime(), data.mtime_nsec())
                .hash(&mut hasher);
        }
        assets.kernel.release.hash(&mut hasher);
        // What a saved process depends on: the host's kernel and processor, and QEMU's libraries.
        #[cfg(target_arch = "x86_64")]
        checkpoint::Host::now().hash(&mut hasher);
        if let Ok(data) = Path::new(LIBRARIES).metadata() {
            (data.ino(), data.size(), data.mtime(), data.mtime_nsec()).hash(&mut hasher);
        }
        (shape.accelerator.name(), shape.monitor.name(), shape.memory, shape.nested)
            .hash(&mut hasher);
        Ok(Key(hasher.finish()))
    }

    fn name(&self) -> String {
        self.under(PREFIX)
    }

    /// The name of something that depends on the same.
    pub(super) fn under(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}", self.0)
    }
}

/// A saved guest.
#[derive(Debug)]
pub(super) struct Template {
    place: PathBuf,
}

impl Template {
    /// The template of a key, if there is one that is whole.
    pub fn find(cache: &Path, key: &Key) -> Option<Template> {
        let place = cache.join(key.name());
        // The state is written last, and the directory gets its name after that.
        let found = place.join("state").is_file() && whole::fault(&place).is_none();
        found.then_some(Template { place })
    }

    /// The devices' state.
    pub fn state(&self) -> Result<File, String> {
        let path = self.place.join("state");
        File::open(&path).map_err(|error| format!("open({}): {error}", path.display()))
    }

    /// The memory, for reading.
    pub fn memory(&self) -> Result<File, String> {
        let path = self.place.join("memory");
        let opened = File::open(&path).or_else(|error| {
            // A machine that was taken over has it for reading, and may have changed its mode.
            if error.kind() != io::ErrorKind::PermissionDenied {
                return Err(error);
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            File::open(&path)
        });
        opened.map_err(|error| format!("open({}): {error}", path.display()))
    }

    /// The files of the machine's process, where it was saved.
    #[cfg(target_arch = "x86_64")]
    pub fn checkpoint(&self) -> Option<[PathBuf; 2]> {
        let files = checkpoint::files(&self.place);
        files[0].is_file().then_some(files)
    }

    /// None.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn checkpoint(&self) -> Option<[PathBuf; 2]> {
        None
    }

    /// A clone of the saved process has begun, or ended before that, with these words. Where it is of no use, clones are made of the
    /// state.
    pub fn checkpoint_went(&self, how: Result<(), &str>) {
        #[cfg(target_arch = "x86_64")]
        match how {
            Ok(()) => checkpoint::begun(&self.place),
            Err(said) => checkpoint::ended(&self.place, said),
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = how;
    }

    /// What QEMU asks for of the kernel.
    pub fn header(&self) -> PathBuf {
        self.place.join("kernel")
    }
}

/// The template of a shape, which is made where there is none.
///
/// # Errors
/// A sentence.
pub(super) fn find_or_make(
    assets: &Assets,
    shape: &Shape,
    cache: &Path,
) -> Result<Template, String> {
    let key = Key::of(assets, shape)?;
    match Template::find(cache, &key) {
        Some(template) => {
            turn::tidy(cache);
            Ok(template)
        }
        None => make(assets, shape, cache, &key),
    }
}

/// Boots a guest, waits until its agent says hello, and saves it.
fn make(assets: &Assets, shape: &Shape, cache: &Path, key: &Key) -> Result<Template, String> {
    make_directory(cache).map_err(|error| format!("mkdir({}): {error}", cache.display()))?;
    // Twenty that start at once boot one guest, not twenty. Who boots it has bounds of its own.
    let turn = Turn::wait(cache, PATIENCE)?;
    if let Some(made) = Template::find(cache, key) {
        return Ok(made);
    }
    let place = cache.join(key.name());
    if place.join("state").is_file()
        && let Some(fault) = whole::fault(&place)
    {
        ringfence_sys::say!("ringfence: the saved guest is not whole ({fault}): a new one is made");
    }
    // What is left of one that was being removed, by somebody who does not know what belongs together, or who was killed.
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("remove({}): {error}", place.display()));
        }
        _ => {}
    }
    turn.remove_unfinished(cache);
    remove_others(cache, PREFIX, &key.name());
    let new = cache.join(machine::name(UNFINISHED));
    make_directory(&new).map_err(|error| format!("mkdir({}): {error}", new.display()))?;
    let made = boot(assets, shape, cache, &new);
    let result = made.and_then(|()| match fs::rename(&new, &place) {
        Ok(()) => Ok(Template { place }),
        // Another start was first: on a file system without locks.
        Err(_) if place.join("state").is_file() => Ok(Template { place }),
        Err(error) => Err(format!("rename({}): {error}", new.display())),
    });
    let _ = fs::remove_dir_all(&new);
    result
}

fn boot(assets: &Assets, shape: &Shape, cache: &Path, new: &Path) -> Result<(), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let initramfs = new.join("initramfs");
    initramfs::make(&assets.kernel, Path::new(itself::OWN), shape, &initramfs)
        .map_err(failed("the initial file system"))?;
    header(&assets.kernel.image, &new.join("kernel")).map_err(failed("the kernel's header"))?;
    let memory = machine::in_memory()?;
    memory.set_len(shape.memory).map_err(failed("the guest's memory"))?;
    let its_memory = memory.try_clone().map_err(failed("dup"))?;
    let (mut process, stream) =
        Process::spawn(assets, shape, cache, its_memory, &Origin::Boot(&initramfs))?;
    process.control.prepared().map_err(|why| process.explain(why))?;
    greet(&stream).map_err(|why| process.explain(format!("the guest does not boot: {why}")))?;
    let stream = match shape.accelerator {
        Accelerator::Kvm => stream,
        // What a boot has had translated, which is much, is no part of what clones go on with.
        Accelerator::Tcg => {
            let begun;
            (process, begun) = taken_over(process, assets, shape, cache, &memory, new)?;
            begun
        }
    };
    // The guest ends with its stream.
    let its_stream = stream.try_clone().map_err(failed("dup"))?;
    let played = rehearsal::play(its_stream.into(), PATIENCE);
    played.map_err(|why| process.explain(format!("the guest cannot be tried: {why}")))?;
    std::thread::sleep(SETTLING);
    let state = File::options()
        .write(true)
        .create_new(true)
        .open(new.join("state.new"))
        .map_err(failed("the machine's state"))?;
    let saved = process.control.save(state.as_fd());
    saved.map_err(|why| process.explain(why))?;
    let saved =
        File::create_new(new.join("memory")).and_then(|to| pack(&memory, shape.memory, &to));
    saved.map_err(failed("cannot save the guest's memory"))?;
    #[cfg(target_arch = "x86_64")]
    if shape.accelerator == Accelerator::Tcg {
        save_process(&process, &memory, new);
    }
    let _ = fs::remove_file(&initramfs);
    whole::write(new).map_err(failed("the saved guest"))?;
    // A name that outlives a crash of the host must not stand for files that do not.
    durable(new).map_err(failed("the saved guest"))?;
    fs::rename(new.join("state.new"), new.join("state")).map_err(failed("rename(state)"))
}

/// Waits until all files of a directory are on the disk.
pub(super) fn durable(place: &Path) -> io::Result<()> {
    for entry in place.read_dir()? {
        File::open(entry?.path())?.sync_all()?;
    }
    Ok(())
}

/// Saves a machine that has just booted, and has another QEMU take it over, with the same memory; also the other end of that one's
/// stream.
fn taken_over(
    mut process: Process,
    assets: &Assets,
    shape: &Shape,
    cache: &Path,
    memory: &File,
    new: &Path,
) -> Result<(Process, UnixStream), String> {
    let state = machine::in_memory()?;
    process.control.save(state.as_fd()).map_err(|why| process.explain(why))?;
    drop(process);
    let mut from = &state;
    from.rewind().map_err(|error| format!("the machine's state: {error}"))?;
    let memory = memory.try_clone().map_err(|error| format!("dup: {error}"))?;
    let origin = Origin::Rehearsal(&new.join("kernel"));
    let (mut process, stream) = Process::spawn(assets, shape, cache, memory, &origin)?;
    process.control.restore_and_wait(state.as_fd()).map_err(|why| process.explain(why))?;
    Ok((process, stream))
}

/// Saves the process as well, where that can be: who cannot look into it starts clones of the state.
#[cfg(target_arch = "x86_64")]
fn save_process(process: &Process, memory: &File, new: &Path) {
    let saved = match still::monitor(process.launcher()) {
        Some((pid, _held)) => checkpoint::save::save(pid, memory, &checkpoint::files(new)),
        None => Err("it was not found below its launcher".to_owned()),
    };
    if let Err(why) = saved {
        checkpoint::forget(new, &why);
    }
}

/// Waits for the agent's first words.
pub(super) fn greet(mut stream: &UnixStream) -> Result<(), String> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    loop {
        return match stream.read(&mut [0; GREETING]) {
            Ok(1..) => Ok(()),
            Ok(0) => Err("it ended".to_owned()),
            // A read with a time limit is interrupted by a stop, though nothing handles SIGCONT (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(format!("nothing was heard of it within {PATIENCE:?}"))
            }
            Err(error) => Err(error.to_string()),
        };
    }
}

/// Removes templates of other keys: what they depended on has changed, or is of another shape that
/// boots again when it is wanted again.
pub(super) fn remove_others(cache: &Path, prefix: &str, kept: &str) {
    /// Shapes that are kept.
    const MOST: usize = 4;
    let entries = cache.read_dir().into_iter().flatten().flatten();
    let own = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(prefix) && name.to_string_lossy() != kept
    };
    let time = |entry: &fs::DirEntry| entry.metadata().and_then(|data| data.modified()).ok();
    let mut others: Vec<fs::DirEntry> = entries.filter(own).collect();
    others.sort_by_key(|entry| std::cmp::Reverse(time(entry)));
    for entry in others.into_iter().skip(MOST - 1) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Removes all templates, and what was left of such.
///
/// # Errors
/// A sentence: they are another user's.
pub fn discard(home: &Path) -> Result<(), String> {
    let cache = assets::cache(home);
    assets::is_own(&cache)?;
    turn::tidy(&cache);
    for entry in cache.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        if [PREFIX, BOOTED].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Copies what of a kernel's image is no kernel yet: the header, and the code that enters it (x86's boot protocol).
/// Clones boot nothing: the whole of it would be read and held by each.
fn header(image: &Path, to: &Path) -> io::Result<()> {
    /// Where the number of the setup's sectors is, and what it means when it is not there.
    const SECTORS: usize = 0x1f1;
    const USUAL: u64 = 4;
    let image = File::open(image)?;
    let mut first = [0; 512];
    image.read_exact_at(&mut first, 0)?;
    let sectors = match first[SECTORS] {
        0 => USUAL,
        count => count.into(),
    };
    let length = (sectors + 1) * 512 + PAGE as u64;
    let mut bytes = Vec::new();
    image.take(length).read_to_end(&mut bytes)?;
    fs::write(to, bytes)
}

/// Writes the parts of memory that are not zero where they are; the rest stays a hole. What the guest has never touched is
/// one already, and not read.
fn pack(memory: &File, size: u64, to: &File) -> io::Result<()> {
    let kernel = |errno: ringfence_sys::Errno| io::Error::from_raw_os_error(errno.into_raw());
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while let Some(used) = next_part(memory.as_fd(), at).map_err(kernel)? {
        at = used.start;
        let piece = &mut buffer[..PIECE.min((used.end - at) as usize)];
        memory.read_exact_at(piece, at)?;
        let mut run = 0..0;
        for page in 0..piece.len().div_ceil(PAGE) {
            let place = page * PAGE..piece.len().min((page + 1) * PAGE);
            let used = is_used(&piece[place.clone()]);
            match (used, run.is_empty()) {
                (true, true) => run = place,
                (true, false) => run.end = place.end,
                (false, false) => {
                    to.write_all_at(&piece[run.clone()], at + run.start as u64)?;
                    run = 0..0;
                }
                (false, true) => {}
            }
        }
        if !run.is_empty() {
            to.write_all_at(&piece[run.clone()], at + run.start as u64)?;
        }
        at += piece.len() as u64;
    }
    to.set_len(size)
}

/// Whether a page holds anything. Linux fills the pages of its boot that it frees with one byte
/// (`POISON_FREE_INITMEM`), the initial file system's among them: nothing else fills a page so, and
/// nobody relies on what is in a free one.
fn is_used(page: &[u8]) -> bool {
    const FREED: u8 = 0xcc;
    let first = page.first().copied().unwrap_or_default();
    !matches!(first, 0 | FREED) || page.iter().any(|&byte| byte != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_as_it_was_and_zeroes_are_not_kept() {
        let file = || File::from(ringfence_sys::fd::in_memory(b"").expect("a memfd"));
        let (memory, copy) = (file(), file());
        let size = 3 * PIECE as u64 + 512;
        assert!(!is_used(&[0xcc; PAGE]) && !is_used(&[0; PAGE]) && is_used(&[1; PAGE]));
        memory.set_len(size).expect("sized");
        let places =
            [0, 4095, 4096, 8192, PIECE as u64 - 1, PIECE as u64, 2 * PIECE as u64 + 77, size - 1];
        for place in places {
            memory.write_all_at(b"x", place).expect("written");
        }
        memory.write_all_at(&[0xcc; 100], 5 * PAGE as u64).expect("written");
        pack(&memory, size, &copy).expect("packed");
        let blocks = copy.metadata().expect("its blocks").blocks();
        assert!(blocks * 512 < 10 * PAGE as u64, "{blocks}");
        let read = |file: &File| {
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, 0).expect("read");
            bytes
        };
        assert!(read(&memory) == read(&copy));
    }

    #[test]
    fn memory_that_was_never_touched_is_not_read() {
        let file = || File::from(ringfence_sys::fd::in_memory(b"").expect("a memfd"));
        let (memory, copy) = (file(), file());
        // To read it would take minutes.
        let size = 1 << 40;
        memory.set_len(size).expect("sized");
        let places = [0, (size / 2) - 1, size - 1];
        for place in places {
            memory.write_all_at(b"x", place).expect("written");
        }
        pack(&memory, size, &copy).expect("packed");
        assert_eq!(copy.metadata().expect("its size").len(), size);
        for place in places {
            let mut byte = [0];
            copy.read_exact_at(&mut byte, place).expect("read");
            assert_eq!(byte, *b"x", "{place}");
        }
        let blocks = copy.metadata().expect("its blocks").blocks();
        assert!(blocks * 512 <= 3 * (2 << 20), "{blocks}");
    }

    #[test]
    fn of_a_kernel_only_the_header_is_kept() {
        let place = std::env::temp_dir().join(machine::name("ringfence-header-"));
        make_directory(&place).expect("a directory");
        let (image, to) = (place.join("image"), place.join("header"));
        let mut bytes = vec![7; 64 * 1024];
        for (sectors, length) in [(30, 31 * 512 + PAGE), (0, 5 * 512 + PAGE)] {
            bytes[0x1f1] = sectors;
            fs::write(&image, &bytes).expect("written");
            header(&image, &to).expect("taken");
            assert!(fs::read(&to).expect("read") == bytes[..length], "{sectors}");
        }
        fs::write(&image, b"short").expect("written");
        assert!(header(&image, &to).is_err());
        fs::remove_dir_all(&place).expect("removed");
    }
}
