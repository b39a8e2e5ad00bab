//! Prints the exact set of libraries of a command, with reasons, and how long it took to find:
//! `cargo run --release -p ringfence-learn --example libraries -- git status`.

use ringfence_learn::program::{Question, libraries};
use std::path::PathBuf;
use std::time::Instant;

fn main() {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let question = Question {
        argv: std::env::args_os().skip(1).collect(),
        search: std::env::split_paths(&search).collect(),
        workdir: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        home: std::env::home_dir().unwrap_or_else(|| PathBuf::from("/")),
        surroundings: ringfence_learn::closure::Surroundings::default(),
    };
    let started = Instant::now();
    let mut looked = 0;
    let answer = libraries(&question, &mut |_, _| looked += 1);
    let took = started.elapsed();
    for path in answer.files.iter().chain(&answer.directories) {
        let reason = answer.reasons.get(path);
        let how = reason.map_or("", |reason| reason.how.as_str());
        let by = reason.and_then(|reason| reason.by.as_ref());
        println!(
            "{} ({how} {})",
            path.display(),
            by.map_or(String::new(), |by| by.display().to_string())
        );
    }
    for (link, target) in &answer.links {
        println!("{} -> {}", link.display(), target.display());
    }
    println!("missing: {:?}", answer.missing);
    let (files, directories) = (answer.files.len(), answer.directories.len());
    println!("{files} files, {directories} directories, {} looks, {took:?}", looked);
}
