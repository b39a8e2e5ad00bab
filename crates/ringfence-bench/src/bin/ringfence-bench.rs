//! The benchmark suite on its own, for work on it: `ringfence-bench --ringfence PATH start`.
//! Users call it as `ringfence bench`.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().skip(1).collect();
    let mut subject = PathBuf::from("ringfence");
    if args.first().is_some_and(|first| first == "--ringfence") && args.len() >= 2 {
        subject = PathBuf::from(args.remove(1));
        args.remove(0);
    }
    ringfence_bench::main_standalone(args, subject)
}
