//! `ringfence vm setup`: brings what the vm tier needs and the host has not.

use super::assets::{self, QEMU};
use super::machine::make_directory;
use ringfence_policy::host_program::command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's package of the emulator, and the one that names the newest kernel for virtual machines.
const QEMU_PACKAGE: &str = "qemu-system-x86";
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// Brings what is missing, and says what it does.
///
/// # Errors
/// A sentence, with what to type.
pub fn run(home: &Path, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    assets::is_own(&assets::cache(home))?;
    if assets::qemu().is_none() {
        install(QEMU_PACKAGE, say)?;
        if assets::qemu().is_none() {
            return Err(format!("{QEMU} is still missing after {QEMU_PACKAGE} was installed"));
        }
    }
    let place = assets::kernel_place(home);
    let kernel = match assets::kernel(home) {
        Some(kernel) => kernel,
        None => {
            fetch_kernel(&place, say)?;
            assets::kernel(home).ok_or("the kernel's package holds no kernel")?
        }
    };
    // It may be one that root has fetched for everybody.
    let place = kernel.image.parent().unwrap_or(&place);
    say(&format!("guest kernel {} in {}", kernel.release, place.display()));
    Ok(())
}

fn root() -> bool {
    ringfence_sys::identity::user() == 0
}

/// Installs a package, as root or by sudo where it asks for no password.
fn install(package: &str, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let by_hand = format!("as root: apt-get install --no-install-recommends {package}");
    let words = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package];
    let sudo = || {
        let asked = command("sudo").map(|mut sudo| sudo.args(["-n", "true"]).output());
        asked.is_ok_and(|asked| asked.is_ok_and(|output| output.status.success()))
    };
    let mut install = if root() {
        command(words[0])?
    } else if sudo() {
        let mut sudo = command("sudo")?;
        sudo.args(["-n", words[0]]);
        sudo
    } else {
        return Err(format!(
            "{package} is not installed, and this user may not install it; {by_hand}"
        ));
    };
    say(&format!("installing {package}"));
    run_quietly(install.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive"))
        .map_err(|why| format!("{package} could not be installed ({why}); {by_hand}"))
}

/// Downloads the kernel's package and takes it apart; nothing is installed on the host.
fn fetch_kernel(place: &Path, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let failed = |what: String| move |error: std::io::Error| format!("{what}: {error}");
    make_directory(place).map_err(failed(format!("mkdir({})", place.display())))?;
    let work = place.join(format!("new-{}", std::process::id()));
    make_directory(&work).map_err(failed(format!("mkdir({})", work.display())))?;
    let done = unpack_kernel(&work, place, say);
    let _ = fs::remove_dir_all(&work);
    done
}

fn unpack_kernel(work: &Path, place: &Path, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let package = newest_kernel()?;
    say(&format!("downloading {package} (it is taken apart here, not installed)"));
    run_quietly(command("apt-get")?.args(["download", "-q", &package]).current_dir(work)).map_err(
        |why| format!("{package} could not be downloaded ({why}); as root: apt-get update"),
    )?;
    let deb = fs::read_dir(work)
        .map_err(failed("readdir"))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or("apt-get downloaded nothing")?;
    let tree = work.join("tree");
    run_quietly(command("dpkg-deb")?.arg("-x").arg(&deb).arg(&tree))?;
    let release = package.strip_prefix("linux-image-").unwrap_or(&package).to_owned();
    let kernel = work.join("kernel");
    make_directory(&kernel).map_err(failed("mkdir"))?;
    let boot = tree.join("boot").join(format!("vmlinuz-{release}"));
    let modules: Option<PathBuf> = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|directory| tree.join(directory).join(&release))
        .find(|path| path.is_dir());
    let modules = modules.ok_or("the kernel's package holds no modules")?;
    fs::rename(boot, kernel.join("vmlinuz")).map_err(failed("the kernel's package"))?;
    fs::rename(modules, kernel.join("modules")).map_err(failed("the kernel's package"))?;
    fs::write(kernel.join("release"), &release).map_err(failed("write"))?;
    if root() {
        // For all users to read.
        run_quietly(command("chmod")?.args(["-R", "a+rX"]).arg(&kernel))?;
        for directory in [place, place.parent().unwrap_or(place)] {
            run_quietly(command("chmod")?.arg("a+rx").arg(directory))?;
        }
    }
    let _ = fs::remove_dir_all(place.join("kernel"));
    fs::rename(&kernel, place.join("kernel")).map_err(failed("rename"))
}

/// The package that the one for the newest kernel depends on.
fn newest_kernel() -> Result<String, String> {
    let apt = command("apt-cache");
    let asked = apt.and_then(|mut apt| {
        apt.args(["depends", KERNEL_PACKAGE]).output().map_err(|error| error.to_string())
    });
    let output = asked.map_err(|error| {
        format!(
            "apt-cache: {error}; the vm tier's kernel comes from Debian's packages: put a \
                 kernel's vmlinuz, its modules and its release where ringfence vm status says"
        )
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends
        .map(str::trim)
        .find(|name| name.starts_with("linux-image-"))
        .map(ToOwned::to_owned)
        .ok_or_else(|| format!("apt knows no {KERNEL_PACKAGE}; as root: apt-get update"))
}

fn run_quietly(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(format!("{name}: {}: {last}", output.status))
}
