//! The whole network path with real clients: a host made of one namespace in which every address
//! exists, a sandbox in another, and the gateway between them.
//!
//! Each scenario is a process of its own. Without arguments all run; with one, those whose name
//! holds it.

mod addresses;
mod beginnings;
mod names;
mod scenarios;
mod world;

use std::process::{Command, ExitCode, Stdio};

fn all() -> impl Iterator<Item = &'static (&'static str, fn())> {
    scenarios::ALL.iter().chain(beginnings::ALL).chain(addresses::ALL).chain(names::ALL)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, name] = &arguments[..]
        && first == "--scenario"
    {
        let (_, scenario) = all().find(|(other, _)| other == name).expect("a scenario");
        world::on_a_host(*scenario);
    }
    if arguments.iter().any(|argument| argument == "--list") {
        all().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Err(reason) = world::possible() {
        println!("skipped: no namespaces for this user ({reason})");
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let exe = std::env::current_exe().expect("our own path");
    let mut failed = 0;
    for (name, _) in all() {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let output = Command::new(&exe)
            .args(["--scenario", name])
            .stdin(Stdio::null())
            .output()
            .expect("started");
        let good = output.status.success();
        println!("scenario {name} ... {}", if good { "ok" } else { "FAILED" });
        if !good || arguments.iter().any(|argument| argument == "--nocapture") {
            println!("{}", String::from_utf8_lossy(&output.stdout));
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
        failed += usize::from(!good);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
