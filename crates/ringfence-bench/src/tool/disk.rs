//! `disk DIR MIB OPS BLOCK_KIB`: reads and writes in real files.
//!
//! The data is not zeros (file systems and devices cheat on those), random reads hit blocks that were
//! written, and cold reads follow a drop of the file's own cached pages.

use super::{number, print, text};
use crate::error::{Error, Result};
use crate::model::Better;
use crate::stats;
use crate::sys::process::drop_cached_pages;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const PAGE: usize = 4096;

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let dir = Path::new(text(args, 0)?);
    let (mib, ops, block): (usize, usize, usize) =
        (number(args, 1)?, number(args, 2)?, number(args, 3)?);
    let path = dir.join(format!("bench-{}.data", std::process::id()));
    let result = measure(&path, mib << 20, ops, block << 10);
    let _ = std::fs::remove_file(&path);
    result.map(|()| 0)
}

fn measure(path: &Path, size: usize, ops: usize, block: usize) -> Result<()> {
    let failed = |cause| Error::file("use", path, cause);
    let mut rng = fastrand::Rng::with_seed(1);
    let data: Vec<u8> = (0..block).map(|_| rng.u8(1..)).collect();
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(failed)?;

    let began = Instant::now();
    for _ in 0..size / block {
        file.write_all(&data).map_err(failed)?;
    }
    file.sync_data().map_err(failed)?;
    rate("sequential write", size, began);

    let mut buffer = vec![0; block];
    for (name, cold) in [("sequential read, cold", true), ("sequential read, cached", false)] {
        if cold {
            drop_cached_pages(&file);
        }
        file.rewind().map_err(failed)?;
        let began = Instant::now();
        while file.read(&mut buffer).map_err(failed)? > 0 {}
        rate(name, size, began);
    }

    let places: Vec<u64> = (0..ops).map(|_| (rng.usize(..size / PAGE) * PAGE) as u64).collect();
    for (name, cold) in [("random 4K read, cold", true), ("random 4K read, cached", false)] {
        if cold {
            drop_cached_pages(&file);
        }
        let page = &mut buffer[..PAGE];
        each(name, &places, |place| file.read_exact_at(page, place)).map_err(failed)?;
    }
    let page = &data[..PAGE];
    each("random 4K write", &places, |place| file.write_all_at(page, place)).map_err(failed)?;
    // A write that waits for the device is a thousand times slower: a tenth as many tell as much.
    let few = &places[..ops.div_ceil(10)];
    each("random 4K write + fdatasync", few, |place| {
        file.write_all_at(page, place).and_then(|()| file.sync_data())
    })
    .map_err(failed)
}

fn rate(name: &str, size: usize, began: Instant) {
    let rate = size as f64 / f64::from(1 << 20) / began.elapsed().as_secs_f64();
    print(name, "MiB/s", Better::Higher, rate);
}

/// Does one thing at every place: operations per second, and the slow end of their times.
fn each(
    name: &str,
    places: &[u64],
    mut act: impl FnMut(u64) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut times = Vec::with_capacity(places.len());
    let all = Instant::now();
    for &place in places {
        let began = Instant::now();
        act(place)?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    print(name, "1/s", Better::Higher, places.len() as f64 / all.elapsed().as_secs_f64());
    print(&format!("{name}, p99"), "µs", Better::Lower, stats::quantile(&times, 0.99));
    Ok(())
}
