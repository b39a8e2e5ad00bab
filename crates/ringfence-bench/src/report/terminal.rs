//! The tables that a terminal shows.

use super::summary::{Cell, Row, compared, interval, lanes, number, rows};
use crate::bench::shortened;
use crate::model::{Group, Run, State};
use comfy_table::{ContentArrangement, Table, presets};
use std::fmt::Write;

/// The most lanes that one table holds before it gets too wide to read.
const LANES: usize = 6;

/// The whole result as text.
#[must_use]
pub fn text(run: &Run) -> String {
    let mut out = String::new();
    for group in &run.groups {
        let _ = writeln!(out, "\n{} ({:.0} s)", group.name, group.seconds);
        match group.state {
            State::Measured => {}
            State::Unavailable => {
                let _ = writeln!(out, "  {}", group.reason);
                continue;
            }
            State::Failed => {
                let _ = writeln!(out, "  failed: {}", group.reason);
            }
        }
        body(&mut out, group, run.host.clock_noise_ns);
    }
    for warning in &run.warnings {
        let _ = writeln!(out, "\nnote: {warning}");
    }
    out
}

fn body(out: &mut String, group: &Group, noise: f64) {
    // What a table of words shows better is not shown as numbers too.
    if group.name != "escape" {
        let rows = rows(group, noise);
        for lanes in split(&lanes(&rows)) {
            let _ = writeln!(out, "{}", matrix(&rows, &lanes));
        }
        for (row, cell) in rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
        {
            if !cell.error.is_empty() {
                let _ = writeln!(out, "  {} · {}: {}", row.workload, cell.lane, cell.error);
            }
        }
    }
    for words in &group.tables {
        let mut table = new_table();
        table.set_header(&words.columns);
        table.add_rows(&words.rows);
        let _ = writeln!(out, "{}\n{table}", words.title);
    }
    for note in &group.notes {
        let _ = writeln!(out, "  note: {note}");
    }
}

/// Lanes in portions that fit a terminal; the baseline, the first, stands in each.
fn split(lanes: &[String]) -> Vec<Vec<String>> {
    let Some((first, rest)) = lanes.split_first() else { return Vec::new() };
    if rest.is_empty() {
        return vec![lanes.to_vec()];
    }
    let portion = |part: &[String]| std::iter::once(first).chain(part).cloned().collect();
    rest.chunks(LANES - 1).map(portion).collect()
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn matrix(rows: &[Row], lanes: &[String]) -> Table {
    let mut table = new_table();
    table.set_header(std::iter::once(String::new()).chain(lanes.iter().cloned()));
    for row in rows {
        if !lanes.iter().any(|lane| row.cell(lane).is_some()) {
            continue;
        }
        let cells =
            lanes.iter().map(|lane| row.cell(lane).map_or(String::new(), |cell| shown(row, cell)));
        table.add_row(std::iter::once(row.title()).chain(cells));
    }
    table
}

fn shown(row: &Row, cell: &Cell) -> String {
    let Some(value) = cell.value else { return format!("failed: {}", shortened(&cell.error, 16)) };
    let mut text = format!("{} {}", number(value.value), row.unit);
    let factor = compared(cell.factor, row.better);
    if !factor.is_empty() {
        let _ = write!(text, "\n{factor}");
        let interval = interval(cell.factor, row.better);
        if !interval.is_empty() {
            let _ = write!(text, " ({interval})");
        }
    }
    text
}
