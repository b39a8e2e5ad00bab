//! How much slower work is that `learn` watches: many small files, as package managers unpack and load
//! them; and a build, as compilers are started by one.

use crate::bench::Bench;
use crate::error::{Error, Result, error};
use crate::interleave::{Rounds, Trial, interleave};
use crate::lanes::{BARE, Kind, Lane};
use crate::model::Group;
use crate::work::{find, write};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Packages, and files in each.
const PACKAGES: usize = 300;
const FILES: usize = 8;
/// Sources of the build.
const SOURCES: usize = 12;

/// Measures both.
///
/// # Errors
/// A sentence: what is missing.
pub fn measure(bench: &mut Bench, group: &mut Group) -> Result<()> {
    let directory = bench.work.space.join(".bench/learn");
    std::fs::create_dir_all(&directory).map_err(|cause| Error::file("make", &directory, cause))?;
    let done = packages(bench, group, &directory).and(build(bench, group, &directory));
    // Other groups measure what walks the workspace.
    std::fs::remove_dir_all(&directory)
        .map_err(|cause| Error::file("remove", &directory, cause))?;
    done
}

/// Unpacks packages and loads them.
fn packages(bench: &mut Bench, group: &mut Group, directory: &Path) -> Result<()> {
    let (tar, node) = (needed("tar")?, needed("node")?);
    let all = directory.join("node_modules");
    let text = "module.exports = 1;\n".repeat(20);
    for package in 0..PACKAGES {
        let own = all.join(format!("m{package}"));
        std::fs::create_dir_all(&own).map_err(|cause| Error::file("make", &own, cause))?;
        for file in 0..FILES {
            let name = if file == 0 { "index.js".to_owned() } else { format!("f{file}.js") };
            write(&own.join(name), text.as_bytes())?;
        }
    }
    let load = format!("for (let i = 0; i < {PACKAGES}; i++) require(`./node_modules/m${{i}}`);\n");
    write(&directory.join("load.js"), load.as_bytes())?;
    let packed =
        Command::new(&tar).current_dir(directory).args(["cf", "m.tar", "node_modules"]).status();
    if !packed.is_ok_and(|status| status.success()) {
        return Err(error!("tar cannot pack the packages"));
    }
    let (tar, node) = (tar.display(), node.display());
    let script =
        format!("cd .bench/learn && rm -rf node_modules && {tar} xf m.tar && {node} load.js");
    lanes(bench, group, &format!("learn: {PACKAGES} packages unpacked and loaded"), &script)
}

/// Compiles some sources and links them.
fn build(bench: &mut Bench, group: &mut Group, directory: &Path) -> Result<()> {
    let compiler = needed("cc").or_else(|_| needed("gcc"))?;
    for source in 0..SOURCES {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
             int f{source}(int n) {{ return printf(\"%d\\n\", n) + (int)strlen(getenv(\"HOME\")); }}\n"
        );
        write(&directory.join(format!("f{source}.c")), text.as_bytes())?;
    }
    write(&directory.join("main.c"), b"int f0(int); int main(void) { return f0(1) < 0; }\n")?;
    let compiler = compiler.display();
    let script = format!(
        "cd .bench/learn && rm -f *.o && for f in *.c; do {compiler} -O1 -c $f || exit 1; done && \
         {compiler} -o built *.o"
    );
    lanes(bench, group, &format!("learn: {} C files built", SOURCES + 1), &script)
}

/// The same work outside, in a run, and watched.
fn lanes(bench: &mut Bench, group: &mut Group, name: &str, script: &str) -> Result<()> {
    let argv: Vec<OsString> = vec![needed("sh")?.into(), "-c".into(), script.into()];
    let mut trials = vec![Trial::wall(BARE, BARE, bench.command(&Lane::bare(), &argv, &[]))];
    for lane in bench.ringfence.clone() {
        let Kind::Ringfence { exe, tier } = &lane.kind else { continue };
        // What is learnt is written to a layer, which the process tier has not.
        if tier != "namespace" {
            continue;
        }
        trials.push(Trial::wall(
            &format!("{}, run", lane.name),
            BARE,
            bench.command(&lane, &argv, &[]),
        ));
        let mut line: Vec<OsString> = vec![exe.into()];
        line.extend(["learn", "--tier", tier, "--"].map(OsString::from));
        line.extend(argv.iter().cloned());
        trials.push(Trial::wall(&format!("{}, learn", lane.name), BARE, bench.plain(&line)));
    }
    let rounds = Rounds { warm_up: 1, ..Rounds::long(bench) };
    interleave(bench, group, name, trials, rounds);
    Ok(())
}

fn needed(name: &str) -> Result<std::path::PathBuf> {
    find(name).ok_or_else(|| error!("`{name}` is not installed"))
}
