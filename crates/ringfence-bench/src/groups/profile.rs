//! Group `profile`: where each microsecond of a launch goes.

use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::model::{Better, Group, Measure, Table};
use crate::stats::median;
use crate::sys::process::memory_file;
use crate::work::find;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::time::Duration;

pub const ENTRY: Entry = Entry {
    name: "profile",
    summary: "where each microsecond of a launch goes: steps, system calls, counters, hot functions",
    method: "The launcher writes a line for each of its steps (RINGFENCE_TRACE_LAUNCH); the waterfall shows the \
             median of many launches of `true`. strace -c counts system calls of one launch (its times are \
             strace's own, so only counts are shown); perf stat and perf record where the machine lets us.",
    seconds: (15.0, 8.0),
    run,
};

/// The descriptor that the launcher finds its trace under.
const TRACE_FD: i32 = 9;
/// The step that stands for what the trace does not see.
const OUTSIDE: &str = "loading and exit of the launcher";
/// How wide the waterfall's bars are, in characters.
const WIDTH: f64 = 40.0;

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let main = bench.main_lane()?;
    let program: OsString = find("true").ok_or_else(|| error!("`true` is not installed"))?.into();
    let line = main.wrap(&bench.work, &[program], &[])?;
    bench.progress.workloads(4);
    waterfall(bench, group, &line)?;
    bench.progress.next();
    if let Err(cause) = calls(bench, group, &line) {
        group.notes.push(format!("system calls: {cause}"));
    }
    bench.progress.next();
    if let Err(cause) = counters(bench, group, &line) {
        group.notes.push(format!("counters: {cause}"));
    }
    bench.progress.next();
    if let Err(cause) = functions(bench, group, &line) {
        group.notes.push(format!("hot functions: {cause}"));
    }
    Ok(())
}

/// The steps of a launch.
fn waterfall(bench: &mut Bench, group: &mut Group, line: &[OsString]) -> Result<()> {
    let runs = bench.options.runs.unwrap_or(if bench.options.quick { 30 } else { 200 });
    let number = TRACE_FD.to_string();
    let command = bench.plain_with(line, &[("RINGFENCE_TRACE_LAUNCH", number.as_ref())])?;
    let mut trace = memory_file().map_err(|cause| error!("cannot open a scratch file: {cause}"))?;
    let mut steps = Steps::default();
    for run in 0..runs {
        bench.progress.within(run as f64 / runs as f64);
        let mut text = String::new();
        let empty = |file: &mut std::fs::File| file.set_len(0).and_then(|()| file.rewind());
        empty(&mut trace).map_err(|cause| error!("cannot empty a scratch file: {cause}"))?;
        let wall = bench.run_with(&command, false, Some((trace.as_raw_fd(), TRACE_FD)))?.wall;
        let read = trace.rewind().and_then(|()| trace.read_to_string(&mut text));
        read.map_err(|cause| error!("the launch trace is unreadable: {cause}"))?;
        steps.add(&text, wall);
    }
    if steps.order.is_empty() {
        group.notes.push("steps: not available in this build (it writes no launch trace)".into());
        return Ok(());
    }
    group.tables.push(steps.table());
    group.measures.extend(steps.measures());
    Ok(())
}

/// The steps of many launches.
#[derive(Default)]
struct Steps {
    order: Vec<String>,
    ends: BTreeMap<String, Vec<f64>>,
    times: BTreeMap<String, Vec<f64>>,
}

impl Steps {
    /// Adds one launch: lines of nanoseconds since its start, and a name; and the whole time, of which
    /// the trace sees neither the program's loading nor its exit.
    fn add(&mut self, trace: &str, wall: Duration) {
        let mut last = 0.0;
        let whole = format!("{} {OUTSIDE}", wall.as_nanos());
        let marks = trace.lines().chain((!trace.is_empty()).then_some(whole.as_str()));
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, name) in marks.filter_map(|line| line.trim().split_once(' ')) {
            let Ok(at) = at.parse::<f64>().map(|ns| ns / 1e3) else { continue };
            let count = seen.entry(name).and_modify(|count| *count += 1).or_insert(1);
            let name = if *count == 1 { name.to_owned() } else { format!("{name} ({count})") };
            if !self.ends.contains_key(&name) {
                self.order.push(name.clone());
            }
            self.ends.entry(name.clone()).or_default().push(at);
            self.times.entry(name).or_default().push((at - last).max(0.0));
            last = at;
        }
    }

    fn table(&self) -> Table {
        let total = self.ends.values().map(|ends| median(ends)).fold(1.0, f64::max);
        let rows = self.order.iter().map(|name| {
            let (end, took) = (median(&self.ends[name]), median(&self.times[name]));
            let before = ((end - took).max(0.0) / total * WIDTH).round() as usize;
            let bar = (took / total * WIDTH).round().max(1.0) as usize;
            let drawn = format!("{}{}", " ".repeat(before), "█".repeat(bar));
            vec![name.clone(), format!("{end:.0}"), format!("{took:.1}"), drawn]
        });
        Table {
            title: "waterfall of a launch".into(),
            columns: ["step", "done at, µs", "took, µs", "when"].map(String::from).to_vec(),
            rows: rows.collect(),
        }
    }

    fn measures(&self) -> Vec<Measure> {
        let measure = |name: &String| Measure {
            workload: "launch".into(),
            lane: "ringfence".into(),
            metric: name.clone(),
            unit: "µs".into(),
            better: Better::Lower,
            baseline: String::new(),
            samples: self.times[name].iter().map(|time| (time * 1e3).round() / 1e3).collect(),
            error: String::new(),
        };
        self.order.iter().map(measure).collect()
    }
}

/// Runs a tool in front of the launch, and answers what it wrote to the file `log`.
fn under(bench: &mut Bench, tool: &str, words: &[&str], line: &[OsString]) -> Result<String> {
    let path = find(tool).ok_or_else(|| error!("`{tool}` is not installed"))?;
    let log = bench.work.root.join("tool.log");
    let mut whole: Vec<OsString> = vec![path.into()];
    whole.extend(words.iter().map(|word| match *word {
        "LOG" => log.clone().into(),
        word => word.into(),
    }));
    whole.extend(line.iter().cloned());
    let command = bench.plain(&whole)?;
    bench.run(&command, false)?;
    let bytes = std::fs::read(&log).map_err(|cause| error!("{tool} wrote nothing: {cause}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How many system calls of each kind a launch makes.
fn calls(bench: &mut Bench, group: &mut Group, line: &[OsString]) -> Result<()> {
    let text = under(
        bench,
        "strace",
        &["-f", "-c", "-S", "calls", "-U", "calls,errors,name", "-o", "LOG"],
        line,
    )?;
    let rows: Vec<Vec<String>> = text.lines().filter_map(call_row).collect();
    let total: u64 = rows.iter().filter_map(|row| row[1].parse::<u64>().ok()).sum();
    let kinds = rows.len();
    group.measures.push(Measure {
        workload: "launch".into(),
        lane: "ringfence".into(),
        metric: "system calls".into(),
        unit: "calls".into(),
        better: Better::Lower,
        baseline: String::new(),
        samples: vec![total as f64],
        error: String::new(),
    });
    let columns = ["call", "count", "refused"].map(String::from).to_vec();
    let title = format!("system calls of a launch: {total} of {kinds} kinds");
    group.tables.push(Table { title, columns, rows: rows.into_iter().take(25).collect() });
    Ok(())
}

/// One row of strace's summary: `count [errors] name`.
fn call_row(line: &str) -> Option<Vec<String>> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (count, errors, name) = match fields[..] {
        [count, name] => (count, "", name),
        [count, errors, name] => (count, errors, name),
        _ => return None,
    };
    let number = count.parse::<u64>().is_ok() && name != "total";
    number.then(|| [name, count, errors].map(String::from).to_vec())
}

/// What the processor's and the kernel's counters say of a launch.
fn counters(bench: &mut Bench, group: &mut Group, line: &[OsString]) -> Result<()> {
    let events =
        "task-clock,page-faults,context-switches,cpu-migrations,instructions,cycles,branch-misses";
    let text = under(
        bench,
        "perf",
        &["stat", "-x", ";", "-r", "20", "-e", events, "-o", "LOG", "--"],
        line,
    )?;
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(';').collect();
        let (value, unit, name) = (fields.first()?, fields.get(1)?, fields.get(2)?);
        let counted = value.parse::<f64>().is_ok();
        counted.then(|| vec![(*name).to_owned(), (*value).to_owned(), (*unit).to_owned()])
    };
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        return Err(error!("perf counted nothing here"));
    }
    let columns = ["counter", "mean of 20 launches", "unit"].map(String::from).to_vec();
    group.tables.push(Table { title: "counters of a launch".into(), columns, rows });
    Ok(())
}

/// Which functions, kernel's included, the time of launches goes to.
fn functions(bench: &mut Bench, group: &mut Group, line: &[OsString]) -> Result<()> {
    let data = bench.work.root.join("perf.data").to_string_lossy().into_owned();
    let mut many = bench.tool("repeat", &["100".as_ref()]);
    many.extend(line.iter().cloned());
    let words = ["record", "-q", "-F", "15000", "-e", "cpu-clock", "-o", &data, "--"];
    let perf = find("perf").ok_or_else(|| error!("`perf` is not installed"))?;
    let mut whole: Vec<OsString> = vec![perf.clone().into()];
    whole.extend(words.map(OsString::from));
    whole.extend(many);
    let record = bench.plain(&whole)?;
    bench.run(&record, false)?;
    let words = [
        "report",
        "-i",
        &data,
        "--stdio",
        "--no-children",
        "--percent-limit",
        "1",
        "-s",
        "comm,dso,symbol",
    ];
    let report: Vec<OsString> =
        std::iter::once(perf.into()).chain(words.iter().map(OsString::from)).collect();
    let command = bench.plain(&report)?;
    let text = bench.run(&command, true)?.stdout;
    let text = String::from_utf8_lossy(&text);
    let row = |line: &str| {
        let (share, rest) = line.trim().split_once('%')?;
        share.trim().parse::<f64>().ok()?;
        let mut fields = rest.split_whitespace();
        let (comm, object) = (fields.next()?, fields.next()?);
        let symbol = fields.filter(|field| *field != "-").collect::<Vec<_>>().join(" ");
        Some(vec![format!("{share} %"), comm.to_owned(), object.to_owned(), symbol])
    };
    let rows: Vec<_> =
        text.lines().filter_map(row).filter(|row| row[1] != "swapper").take(25).collect();
    if rows.is_empty() {
        return Err(error!("perf recorded nothing here"));
    }
    let columns = ["share", "process", "object", "function"].map(String::from).to_vec();
    group.tables.push(Table {
        title: "hot functions of 100 launches, kernel included".into(),
        columns,
        rows,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_becomes_steps_in_order_with_what_each_took() {
        let mut steps = Steps::default();
        let wall = Duration::from_nanos(5500);
        steps.add("1000 parse\n3000 clone\n3500 clone\n", wall);
        steps.add("2000 parse\n4000 clone\n4500 clone\n", wall);
        let rows = steps.table().rows;
        let shown: Vec<_> = rows.iter().map(|row| (row[0].as_str(), row[2].as_str())).collect();
        assert_eq!(
            shown,
            [("parse", "1.5"), ("clone", "2.0"), ("clone (2)", "0.5"), (OUTSIDE, "1.5")]
        );
    }

    #[test]
    fn rows_of_strace_are_read_with_and_without_errors() {
        assert_eq!(
            call_row("  12         3 openat"),
            Some(vec!["openat".into(), "12".into(), "3".into()])
        );
        assert_eq!(
            call_row("  12           mmap"),
            Some(vec!["mmap".into(), "12".into(), String::new()])
        );
        assert_eq!(call_row("  24         3 total"), None);
        assert_eq!(call_row("--------- --------- ----------------"), None);
    }
}
