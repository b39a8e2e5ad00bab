//! `rootfs LIST OPS`: reads of system files, which a sandbox shows through its own mounts.
//!
//! LIST names files, the largest first; the bench outside made it, so that all lanes read the same.

use super::{number, print, text};
use crate::error::{Error, Result, error};
use crate::model::Better;
use crate::sys::process::drop_cached_pages;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How many of the list's files are "small": its end.
const SMALL: usize = 500;

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let (list, ops) = (Path::new(text(args, 0)?), number::<usize>(args, 1)?);
    let names = std::fs::read_to_string(list).map_err(|cause| Error::file("read", list, cause))?;
    let paths: Vec<PathBuf> = names.lines().map(PathBuf::from).collect();
    let largest = paths.first().ok_or_else(|| error!("bench: rootfs: an empty list"))?;
    large(largest).map_err(|cause| Error::file("read", largest, cause))?;
    let failed = |cause| error!("bench: rootfs: {cause}");
    random(&paths, ops).map_err(failed)?;
    small(&paths[paths.len().saturating_sub(SMALL)..]).map_err(failed)?;
    walk(&paths).map_err(failed)?;
    Ok(0)
}

/// One large file from end to end.
fn large(path: &Path) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for (name, cold) in [("large file, cold", true), ("large file, cached", false)] {
        let mut file = File::open(path)?;
        if cold {
            drop_cached_pages(&file);
        }
        let (began, mut size) = (Instant::now(), 0);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => size += count,
            }
        }
        let rate = size as f64 / f64::from(1 << 20) / began.elapsed().as_secs_f64();
        print(name, "MiB/s", Better::Higher, rate);
    }
    Ok(())
}

/// Pages here and there over all files.
fn random(paths: &[PathBuf], ops: usize) -> std::io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut page = [0; 4096];
    let files: Vec<(File, u64)> = paths
        .iter()
        .take(200)
        .map(|path| {
            File::open(path).and_then(|file| file.metadata().map(|meta| (file, meta.len())))
        })
        .collect::<std::io::Result<_>>()?;
    for (file, _) in &files {
        drop_cached_pages(file);
    }
    let began = Instant::now();
    for _ in 0..ops {
        let (file, size) = &files[rng.usize(..files.len())];
        file.read_at(&mut page, rng.u64(..(size / 4096).max(1)) * 4096)?;
    }
    print(
        "random 4K read, cold",
        "1/s",
        Better::Higher,
        ops as f64 / began.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Small files, each opened, read and closed: what starting an interpreter does.
fn small(paths: &[PathBuf]) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let began = Instant::now();
    for path in paths {
        bytes.clear();
        File::open(path)?.read_to_end(&mut bytes)?;
    }
    print(
        "open, read, close",
        "1/s",
        Better::Higher,
        paths.len() as f64 / began.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// A `stat` of every file.
fn walk(paths: &[PathBuf]) -> std::io::Result<()> {
    let began = Instant::now();
    for path in paths {
        std::fs::symlink_metadata(path)?;
    }
    print("stat", "1/s", Better::Higher, paths.len() as f64 / began.elapsed().as_secs_f64());
    Ok(())
}
