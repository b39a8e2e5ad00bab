//! The result as Markdown.

use super::summary::{Row, compared, interval, lanes, number, rows};
use crate::model::{Group, Run, State, Table};
use std::fmt::Write;

/// The whole report.
#[must_use]
pub fn text(run: &Run) -> String {
    let mut out = String::from("# ringfence bench\n\n");
    let _ = writeln!(out, "{}: `ringfence bench {}`\n", run.recorded, run.command.join(" "));
    let host: Vec<Vec<String>> =
        host_facts(run).into_iter().map(|(name, value)| vec![name.into(), value]).collect();
    table(&mut out, &["machine".into(), String::new()], &host);
    for warning in &run.warnings {
        let _ = writeln!(out, "- {warning}");
    }
    for group in &run.groups {
        let _ = writeln!(out, "\n## {}\n\n{}\n", group.name, group.method);
        match group.state {
            State::Measured => {}
            State::Unavailable => {
                let _ = writeln!(out, "{}", group.reason);
            }
            State::Failed => {
                let _ = writeln!(out, "**Failed**: {}\n", group.reason);
            }
        }
        body(&mut out, group, run.host.clock_noise_ns);
    }
    out
}

/// The facts of the machine, and of what was measured, by name.
#[must_use]
pub fn host_facts(run: &Run) -> Vec<(&'static str, String)> {
    let host = &run.host;
    let or =
        |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    let subject = |s: &crate::model::Subject| {
        format!("{} ({}, {} KiB)", s.name, or(&s.version, "version unknown"), s.bytes / 1024)
    };
    vec![
        ("processor", format!("{} × {}", host.cpus, host.cpu)),
        ("memory", format!("{} MiB", host.memory_mib)),
        ("kernel", format!("Linux {} {}", host.kernel, host.arch)),
        ("system", host.os.clone()),
        ("runs under", or(&host.virtualised, "nothing: bare metal")),
        ("governor", or(&host.governor, "none")),
        ("clock", format!("{}, noise {:.0} ns", host.clock, host.clock_noise_ns)),
        ("workspace on", host.filesystem.clone()),
        ("load at the start", format!("{:.2}", host.load)),
        ("other work meanwhile", format!("{:.0} % of the processors", host.other_work * 100.0)),
        ("user", if host.uid == 0 { "root".into() } else { "an ordinary one".into() }),
        ("measured", run.subjects.iter().map(subject).collect::<Vec<_>>().join("; ")),
        ("mode", format!("{}, seed {}", if run.quick { "quick" } else { "full" }, run.seed)),
    ]
}

fn body(out: &mut String, group: &Group, noise: f64) {
    if group.name != "escape" {
        let rows = rows(group, noise);
        let lanes = lanes(&rows);
        if !rows.is_empty() {
            let mut header = vec![String::new()];
            header.extend(lanes.iter().cloned());
            let lines: Vec<Vec<String>> = rows.iter().map(|row| line(row, &lanes)).collect();
            table(out, &header, &lines);
        }
        for (row, cell) in rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
        {
            if !cell.error.is_empty() {
                let _ = writeln!(out, "- {}, {}: {}", row.workload, cell.lane, cell.error);
            }
        }
    }
    for words in &group.tables {
        let Table { title, columns, rows } = words;
        let _ = writeln!(out, "{title}:\n");
        table(out, columns, rows);
    }
    for note in &group.notes {
        let _ = writeln!(out, "- {note}");
    }
}

fn line(row: &Row, lanes: &[String]) -> Vec<String> {
    let cell = |lane: &String| {
        let Some(cell) = row.cell(lane) else { return String::new() };
        let Some(value) = cell.value else { return "failed".into() };
        let mut text = format!("{} {}", number(value.value), row.unit);
        let factor = compared(cell.factor, row.better);
        if !factor.is_empty() {
            let interval = interval(cell.factor, row.better);
            let _ = write!(text, " ({factor}");
            if !interval.is_empty() {
                let _ = write!(text, ", {interval}");
            }
            text.push(')');
        }
        text
    };
    std::iter::once(row.title()).chain(lanes.iter().map(cell)).collect()
}

/// One table.
pub fn table(out: &mut String, header: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| {
        let cells: Vec<_> =
            cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    out.push_str(&line(header));
    out.push_str(&line(&vec!["---".to_owned(); header.len()]));
    for row in rows {
        out.push_str(&line(row));
    }
    out.push('\n');
}
