//! The command line of `ringfence bench`.

use crate::error::{Result, error};
use crate::{groups, peers};
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// What the user asked for.
#[derive(Debug)]
pub enum Request {
    /// Print a text and end.
    Help(String),
    /// Measure.
    Measure(Options),
    /// Hold one result against another.
    Compare {
        /// The earlier result.
        before: PathBuf,
        /// The later result.
        after: PathBuf,
        /// Machine-readable.
        json: bool,
        /// Every line, not only the differences.
        all: bool,
    },
    /// Show how results changed over time.
    History {
        /// The folder of results.
        dir: PathBuf,
        /// Where the report goes; the folder itself when not given.
        out: Option<PathBuf>,
    },
    /// Pass or fail.
    Check {
        /// The result to judge.
        result: PathBuf,
        /// What it is held against.
        baseline: Option<PathBuf>,
        /// How much worse is too much.
        limit: f64,
        /// Gates: `GROUP/WORKLOAD/METRIC: LANE <= N x LANE`.
        gates: Vec<String>,
    },
    /// Write the Markdown and HTML of a result again.
    Report {
        /// The result.
        result: PathBuf,
        /// Where the files go.
        out: PathBuf,
    },
}

/// The options of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// The groups, by name, in the order to run.
    pub groups: Vec<String>,
    /// Fewer workloads, fewer rounds.
    pub quick: bool,
    /// The number of rounds, instead of what fits the time.
    pub runs: Option<usize>,
    /// How long group `connections` goes on, in minutes, instead of what is usual.
    pub minutes: Option<f64>,
    /// The peers to measure; `None` for every one found.
    pub against: Option<Vec<String>>,
    /// The tiers to measure.
    pub tiers: Vec<String>,
    /// Other ringfence binaries, by name, measured beside.
    pub also: Vec<(String, PathBuf)>,
    /// Where the results go.
    pub out: PathBuf,
    /// Print the result as JSON, not as tables.
    pub json: bool,
    /// Refuse to run on an unfit machine.
    pub strict: bool,
    /// Where the working directory is made.
    pub work: Option<PathBuf>,
    /// The seed of the random order.
    pub seed: Option<u64>,
}

/// Where results go when nothing else is said.
pub const OUT: &str = "bench-results";
/// The tiers there are.
pub const TIERS: [&str; 3] = ["namespace", "process", "vm"];
/// By how much worse than its baseline a measure may be before `check` fails.
pub const LIMIT: f64 = 1.10;

impl Default for Options {
    fn default() -> Options {
        Options {
            groups: Vec::new(),
            quick: false,
            runs: None,
            minutes: None,
            against: None,
            // A machine takes a hundred times as long: group `vm` has it, and whoever names it.
            tiers: ["namespace", "process"].map(String::from).to_vec(),
            also: Vec::new(),
            out: OUT.into(),
            json: false,
            strict: false,
            work: None,
            seed: None,
        }
    }
}

/// Reads the arguments after `bench`.
pub fn parse(args: Vec<OsString>) -> Result<Request> {
    let sub = args.first().and_then(|first| first.to_str()).unwrap_or_default().to_owned();
    let rest = || args[1..].to_vec();
    match sub.as_str() {
        "compare" => compare(rest()),
        "history" => history(rest()),
        "check" => check(rest()),
        "report" => report(rest()),
        _ => measure(args),
    }
}

fn lex(args: Vec<OsString>) -> lexopt::Parser {
    lexopt::Parser::from_args(args)
}

fn wrong(cause: impl std::fmt::Display) -> crate::error::Error {
    error!("bench: {cause}; see `ringfence bench --help`")
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    parser
        .value()
        .map_err(wrong)?
        .into_string()
        .map_err(|value| wrong(format!("{value:?} is not UTF-8")))
}

fn number<T: std::str::FromStr>(parser: &mut lexopt::Parser, what: &str) -> Result<T> {
    let given = text(parser)?;
    given.parse().map_err(|_| wrong(format!("{what} must be a number, not `{given}`")))
}

fn measure(args: Vec<OsString>) -> Result<Request> {
    let mut options = Options::default();
    let mut parser = lex(args);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help(crate::help::bench())),
            Long("quick") => options.quick = true,
            Long("runs") => {
                let runs = number(&mut parser, "--runs")?;
                if !(2..=100_000).contains(&runs) {
                    return Err(wrong("--runs must be between 2 and 100000"));
                }
                options.runs = Some(runs);
            }
            Long("minutes") => {
                let minutes = number(&mut parser, "--minutes")?;
                if !(0.05..=1440.0).contains(&minutes) {
                    return Err(wrong("--minutes must be between 0.05 and 1440"));
                }
                options.minutes = Some(minutes);
            }
            Long("against") => {
                let list = options.against.get_or_insert_default();
                for name in list_of(&text(&mut parser)?) {
                    add_peer(list, &name)?;
                }
            }
            Long("tier") => {
                options.tiers = list_of(&text(&mut parser)?);
                if let Some(odd) = options.tiers.iter().find(|tier| !TIERS.contains(&tier.as_str()))
                {
                    return Err(wrong(format!("no tier `{odd}`; there are {}", TIERS.join(", "))));
                }
            }
            Long("also") => {
                let given = text(&mut parser)?;
                let (name, path) = given.split_once('=').ok_or_else(|| {
                    wrong(format!("--also wants NAME=PATH of another ringfence, not `{given}`"))
                })?;
                let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
                options.also.push((name.into(), path));
            }
            Short('o') | Long("output") => options.out = parser.value().map_err(wrong)?.into(),
            Long("json") => options.json = true,
            Long("strict") => options.strict = true,
            Long("work") => {
                // Sandboxes and lanes have directories of their own.
                let given = parser.value().map_err(wrong)?;
                let place = std::path::absolute(&given).unwrap_or_else(|_| given.into());
                options.work = Some(place);
            }
            Long("seed") => options.seed = Some(number(&mut parser, "--seed")?),
            Value(name) => add_group(&mut options.groups, &name.to_string_lossy())?,
            other => return Err(wrong(other.unexpected())),
        }
    }
    if options.groups.is_empty() {
        options.groups = groups::ALL.iter().map(|entry| entry.name.to_owned()).collect();
    }
    Ok(Request::Measure(options))
}

fn list_of(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(String::from).collect()
}

fn add_group(list: &mut Vec<String>, name: &str) -> Result<()> {
    let known = groups::ALL.iter().map(|entry| entry.name);
    if name == "all" {
        list.extend(known.map(String::from));
        return Ok(());
    }
    if !known.clone().any(|known| known == name) {
        let known: Vec<_> = known.collect();
        return Err(error!("bench: no group `{name}`; the groups are {}", known.join(", ")));
    }
    if !list.iter().any(|had| had == name) {
        list.push(name.into());
    }
    Ok(())
}

fn add_peer(list: &mut Vec<String>, name: &str) -> Result<()> {
    if name == "none" {
        return Ok(());
    }
    if !peers::ALL.iter().any(|peer| peer.name == name) {
        let known: Vec<_> = peers::ALL.iter().map(|peer| peer.name).collect();
        return Err(error!("bench: no peer `{name}`; known are {}, none", known.join(", ")));
    }
    if !list.iter().any(|had| had == name) {
        list.push(name.into());
    }
    Ok(())
}

/// Takes `wanted` paths from `values`, or says what the subcommand needs.
fn paths<const N: usize>(values: Vec<OsString>, usage: &str) -> Result<[PathBuf; N]> {
    let values: Vec<PathBuf> = values.into_iter().map(PathBuf::from).collect();
    values.try_into().map_err(|_| error!("bench: usage: ringfence bench {usage}"))
}

fn compare(args: Vec<OsString>) -> Result<Request> {
    let (mut json, mut all, mut values) = (false, false, Vec::new());
    let mut parser = lex(args);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help(crate::help::COMPARE.into())),
            Long("json") => json = true,
            Long("all") => all = true,
            Value(value) => values.push(value),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let [before, after] = paths(values, "compare BEFORE AFTER")?;
    Ok(Request::Compare { before, after, json, all })
}

fn history(args: Vec<OsString>) -> Result<Request> {
    let (mut out, mut values) = (None, Vec::new());
    let mut parser = lex(args);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help(crate::help::HISTORY.into())),
            Short('o') | Long("output") => out = Some(parser.value().map_err(wrong)?.into()),
            Value(value) => values.push(value),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let [dir] = paths(values, "history DIR")?;
    Ok(Request::History { dir, out })
}

fn check(args: Vec<OsString>) -> Result<Request> {
    let (mut baseline, mut limit, mut gates, mut values) = (None, LIMIT, Vec::new(), Vec::new());
    let mut parser = lex(args);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help(crate::help::CHECK.into())),
            Long("against") => baseline = Some(parser.value().map_err(wrong)?.into()),
            Long("limit") => limit = number(&mut parser, "--limit")?,
            Long("gate") => gates.push(text(&mut parser)?),
            Value(value) => values.push(value),
            other => return Err(wrong(other.unexpected())),
        }
    }
    if !(limit.is_finite() && limit >= 1.0) {
        return Err(wrong("--limit must be a factor of 1 or more"));
    }
    if baseline.is_none() && gates.is_empty() {
        return Err(wrong("check needs --against BASELINE or a --gate"));
    }
    if values.is_empty() {
        values.push(OUT.into());
    }
    let [result] = paths(values, "check [RESULT] --against BASELINE")?;
    Ok(Request::Check { result, baseline, limit, gates })
}

fn report(args: Vec<OsString>) -> Result<Request> {
    let (mut out, mut values) = (PathBuf::from(OUT), Vec::new());
    let mut parser = lex(args);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help(crate::help::REPORT.into())),
            Short('o') | Long("output") => out = parser.value().map_err(wrong)?.into(),
            Value(value) => values.push(value),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let [result] = paths(values, "report RESULT")?;
    Ok(Request::Report { result, out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Request> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn refusal(line: &str) -> String {
        read(line).expect_err(line).to_string()
    }

    #[test]
    fn options_of_a_measurement_are_read() {
        let Ok(Request::Measure(options)) =
            read("start disk --quick --runs 7 --against bwrap,nsjail --tier process -o out --json")
        else {
            panic!("not a measurement");
        };
        assert_eq!(options.groups, ["start", "disk"]);
        assert_eq!(options.against, Some(vec!["bwrap".into(), "nsjail".into()]));
        assert_eq!((options.runs, options.quick, options.json), (Some(7), true, true));
        assert_eq!((options.tiers, options.out), (vec!["process".into()], "out".into()));
    }

    #[test]
    fn without_a_group_all_are_measured() {
        let Ok(Request::Measure(options)) = read("--against none") else {
            panic!("not a measurement")
        };
        assert_eq!(options.groups.len(), groups::ALL.len());
        assert_eq!(options.against, Some(vec![]));
    }

    #[test]
    fn bad_input_is_one_sentence_that_names_it() {
        assert!(refusal("nosuch").contains("no group `nosuch`; the groups are start, parts"));
        assert!(refusal("--against docker").contains("no peer `docker`; known are bwrap"));
        assert!(refusal("--tier jail").contains("no tier `jail`"));
        assert!(refusal("--runs many").contains("--runs must be a number, not `many`"));
        assert!(refusal("--runs 0").contains("between 2 and"));
        assert!(refusal("--fast").contains("--fast"));
        assert!(refusal("compare one").contains("usage: ringfence bench compare BEFORE AFTER"));
        assert!(refusal("check x").contains("check needs --against"));
        assert!(refusal("check x --against y --limit 0.5").contains("--limit must be"));
    }

    #[test]
    fn every_subcommand_has_help() {
        for line in ["--help", "compare --help", "history --help", "check --help", "report -h"] {
            assert!(matches!(read(line), Ok(Request::Help(_))), "{line}");
        }
    }
}
