//! What a compiled plan is filed under: everything the plan may depend on that is at hand
//! without looking anything up. The rest is in the image's stamps.

use crate::bytes::{Text, before, from, string, write_digits};
use crate::call::sys;
use crate::image::sum;
use crate::stamp::{AT_FDCWD, FOLLOWED, Looked, Stat, look, variable};

/// A key is at most so long; a start with more options and variables is not cached.
pub const MOST: usize = 16 << 10;

/// Variables whose value is part of the key. Of the others the names are, in their order, and
/// of those that the policy asks for, the stamps hold the value.
const BY_VALUE: usize = 7;

/// How this program was called, as the kernel put it on the stack.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Number of arguments.
    pub count: usize,
    /// Arguments, null-terminated.
    pub arguments: *const *const u8,
    /// Environment, null-terminated.
    pub environment: *const *const u8,
}

impl Caller {
    /// Reads it off the first stack frame.
    ///
    /// # Safety
    /// `stack` must be the stack pointer at the program's entry.
    pub unsafe fn at(stack: *const usize) -> Caller {
        // SAFETY: the System V ABI's process stack: argc, argv…, null, envp…, null, auxv….
        unsafe {
            let count = *stack;
            let arguments = stack.add(1).cast::<*const u8>();
            Caller { count, arguments, environment: arguments.add(count + 1) }
        }
    }

    /// One argument.
    pub fn argument(&self, index: usize) -> Option<&'static [u8]> {
        // SAFETY: within the list; arguments live as long as the process.
        (index < self.count).then(|| unsafe { string(*self.arguments.add(index)) })
    }

    /// The place of the command among the arguments of `run`: behind the first `--`, or at once
    /// where the first argument is no option.
    ///
    /// That is not always where the parser of options sees it (`-e -- true`); but an image is
    /// filed only when both agree, and the options that a key holds are then complete: the parser
    /// would stop at the same place again.
    pub fn command(&self) -> Option<usize> {
        if !crate::bytes::equal(self.argument(1)?, b"run") {
            return None;
        }
        if self.argument(2)?.first() != Some(&b'-') {
            return Some(2);
        }
        let mut at = 2;
        while !crate::bytes::equal(self.argument(at)?, b"--") {
            at += 1;
        }
        (at + 1 < self.count).then_some(at + 1)
    }

    /// The arguments from a place on.
    pub fn arguments_from(&self, place: usize) -> impl Iterator<Item = &'static [u8]> + use<> {
        let caller = *self;
        (place..caller.count).filter_map(move |index| caller.argument(index))
    }

    /// The environment's strings, in order.
    pub fn entries(&self) -> impl Iterator<Item = &'static [u8]> + use<> {
        let mut entry = self.environment;
        core::iter::from_fn(move || {
            // SAFETY: the list goes on until the null pointer; its strings live as long as the
            // process.
            unsafe {
                if (*entry).is_null() {
                    return None;
                }
                let text = string(*entry);
                entry = entry.add(1);
                Some(text)
            }
        })
    }

    /// What the program was called by: the path that the kernel was given, or, where that is this very process's own
    /// (`/proc/self/exe`, a descriptor), the first argument, by which ringfence says it to itself.
    pub fn called(&self) -> Option<&'static [u8]> {
        const NULL: usize = 0;
        const EXECFN: usize = 31;
        let mut entry = self.environment;
        // SAFETY: behind the environment's null pointer there are pairs of words, the last one null; the text that one of
        // them points to lives as long as the process.
        let given = unsafe {
            while !(*entry).is_null() {
                entry = entry.add(1);
            }
            let mut pair = entry.add(1).cast::<usize>();
            while *pair != EXECFN && *pair != NULL {
                pair = pair.add(2);
            }
            if *pair == NULL {
                return None;
            }
            string(*pair.add(1) as *const u8)
        };
        let own = crate::bytes::starts_with(given, b"/proc/")
            || crate::bytes::starts_with(given, b"/dev/fd/");
        if own { self.argument(0) } else { Some(given) }
    }

    /// A variable of the environment.
    pub fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        // SAFETY: the list is null-terminated and lives as long as the process.
        unsafe { variable(self.environment, name) }
    }

    /// Writes a base directory: the variable's, or one below the home. None where neither is
    /// absolute.
    pub(crate) fn write_base(&self, path: &mut Text<'_>, name: &[u8], usual: &[u8]) -> Option<()> {
        let absolute = |value: Option<&'static [u8]>| value.filter(|v| v.first() == Some(&b'/'));
        match absolute(self.variable(name)) {
            Some(base) => path.push(base),
            None => {
                path.push(absolute(self.variable(b"HOME"))?);
                path.push(usual);
            }
        }
        Some(())
    }
}

/// Writes the key; `None` when this start is none that can be cached.
pub fn write(key: &mut Text<'_>, caller: &Caller) -> Option<()> {
    let command = caller.command()?;
    let identity = binary().ok()?;
    // It is protected where it lies in a writable tree, and so are links to it.
    // SAFETY: the path is a literal.
    unsafe { link(key, c"/proc/self/exe".as_ptr().cast()) }?;
    key.push(b"\0");
    key.push(caller.called()?);
    key.push(b"\0");
    let mut at = 0;
    while let Some(number) = identity.get(at) {
        key.push_number(*number);
        key.push(b" ");
        at += 1;
    }
    // SAFETY: these calls take nothing.
    let ids = unsafe { [sys!(getuid), sys!(geteuid), sys!(getgid), sys!(getegid)] };
    at = 0;
    while let Some(id) = ids.get(at) {
        key.push_number((*id).ok()? as u64);
        key.push(b" ");
        at += 1;
    }
    groups(key)?;
    capabilities(key)?;
    // SAFETY: asked for the version, the call reads nothing.
    let landlock = unsafe { sys!(landlock_create_ruleset, 0, 0, 1) };
    key.push_number(landlock.unwrap_or(0) as u64);
    key.push(b"\0");
    release(key)?;
    terminal(key)?;
    directory(key)?;
    at = 2;
    while at <= command {
        key.push(caller.argument(at)?);
        key.push(b"\0");
        at += 1;
    }
    let mut entry = caller.environment;
    // SAFETY: the list goes on until the null pointer.
    while !unsafe { *entry }.is_null() {
        // SAFETY: as above.
        let text = unsafe { string(*entry) };
        key.push(before(text, crate::bytes::position(text, b'=').unwrap_or(text.len())));
        // The one byte that no name holds.
        key.push(b"=");
        // SAFETY: as above.
        entry = unsafe { entry.add(1) };
    }
    at = 0;
    while at < BY_VALUE {
        key.push(b"\0");
        match at {
            0 => value(key, caller, b"HOME"),
            1 => value(key, caller, b"PATH"),
            2 => value(key, caller, b"TMPDIR"),
            3 => value(key, caller, b"XDG_CACHE_HOME"),
            4 => value(key, caller, b"XDG_CONFIG_HOME"),
            5 => value(key, caller, b"XDG_RUNTIME_DIR"),
            _ => value(key, caller, b"XDG_STATE_HOME"),
        }
        at += 1;
    }
    key.get().map(|_| ())
}

fn value(key: &mut Text<'_>, caller: &Caller, name: &[u8]) {
    match caller.variable(name) {
        Some(value) => {
            key.push(b"=");
            key.push(value);
        }
        None => key.push(b"-"),
    }
}

/// Supplementary groups: what is "not there" for one who may not look is there for another. Who is in more than
/// there is room for plans anew each time.
fn groups(key: &mut Text<'_>) -> Option<()> {
    const MOST_GROUPS: usize = 64;
    let mut groups = [0u32; MOST_GROUPS];
    // SAFETY: there is room for so many; for more the call fails.
    let count = unsafe { sys!(getgroups, MOST_GROUPS, groups.as_mut_ptr()) }.ok()?;
    let mut at = 0;
    while at < count {
        key.push_number(u64::from(*groups.get(at)?));
        key.push(b",");
        at += 1;
    }
    key.push(b" ");
    Some(())
}

/// The effective capabilities, for the same reason.
fn capabilities(key: &mut Text<'_>) -> Option<()> {
    let [first, _, _, second, ..] = crate::machine::capabilities().ok()?;
    key.push_number(u64::from(second) << 32 | u64::from(first));
    key.push(b" ");
    Some(())
}

/// The running binary.
fn binary() -> crate::Result<[u64; 5]> {
    let mut looked = Looked::new();
    let path = c"/proc/self/exe".as_ptr().cast();
    look(&mut looked, AT_FDCWD as i32, path, FOLLOWED).map(Stat::identity)
}

/// The kernel's release.
fn release(key: &mut Text<'_>) -> Option<()> {
    let mut names = core::mem::MaybeUninit::<[u8; 390]>::uninit();
    // SAFETY: six names of 65 bytes, as uname(2) fills them, each with its zero byte.
    unsafe {
        sys!(uname, names.as_mut_ptr()).ok()?;
        key.push(string(names.as_ptr().cast::<u8>().add(130)));
    }
    key.push(b"\0");
    Some(())
}

/// The terminal that a standard stream is, by its name.
fn terminal(key: &mut Text<'_>) -> Option<()> {
    const TCGETS: usize = 0x5401;
    let mut settings = core::mem::MaybeUninit::<[u64; 16]>::uninit();
    let mut path = [0u8; 20];
    let mut fd = 0;
    while fd < 3 {
        // SAFETY: there is more room than the kernel's structure takes.
        if unsafe { sys!(ioctl, fd, TCGETS, settings.as_mut_ptr()) }.is_ok() {
            let mut text = Text::new(&mut path);
            text.push(b"/proc/self/fd/");
            text.push_number(fd as u64);
            // SAFETY: the path ends with a zero byte.
            unsafe { link(key, text.terminated()?) }?;
            break;
        }
        fd += 1;
    }
    key.push(b"\0");
    Some(())
}

/// What the kernel calls a path is at most so long.
const LONGEST: usize = 4096;

/// Where a link leads.
///
/// # Safety
/// The path ends with a zero byte.
unsafe fn link(key: &mut Text<'_>, path: *const u8) -> Option<()> {
    // SAFETY: the path ends with a zero byte, the room is writable for so many bytes.
    key.add(LONGEST, |room, most| unsafe { sys!(readlinkat, -100_isize, path, room, most) }.ok())
}

/// The current directory, with a zero byte.
fn directory(key: &mut Text<'_>) -> Option<()> {
    // SAFETY: the room is writable for so many bytes.
    key.add(LONGEST + 1, |room, most| unsafe { sys!(getcwd, room, most) }.ok())
}

/// Writes the path of the directory of all plans: `$XDG_CACHE_HOME/ringfence/plans`, or below `~/.cache`. None where
/// neither is absolute.
pub(crate) fn write_directory(path: &mut Text<'_>, caller: &Caller) -> Option<()> {
    caller.write_base(path, b"XDG_CACHE_HOME", b"/.cache")?;
    path.push(b"/ringfence/plans");
    Some(())
}

/// Writes the path of the file for a key.
pub fn write_path(path: &mut Text<'_>, caller: &Caller, key: &[u8]) -> Option<()> {
    write_directory(path, caller)?;
    path.push(b"/");
    let (mut first, mut second) = ([0u8; 16], [0u8; 16]);
    let whole = sum(key);
    write_digits(&mut first, whole, true);
    // A second sum, of the key from its second byte on, makes it 128 bits: not against an
    // enemy (the whole key is compared), only so that two keys hardly ever share a file.
    write_digits(&mut second, sum(from(key, 1)) ^ whole.rotate_left(17), true);
    path.push(&first);
    path.push(&second);
    path.get().map(|_| ())
}
