//! `bench history`: a folder of results, as lines over time.

use crate::error::{Error, Result, error};
use crate::model::{Better, Run};
use crate::report::chart::{Point, escape, line};
use crate::report::summary::{Factor, factor, number};
use crate::report::{html, markdown, results_in, save};
use crate::stats;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// One measure over all runs.
struct Track {
    unit: String,
    better: Better,
    points: Vec<Option<Point>>,
}

/// Reads a folder, writes its trend report, and prints the ends of each line.
pub fn run(dir: &Path, out: Option<&Path>) -> Result<i32> {
    let mut runs = Vec::new();
    for path in results_in(dir)? {
        match Run::load(&path) {
            Ok(run) => runs.push(run),
            // One damaged file must not hide the others' history.
            Err(error) => eprintln!("ringfence: left out: {error}"),
        }
    }
    if runs.is_empty() {
        return Err(error!("{} holds no benchmark result", dir.display()));
    }
    runs.sort_by(|a, b| a.recorded.cmp(&b.recorded));
    let out = out.unwrap_or(dir);
    std::fs::create_dir_all(out).map_err(|cause| Error::file("make", out, cause))?;
    let tracks = tracks(&runs);
    save(&out.join("history.html"), &page(&runs, &tracks))?;
    let text = text(&runs, &tracks);
    save(&out.join("history.md"), &text)?;
    crate::print(&text)?;
    crate::print(&format!("written: {}\n", out.join("history.html").display()))?;
    Ok(0)
}

fn tracks(runs: &[Run]) -> BTreeMap<String, Track> {
    let mut tracks: BTreeMap<String, Track> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        for (group, measure) in run.measures().filter(|(_, measure)| !measure.samples.is_empty()) {
            let mut rng = Rng::with_seed(1);
            // A machine that is slower today slows the baseline too: the factor shows the sandbox.
            let (value, unit) = match factor(group, measure, run.host.clock_noise_ns, &mut rng) {
                Factor::Of(of) => (of, "×"),
                _ => (stats::estimate(&measure.samples, &mut rng), measure.unit.as_str()),
            };
            let track = tracks.entry(measure.key(&group.name)).or_insert_with(|| Track {
                unit: unit.into(),
                better: measure.better,
                points: runs.iter().map(|_| None).collect(),
            });
            let label = run.recorded.clone();
            track.points[at] =
                Some(Point { value: value.value, low: value.low, high: value.high, label });
        }
    }
    tracks
}

fn page(runs: &[Run], tracks: &BTreeMap<String, Track>) -> String {
    let mut body = format!("<h1>ringfence bench: history of {} runs</h1>", runs.len());
    if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
        let (first, last) = (escape(&first.recorded), escape(&last.recorded));
        let _ = write!(
            body,
            "<p>{first} to {last}. × is over the unsandboxed lane of the same run.</p>"
        );
    }
    let mut group = "";
    for (key, track) in tracks {
        let (name, rest) = key.split_once('/').unwrap_or((key, ""));
        if name != group {
            let _ = write!(body, "<h2>{}</h2>", escape(name));
            group = name;
        }
        let way =
            if track.better == Better::Lower { "lower is better" } else { "higher is better" };
        let _ = write!(
            body,
            "<figure><figcaption>{} <small>{}, {way}</small></figcaption>{}</figure>",
            escape(rest),
            escape(&track.unit),
            line(&track.points, &track.unit)
        );
    }
    html::document("ringfence bench: history", &body)
}

fn text(runs: &[Run], tracks: &BTreeMap<String, Track>) -> String {
    let mut out = format!("# ringfence bench: history of {} runs\n\n", runs.len());
    let rows: Vec<Vec<String>> = tracks
        .iter()
        .filter_map(|(key, track)| {
            let mut points = track.points.iter().flatten();
            let first = points.next()?;
            let last = points.next_back().unwrap_or(first);
            let change = (last.value / first.value - 1.0) * 100.0;
            let shown = |point: &Point| format!("{} {}", number(point.value), track.unit);
            let change = if change.is_finite() { format!("{change:+.1} %") } else { String::new() };
            Some(vec![key.clone(), shown(first), shown(last), change])
        })
        .collect();
    markdown::table(&mut out, &["measure", "first", "last", "change"].map(String::from), &rows);
    out
}
