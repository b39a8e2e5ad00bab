//! The help texts.

use crate::{groups, peers};

/// The help of `ringfence bench`.
#[must_use]
pub fn bench() -> String {
    let mut text = String::from(
        "Measures what a sandbox costs on this machine, beside the alternatives found here.

Usage: ringfence bench [GROUP...] [OPTIONS]
       ringfence bench compare BEFORE AFTER
       ringfence bench history DIR
       ringfence bench check [RESULT] --against BASELINE
       ringfence bench report RESULT

Groups (all of them when none is named):
",
    );
    for entry in groups::ALL {
        text.push_str(&format!("  {:<11} {}\n", entry.name, entry.summary));
    }
    let peers: Vec<_> = peers::ALL.iter().map(|peer| peer.name).collect();
    text.push_str(&format!(
        "
Options:
  --quick            fewer workloads and rounds
  --runs N           N rounds of each workload, however long that takes
  --minutes N        group `connections` goes on for N minutes, and fails when something is left behind
  --against PEER,... the alternatives to measure, or `none` (default: every one found)
                     {}
  --tier TIER,...    namespace, process, vm (default: namespace,process)
  --also NAME=PATH   another ringfence binary beside this one: a debug, release or PGO build,
                     or the last release; may be repeated
  -o, --output DIR   where the JSON, Markdown and HTML go (default: bench-results)
  --json             print the result as JSON instead of tables
  --strict           refuse to measure on an unfit machine (busy, or one processor)
  --work DIR         where the working directory is made (default: ~/.cache/ringfence-bench)
  --seed N           the seed of the random order
  -h, --help         this

A run that fails is an error, never a sample. Exit codes: 0 measured; 1 something that should
have been measured failed; 125 bad input. `docs/benchmarking.md` says what each number means.
",
        wrapped(&peers)
    ));
    text
}

/// A list in lines that fit the column of the options' texts.
fn wrapped(items: &[&str]) -> String {
    let mut lines = vec![String::new()];
    for item in items {
        if lines.last().is_some_and(|line| line.len() + item.len() > 70) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(item);
        }
    }
    lines.join("\n                     ")
}

/// The help of `compare`.
pub const COMPARE: &str = "Holds one result against another.

Usage: ringfence bench compare [--all] [--json] BEFORE AFTER

BEFORE and AFTER are result files, or folders of which the newest result is taken. Measures
that have an unsandboxed baseline are compared by their factor over it, so that a faster or busier
machine is not mistaken for a faster or slower sandbox. A difference is reported only when
its bootstrap interval excludes \"none\", at a confidence that allows for the number of measures
compared, and when it is large enough to matter.

  --all    every measure, not only those that differ
  --json   machine-readable

Exit codes: 0 whether or not there are differences; 125 bad input. To fail on a regression, use `check`.
";

/// The help of `history`.
pub const HISTORY: &str = "Shows how the results in a folder changed over time.

Usage: ringfence bench history [-o DIR] DIR

Reads every result in DIR, writes history.html and history.md there (or to -o DIR), and prints
the first and last value of each measure with the change between them.
";

/// The help of `check`.
pub const CHECK: &str = "Passes or fails a result.

Usage: ringfence bench check [RESULT] --against BASELINE [--limit FACTOR] [--gate GATE]...

RESULT is a result file or a folder of which the newest is taken (default: bench-results).
A measure fails when it is worse than in BASELINE by more than FACTOR, surely (the whole interval).

  --against BASELINE   the result to hold it against
  --limit FACTOR       how much worse is too much (default: 1.10)
  --gate GATE          a goal within RESULT itself, as a ratio of two lanes; may be repeated:
                       'start/true/wall: ringfence namespace <= 4.5 x unsandboxed'

Exit codes: 0 passed; 1 failed; 125 bad input.
";

/// The help of `report`.
pub const REPORT: &str = "Writes the Markdown and HTML report of a result again.

Usage: ringfence bench report [-o DIR] RESULT
";
