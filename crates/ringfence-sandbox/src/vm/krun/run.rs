//! A machine of libkrun's: what it boots, how it is started, and what runs in its sandbox.

use super::super::jail::{self, Inmate, Origin};
use super::super::machine::{self, Process, make_directory};
use super::super::qmp::Qmp;
use super::super::template::{self, BOOTED, Key};
use super::super::turn::{Turn, UNFINISHED};
use super::super::{Assets, Shape, initramfs};
use super::acpi::{self, Device};
use super::kernel;
use crate::itself;
use krun_polly::event_manager::{self, EventManager};
use krun_vmm::builder::build_microvm;
use krun_vmm::resources::{PortConfig, VirtioConsoleConfigMode, VmResources};
use krun_vmm::vmm_config::external_kernel::{ExternalKernel, KernelFormat};
use krun_vmm::vmm_config::kernel_cmdline::KernelCmdlineConfig;
use krun_vmm::vmm_config::machine_config::VmConfig;
use ringfence_sys::memory::PAGE;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long somebody else may take who makes one.
const PATIENCE: Duration = Duration::from_secs(300);
/// libkrun's third device, after the balloon and the source of randomness, which no guest needs.
const CONSOLE: Device = Device { address: 0xd000_2000, interrupt: 7 };
/// The guest's stream.
const STREAM: i32 = 0;

/// What is booted.
#[derive(Debug)]
pub struct Files {
    /// The kernel.
    pub kernel: PathBuf,
    /// Its initial file system.
    pub initramfs: PathBuf,
}

/// Starts a machine and waits until its agent says hello; also the other end of the guest's stream.
///
/// # Errors
/// A sentence.
pub fn boot(assets: &Assets, shape: &Shape, cache: &Path) -> Result<(Process, OwnedFd), String> {
    let files = files(assets, shape, cache)?;
    let (mut process, stream) = start(assets, shape, cache, &files)?;
    let heard = template::greet(&stream);
    heard.map_err(|why| process.explain(format!("the guest does not boot: {why}")))?;
    Ok((process, stream.into()))
}

/// Starts it in its sandbox; also the other end of the guest's stream.
fn start(
    assets: &Assets,
    shape: &Shape,
    cache: &Path,
    files: &Files,
) -> Result<(Process, UnixStream), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let profile = machine::profile(assets, shape.monitor, cache)?;
    let pair = || UnixStream::pair().map_err(failed("socketpair"));
    let ((stream, its_stream), (control, _nobody)) = (pair()?, pair()?);
    let errors = machine::in_memory()?;
    let copy = || errors.try_clone().map(OwnedFd::from).map_err(failed("dup"));
    let (input, output, complaints) = (its_stream.into(), copy()?, copy()?);
    let from = &Origin::Krun(files);
    let inmate = Inmate { assets, shape, input, from, output, errors: complaints };
    let child = jail::start(inmate, &profile).map_err(failed("cannot start libkrun"))?;
    Ok((Process::of(child, Qmp::new(control, machine::PATIENCE), errors), stream))
}

/// What is booted, which is made once for each kernel and program.
fn files(assets: &Assets, shape: &Shape, cache: &Path) -> Result<Files, String> {
    // How much memory there is changes nothing of it.
    let name = Key::of(assets, &Shape { memory: 0, ..shape.clone() })?.under(BOOTED);
    let place = cache.join(&name);
    let files = Files { kernel: place.join("kernel"), initramfs: place.join("initramfs") };
    if place.is_dir() {
        return Ok(files);
    }
    make_directory(cache).map_err(|error| format!("mkdir({}): {error}", cache.display()))?;
    let turn = Turn::wait(cache, PATIENCE)?;
    if place.is_dir() {
        return Ok(files);
    }
    turn.remove_unfinished(cache);
    template::remove_others(cache, BOOTED, &name);
    let new = cache.join(machine::name(UNFINISHED));
    make_directory(&new).map_err(|error| format!("mkdir({}): {error}", new.display()))?;
    let made = make(assets, shape, &new).and_then(|()| match fs::rename(&new, &place) {
        // Another start was first: on a file system without locks.
        Err(error) if !place.is_dir() => Err(format!("rename({}): {error}", new.display())),
        _ => Ok(files),
    });
    let _ = fs::remove_dir_all(&new);
    made
}

fn make(assets: &Assets, shape: &Shape, new: &Path) -> Result<(), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let image = &assets.kernel.image;
    let image = fs::read(image).map_err(|error| format!("{}: {error}", image.display()))?;
    let kernel = kernel::make(&image, &acpi::tables(&[CONSOLE]))?;
    fs::write(new.join("kernel"), kernel).map_err(failed("the kernel"))?;
    let initramfs = new.join("initramfs");
    initramfs::make(&assets.kernel, Path::new(itself::OWN), shape, &initramfs)
        .and_then(|()| whole_pages(&initramfs))
        .map_err(failed("the initial file system"))?;
    template::durable(new).map_err(failed("what is booted"))
}

/// libkrun puts it at the memory's end, and the kernel gives its pages back: each of them must be its own.
fn whole_pages(path: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(file.metadata()?.len().next_multiple_of(PAGE as u64))
}

/// The words by which this program becomes a machine in its sandbox.
pub fn words(files: &Files, shape: &Shape) -> [OsString; 4] {
    let megabytes = (shape.memory >> 20).to_string();
    let nested = if shape.nested { "nested" } else { "plain" };
    [files.kernel.clone().into(), files.initramfs.clone().into(), megabytes.into(), nested.into()]
}

/// Becomes a machine, whose guest's stream is the standard input. It ends with its guest.
pub fn run(words: &mut dyn Iterator<Item = OsString>) -> u8 {
    let Err(why) = live(words);
    ringfence_sys::say!("libkrun: {why}");
    125
}

fn live(words: &mut dyn Iterator<Item = OsString>) -> Result<std::convert::Infallible, String> {
    let resources = resources(words)?;
    let mut events = EventManager::new().map_err(|error| format!("{error:?}"))?;
    // By this it would be asked for what other machines than this one need.
    let (asked, _nobody) = crossbeam_channel::unbounded();
    let _machine = build_microvm(&resources, &mut events, None, asked)
        .map_err(|error| format!("{error:?}"))?;
    loop {
        match events.run() {
            Ok(_) => {}
            // It was held still, and goes on.
            Err(event_manager::Error::Poll(error))
                if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("{error:?}")),
        }
    }
}

fn resources(words: &mut dyn Iterator<Item = OsString>) -> Result<VmResources, String> {
    let mut next = || words.next().ok_or("too few words");
    let (kernel, initramfs, megabytes, nested) = (next()?, next()?, next()?, next()?);
    let initramfs = PathBuf::from(initramfs);
    let length =
        initramfs.metadata().map_err(|error| format!("{}: {error}", initramfs.display()))?;
    let mut resources = VmResources::default();
    let shape = VmConfig {
        vcpu_count: Some(1),
        mem_size_mib: megabytes.to_str().and_then(|text| text.parse().ok()),
        ht_enabled: Some(false),
        cpu_template: None,
    };
    resources.set_vm_config(&shape).map_err(|error| format!("{error:?}"))?;
    resources.nested_enabled = nested == "nested";
    resources.set_external_kernel(ExternalKernel {
        path: kernel.into(),
        format: KernelFormat::Elf,
        initramfs_path: Some(initramfs),
        initramfs_size: length.len(),
        cmdline: Some(format!("{} rdinit=/init", jail::WORDS)),
    });
    let end = KernelCmdlineConfig { prolog: None, krun_env: None, epilog: Some(AGENT.to_owned()) };
    resources.set_kernel_cmdline(end).map_err(|error| format!("{error:?}"))?;
    resources.disable_implicit_console = true;
    let port = |name: &str, fd: i32| PortConfig::InOut {
        name: name.to_owned(),
        input_fd: fd,
        output_fd: fd,
    };
    // The first port of such a device is a console's elsewhere, and the agent's is the second.
    let ports = vec![port("", -1), port("ringfence", STREAM)];
    resources.virtio_consoles.push(VirtioConsoleConfigMode::Explicit(ports));
    Ok(resources)
}

/// The end of the kernel's command line: what its first process is told.
const AGENT: &str = " -- guest-agent";
