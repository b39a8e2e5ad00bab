//! The stages before a launch, by criterion: `cargo bench -p ringfence-bench`.
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    match ringfence_bench::library::parts(&here) {
        Ok(parts) => {
            for mut part in parts {
                criterion.bench_function(part.name, |bencher| bencher.iter(|| (part.run)()));
            }
        }
        Err(error) => eprintln!("ringfence: {error}"),
    }
    criterion.final_summary();
}
