//! The result as one HTML file that needs nothing else: no script, no font, no image from elsewhere.

use super::chart::{bars, bars_of_rows, escape};
use super::markdown::host_facts;
use super::summary::{Row, compared, interval, lanes, number, rows};
use crate::model::{Group, Run, State};
use std::fmt::Write;

/// The style of every page.
const STYLE: &str = include_str!("style.css");

/// The report of a run.
#[must_use]
pub fn page(run: &Run) -> String {
    let mut body = String::new();
    let command = escape(&format!("ringfence bench {}", run.command.join(" ")));
    let _ = write!(
        body,
        "<h1>ringfence bench</h1><p><code>{command}</code><br>{}</p>",
        escape(&run.recorded)
    );
    navigation(&mut body, run);
    if !run.warnings.is_empty() {
        let items: String =
            run.warnings.iter().map(|text| format!("<li>{}</li>", escape(text))).collect();
        let _ = write!(body, "<ul class=\"warnings\">{items}</ul>");
    }
    body.push_str("<details><summary>The machine, and what was measured</summary><table>");
    for (name, value) in host_facts(run) {
        let _ = write!(body, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value));
    }
    body.push_str("</table></details>");
    for group in &run.groups {
        section(&mut body, group, run.host.clock_noise_ns);
    }
    body.push_str(LEGEND);
    document("ringfence bench", &body)
}

const LEGEND: &str = "<footer><p>Bars are medians, whiskers their 95 % bootstrap intervals. × is the median of the \
    rounds' ratios to the unsandboxed lane, % the same for rates. A run that fails is an error, never a \
    sample. Raw samples are in the JSON file beside this one.</p></footer>";

/// A whole document.
#[must_use]
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escape(title)
    )
}

fn navigation(body: &mut String, run: &Run) {
    body.push_str("<nav>");
    for group in &run.groups {
        let (name, class) =
            (escape(&group.name), if group.state == State::Measured { "" } else { "off" });
        let _ = write!(body, "<a class=\"{class}\" href=\"#{name}\">{name}</a> ");
    }
    body.push_str("</nav>");
}

fn section(body: &mut String, group: &Group, noise: f64) {
    let name = escape(&group.name);
    let _ = write!(
        body,
        "<section id=\"{name}\"><h2>{name}</h2><p class=\"method\">{}</p>",
        escape(&group.method)
    );
    match group.state {
        State::Measured => {}
        State::Unavailable => {
            let _ = write!(body, "<p class=\"off\">{}</p>", escape(&group.reason));
        }
        State::Failed => {
            let _ = write!(body, "<p class=\"bad\">failed: {}</p>", escape(&group.reason));
        }
    }
    if group.name != "escape" {
        let rows = rows(group, noise);
        charts(body, &rows);
        numbers(body, &rows);
        errors(body, &rows);
    }
    for table in &group.tables {
        let _ = write!(body, "<h3>{}</h3><div class=\"scroll\"><table><tr>", escape(&table.title));
        for column in &table.columns {
            let _ = write!(body, "<th>{}</th>", escape(column));
        }
        body.push_str("</tr>");
        for row in &table.rows {
            body.push_str("<tr>");
            for cell in row {
                let _ = write!(body, "<td class=\"{}\">{}</td>", verdict(cell), escape(cell));
            }
            body.push_str("</tr>");
        }
        body.push_str("</table></div>");
    }
    for note in &group.notes {
        let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
    }
    body.push_str("</section>");
}

/// A chart for each row; rows of a single lane, which have nothing beside them, share one by unit.
fn charts(body: &mut String, rows: &[Row]) {
    let shown: Vec<&Row> =
        rows.iter().filter(|row| row.cells.iter().any(|cell| cell.value.is_some())).collect();
    let (single, several): (Vec<&Row>, Vec<&Row>) =
        shown.into_iter().partition(|row| row.cells.len() == 1);
    let mut units: Vec<&str> = Vec::new();
    for row in &single {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    for unit in units {
        let of_unit: Vec<&Row> = single.iter().copied().filter(|row| row.unit == unit).collect();
        let title = of_unit.first().map_or(String::new(), |row| match of_unit.len() {
            1 => row.title(),
            _ if of_unit.iter().all(|other| other.workload == row.workload) => row.workload.clone(),
            _ => row.metric.clone(),
        });
        figure(body, &title, unit, &bars_of_rows(&title, &of_unit));
    }
    for row in several {
        figure(body, &row.title(), &row.unit, &bars(row));
    }
}

fn figure(body: &mut String, title: &str, unit: &str, chart: &str) {
    let (title, unit) = (escape(title), escape(unit));
    let _ = write!(
        body,
        "<figure><figcaption>{title} <small>{unit}</small></figcaption>{chart}</figure>"
    );
}

/// The colour of a word that judges.
fn verdict(cell: &str) -> &'static str {
    match cell {
        "stopped" => "good",
        "OPEN" => "bad",
        "failed" => "off",
        _ if cell.contains('█') => "bar",
        _ => "",
    }
}

fn numbers(body: &mut String, rows: &[Row]) {
    let lanes = lanes(rows);
    if lanes.is_empty() {
        return;
    }
    body.push_str("<details><summary>Numbers</summary><div class=\"scroll\"><table><tr><th></th>");
    for lane in &lanes {
        let _ = write!(body, "<th>{}</th>", escape(lane));
    }
    body.push_str("</tr>");
    for row in rows {
        let _ = write!(body, "<tr><th>{}</th>", escape(&row.title()));
        for lane in &lanes {
            let text = row.cell(lane).and_then(|cell| {
                let value = cell.value?;
                let factor = compared(cell.factor, row.better);
                let interval = interval(cell.factor, row.better);
                let unit = escape(&row.unit);
                Some(format!(
                    "{} {unit}<br><small>{factor} {interval}</small>",
                    number(value.value)
                ))
            });
            let _ = write!(body, "<td>{}</td>", text.unwrap_or_default());
        }
        body.push_str("</tr>");
    }
    body.push_str("</table></div></details>");
}

fn errors(body: &mut String, rows: &[Row]) {
    for (row, cell) in rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
        if !cell.error.is_empty() {
            let (work, lane) = (escape(&row.workload), escape(&cell.lane));
            let _ = write!(body, "<p class=\"bad\">{work}, {lane}: {}</p>", escape(&cell.error));
        }
    }
}
