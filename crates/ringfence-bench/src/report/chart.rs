//! Charts as inline SVG: bars with intervals, and lines over time.

use super::summary::{Cell, Row, compared, number};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
/// Room for labels: at least, and at most.
const LABELS: (f64, f64) = (190.0, 340.0);
/// What a letter takes of it, rather too much than too little.
const LETTER: f64 = 6.8;
const NUMBERS: f64 = 170.0;
const BAR: f64 = 16.0;
const STEP: f64 = 24.0;

/// Text made safe to stand in HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Which of the page's colours a lane has.
#[must_use]
pub fn kind(lane: &str) -> &'static str {
    match lane {
        "unsandboxed" | "bare metal" | "process" => "bare",
        "library" | "cli" | "gateway" | "plan" | "decide" | "profile" => "ours",
        "floor" => "floor",
        _ if lane.starts_with("ringfence") => "ours",
        _ => "peer",
    }
}

/// The bars of one row: a lane each, from zero, with the interval of the median as a whisker.
#[must_use]
pub fn bars(row: &Row) -> String {
    let bars: Vec<Bar<'_>> =
        row.cells.iter().map(|cell| (cell.lane.clone(), kind(&cell.lane), row, cell)).collect();
    drawn(&format!("{} in {}", row.title(), row.unit), &bars)
}

/// Rows of one lane each and of one unit, as the bars of one chart.
#[must_use]
pub fn bars_of_rows(title: &str, rows: &[&Row]) -> String {
    let same_work = rows.windows(2).all(|pair| pair[0].workload == pair[1].workload);
    let bars: Vec<Bar<'_>> = rows
        .iter()
        .filter_map(|row| {
            let cell = row.cells.first()?;
            let label = if same_work { &row.metric } else { &row.workload };
            Some((label.clone(), kind(&cell.lane), *row, cell))
        })
        .collect();
    drawn(title, &bars)
}

/// A bar: its label, its colour, and where its value stands.
type Bar<'a> = (String, &'static str, &'a Row, &'a Cell);

fn drawn(title: &str, bars: &[Bar<'_>]) -> String {
    let most = bars
        .iter()
        .filter_map(|(_, _, _, cell)| Some(cell.value?.high))
        .fold(f64::MIN_POSITIVE, f64::max);
    let longest = bars.iter().map(|(label, ..)| label.chars().count()).max().unwrap_or_default();
    let labels = (longest as f64 * LETTER + 12.0).clamp(LABELS.0, LABELS.1);
    let room = WIDTH - labels - NUMBERS;
    let count = bars.iter().filter(|(_, _, _, cell)| cell.value.is_some()).count();
    let height = STEP * count as f64 + 4.0;
    let title = escape(title);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{title}\">"
    );
    let mut top = 4.0;
    for (label, kind, row, cell) in bars {
        let Some(value) = cell.value else { continue };
        let middle = top + BAR / 2.0;
        let x = |value: f64| labels + value / most * room;
        let text = middle + 4.5;
        let label = escape(label);
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{label}</text>",
            labels - 8.0
        );
        let width = (x(value.value) - labels).max(1.0);
        let _ = write!(
            out,
            "<rect class=\"{kind}\" x=\"{labels}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\">\
             <title>{label}: {} {} ({}–{}), {} samples</title></rect>",
            number(value.value),
            escape(&row.unit),
            number(value.low),
            number(value.high),
            cell.count
        );
        whisker(&mut out, x(value.low), x(value.high), middle);
        let mut shown = format!("{} {}", number(value.value), row.unit);
        let factor = compared(cell.factor, row.better);
        if !factor.is_empty() {
            let _ = write!(shown, "  {factor}");
        }
        let end = x(value.value.max(value.high)) + 8.0;
        let shown = escape(&shown);
        let _ = write!(out, "<text class=\"value\" x=\"{end:.1}\" y=\"{text:.1}\">{shown}</text>");
        top += STEP;
    }
    out.push_str("</svg>");
    out
}

fn whisker(out: &mut String, low: f64, high: f64, y: f64) {
    if high - low < 1.0 {
        return;
    }
    let (top, bottom) = (y - 4.0, y + 4.0);
    let _ = write!(
        out,
        "<path class=\"whisker\" d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {top:.1}V{bottom:.1}M{high:.1} \
         {top:.1}V{bottom:.1}\"/>"
    );
}

/// One point of a line: a value with its interval, and what it is called.
pub struct Point {
    /// The value.
    pub value: f64,
    /// The low end.
    pub low: f64,
    /// The high end.
    pub high: f64,
    /// Which run it is of.
    pub label: String,
}

/// A line over runs: equally far apart, since what matters is their order. Missing runs leave gaps.
#[must_use]
pub fn line(points: &[Option<Point>], unit: &str) -> String {
    const HEIGHT: f64 = 110.0;
    const LEFT: f64 = 70.0;
    let most = points.iter().flatten().map(|point| point.high).fold(f64::MIN_POSITIVE, f64::max);
    let room = WIDTH - LEFT - 40.0;
    let steps = (points.len().max(2) - 1) as f64;
    let x = |at: usize| LEFT + at as f64 / steps * room;
    let y = |value: f64| HEIGHT - 18.0 - value / (most * 1.08) * (HEIGHT - 30.0);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">"
    );
    for value in [0.0, most] {
        let (y, right) = (y(value), WIDTH - 40.0);
        let label = escape(&format!("{} {unit}", number(value)));
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    let mut path = String::new();
    let mut pen_up = true;
    for (at, point) in points.iter().enumerate() {
        let Some(point) = point else {
            pen_up = true;
            continue;
        };
        let _ =
            write!(path, "{}{:.1} {:.1}", if pen_up { "M" } else { "L" }, x(at), y(point.value));
        pen_up = false;
    }
    let _ = write!(out, "<path class=\"line\" d=\"{path}\"/>");
    for (at, point) in points.iter().enumerate() {
        let Some(point) = point else { continue };
        let (x, low, high) = (x(at), y(point.low), y(point.high));
        let _ = write!(
            out,
            "<path class=\"whisker\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>\
             <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}: {} {} ({}–{})</title></circle>",
            y(point.value),
            escape(&point.label),
            number(point.value),
            escape(unit),
            number(point.low),
            number(point.high)
        );
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_the_page() {
        assert_eq!(escape("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }

    #[test]
    fn a_missing_run_leaves_a_gap_in_the_line() {
        let point = |value| Some(Point { value, low: value, high: value, label: "run".into() });
        let drawn = line(&[point(1.0), None, point(2.0), point(3.0)], "ms");
        let path =
            drawn.split("class=\"line\" d=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(path.map(|path| path.matches('M').count()), Some(2));
    }
}
