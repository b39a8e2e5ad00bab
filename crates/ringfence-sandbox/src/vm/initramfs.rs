//! The file system that a guest's kernel starts from: this very program, and a few modules.
//!
//! The program is its own agent: the versions of both ends are always the same, and nothing has to
//! be built or fetched for the guest.

use super::Shape;
use super::assets::Kernel;
use super::monitor::Monitor;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the agent needs of the kernel; what they need in turn is found in them.
const MODULES: [&str; 5] = ["virtio_console", "fuse", "nf_tables", "nft_redir", "nft_chain_nat"];
/// What a guest needs to have guests, on the processor that QEMU emulates.
const NESTED: [&str; 1] = ["kvm_amd"];
/// What modules ask for at run time without saying so.
const SILENT: [&str; 1] = ["crc32c_generic"];

/// The guest's first randomness: the emulator's processor has none ([`super::jail`]).
const SEED: &str = ringfence_guest::SEED;
/// As much as the kernel's pool holds, twice.
const SEEDS: usize = 64;

/// Makes it, for a machine of a shape.
///
/// # Errors
/// The file system's; a module that the kernel does not come with.
pub fn make(kernel: &Kernel, program: &Path, shape: &Shape, to: &Path) -> io::Result<()> {
    let mut archive = Archive { file: io::BufWriter::new(std::fs::File::create(to)?), inode: 1 };
    for directory in ["dev", "proc", "sys", "modules", "view", "own", "cgroup"] {
        archive.entry(directory, 0o040_755, &[])?;
    }
    archive.entry("init", 0o100_755, &loadable(program)?)?;
    archive.entry(SEED, 0o100_600, &seed()?)?;
    for (at, module) in modules(&kernel.modules, shape)?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = std::fs::read(module)?;
        archive.entry(&format!("modules/{at:03}-{name}"), 0o100_644, &content)?;
    }
    archive.entry("TRAILER!!!", 0, &[])?;
    archive.file.flush()
}

fn seed() -> io::Result<[u8; SEEDS]> {
    let mut bytes = [0; SEEDS];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// An archive as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst).
struct Archive<W: Write> {
    file: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let length = name.len() as u32 + 1;
        write!(self.file, "070701")?;
        // inode, mode, user, group, links, time, size, device, device's device, name, sum
        for field in [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0] {
            write!(self.file, "{field:08x}")?;
        }
        self.file.write_all(name.as_bytes())?;
        self.file.write_all(&[0])?;
        self.pad(110 + name.len() + 1)?;
        self.file.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        let odd = length % 4;
        self.file.write_all(&[0; 3][..if odd == 0 { 0 } else { 4 - odd }])
    }
}

/// What of a program is loaded (elf(5)): debugging information lies behind it.
fn loadable(program: &Path) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(program)?;
    let odd = || io::Error::other("this program is no ELF file that can be taken into a guest");
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let number = |bytes: &[u8], at: usize, length: usize| {
        bytes.get(at..at + length).map(|bytes| {
            bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
        })
    };
    if header[..5] != *b"\x7fELF\x02" {
        return Err(odd());
    }
    let table = number(&header, 32, 8).ok_or_else(odd)?;
    let count = number(&header, 56, 2).ok_or_else(odd)?;
    let mut end = table + count * 56;
    for at in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table + at * 56)?;
        let (offset, size) = (number(&entry, 8, 8), number(&entry, 32, 8));
        end =
            end.max(offset.zip(size).and_then(|(at, size)| at.checked_add(size)).ok_or_else(odd)?);
    }
    if end > file.metadata()?.len() {
        return Err(odd());
    }
    let mut content = vec![0; end as usize];
    file.read_exact_at(&mut content, 0)?;
    // No section headers: their offset, count and names' index.
    content[40..48].fill(0);
    content[60..64].fill(0);
    Ok(content)
}

/// The files of all modules that are needed, each after those it depends on.
fn modules(directory: &Path, shape: &Shape) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    walk(&directory.join("kernel"), &mut found, 0)?;
    let mut ordered = Vec::new();
    // What the devices are found by.
    let bus = match shape.monitor {
        Monitor::Qemu => "virtio_pci",
        Monitor::Krun => "virtio_mmio",
    };
    let more = NESTED.iter().filter(|_| shape.nested);
    for name in SILENT.iter().chain(&[bus]).chain(&MODULES).chain(more) {
        add(name, &found, &mut ordered, 0)?;
    }
    Ok(ordered)
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>, depth: usize) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth < 12 {
            walk(&entry.path(), found, depth + 1)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// A module's name as the kernel has it.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    Some(name.split_once(".ko")?.0.replace('-', "_"))
}

fn add(name: &str, found: &[PathBuf], ordered: &mut Vec<PathBuf>, depth: usize) -> io::Result<()> {
    let own = |path: &&PathBuf| module_name(path).as_deref() == Some(name);
    // One that is not there is built into the kernel, or the agent says what it lacks.
    let Some(path) = found.iter().find(own) else { return Ok(()) };
    if ordered.contains(path) || depth > 16 {
        return Ok(());
    }
    for needed in depends(path)? {
        add(&needed, found, ordered, depth + 1)?;
    }
    ordered.push(path.clone());
    Ok(())
}

/// What a module says that it needs (`depends=` of its `.modinfo`).
fn depends(path: &Path) -> io::Result<Vec<String>> {
    const WORD: &[u8] = b"\0depends=";
    let content = std::fs::read(path)?;
    let Some(at) = content.windows(WORD.len()).position(|window| window == WORD) else {
        // Packed: which ones cannot be seen without unpacking.
        return Ok(Vec::new());
    };
    let rest = &content[at + WORD.len()..];
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let list = String::from_utf8_lossy(&rest[..end]).into_owned();
    Ok(list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_ends_as_it_must() {
        let mut archive = Archive { file: Vec::new(), inode: 0 };
        archive.entry("a", 0o100_644, b"hello").expect("written");
        archive.entry("TRAILER!!!", 0, &[]).expect("written");
        let bytes = archive.file;
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[54..62], b"00000005", "the size");
        assert_eq!(&bytes[112..117], b"hello");
        assert_eq!(&bytes[120..126], b"070701");
    }

    #[test]
    fn what_is_loaded_of_a_program_still_runs() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("ringfence-elf-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let [bytes, copy] = ["bytes", "true"].map(|name| directory.join(name));
        let program = ["/usr/bin/true", "/bin/true"].iter().find(|path| Path::new(path).exists());
        let loaded = loadable(Path::new(program.expect("true(1)"))).expect("read");
        std::fs::write(&bytes, loaded).expect("written");
        // What we have written ourselves is open for writing in what others have forked meanwhile: not to be executed.
        let copied = std::process::Command::new("cp").args([&bytes, &copy]).status();
        assert!(copied.expect("cp(1)").success());
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o700)).expect("mode");
        let ran = std::process::Command::new(&copy).status();
        std::fs::remove_dir_all(&directory).expect("removed");
        assert!(ran.expect("it starts").success());
    }

    #[test]
    fn no_program_is_refused() {
        assert!(loadable(Path::new("/etc/passwd")).is_err());
    }
}
