//! `ringfence report`: a session as one page that needs nothing else.

use super::arguments::{Known, parse};
use super::logs::{place, summary};
use super::{sessions, text};
use crate::ledger::{Reader, Row, Session};
use crate::outside;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

/// More rows than this make a page that no browser likes.
const MOST: usize = 5000;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--deny:#c22;--allow:#287}\
body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%}\
td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line);\
vertical-align:top;overflow-wrap:anywhere}\
td.n,th.n{text-align:right;white-space:nowrap}td.t{white-space:nowrap;opacity:.7}\
code{font:13px/1.4 ui-monospace,monospace}.deny{color:var(--deny);font-weight:600}\
svg{width:100%;height:64px}details>summary{cursor:pointer}\
@media(max-width:48rem){table{display:block;overflow-x:auto}}";

/// Runs `ringfence report SESSION`; the page goes to standard output, or to `--output FILE`, no link on the way to which
/// may be a program's ([`outside::real`]).
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn report(args: Vec<OsString>, by_a_run: outside::ByARun<'_>) -> Result<u8, String> {
    let given = parse(&Known { switches: &[], valued: &["output"] }, args)?;
    given.at_most(1, "it is of one session: ringfence report [SESSION] [--output FILE]")?;
    let told = |error: crate::SessionError| error.to_string();
    let directory = sessions::find(given.word(0)?.unwrap_or("latest")).map_err(told)?;
    let reader = Reader::open(&directory).map_err(told)?;
    let session = reader.session().map_err(told)?;
    let events = reader.events(0, &[], false).map_err(told)?;
    let page = page(&session, &events);
    match given.value("output") {
        // The page is what the program wanted it to be, and so may be the name where it is to go.
        Some(file) => outside::write(Some((&session, by_a_run)), Path::new(file), page.as_bytes())
            .map(|()| 0)
            .map_err(told),
        None => text::print(page.as_bytes()),
    }
}

/// Everything in a ledger may come from inside: nothing of it is markup, and the page's own
/// policy lets no script run and nothing be loaded.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text::safe(text.as_bytes()).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn page(session: &Session, events: &[Row]) -> String {
    let title = escape(session.name.as_deref().unwrap_or(&session.id));
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=viewport content=\"width=device-width\">\
         <title>Session {title}</title><style>{STYLE}</style><h1>Session {title}</h1>"
    );
    let ended = session.ended.or(events.last().map(|row| row.at)).unwrap_or(session.started);
    let seconds = (ended - session.started) as f64 / 1e6;
    let outcome = match (session.code, session.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => session.status().to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<p><code>{}</code><br>in <code>{}</code>, tier {}, {} UTC, {seconds:.1} s, {outcome}.</p>",
        escape(&session.argv.join(" ")),
        escape(&session.cwd),
        escape(&session.tier),
        text::time(session.started / 1000),
    );
    if session.lost > 0 {
        let lost = text::count(session.lost, "event");
        let _ = write!(
            out,
            "<p class=deny>{lost} could not be kept: too many at once, or no room on the disk.</p>"
        );
    }
    timeline(&mut out, session.started, ended, events);
    let denied: Vec<&Row> = events.iter().filter(|row| row.denied()).collect();
    rows(&mut out, "Denied", &denied, true);
    hosts(&mut out, events);
    let of = |kinds: &[&str]| -> Vec<&Row> {
        events.iter().filter(|row| kinds.contains(&row.kind)).collect()
    };
    rows(&mut out, "Files changed", &of(&["file"]), false);
    processes(&mut out, &of(&["exec"]));
    rows(&mut out, "Models and tools", &of(&["model_call", "tool_call", "substitution"]), false);
    rows(&mut out, "Requests and names", &of(&["http", "dns"]), false);
    rows(&mut out, "Decisions and snapshots", &of(&["decision", "snapshot"]), false);
    out.push_str("</html>\n");
    out
}

/// What was executed, each below what started it.
fn processes(out: &mut String, execs: &[&Row]) {
    const DEEPEST: usize = 12;
    if execs.is_empty() {
        return;
    }
    let open = if execs.len() <= 200 { " open" } else { "" };
    let _ = write!(
        out,
        "<h2>Processes</h2><details{open}><summary>{}</summary><table><tr><th>Began<th>Command<th>\
         Directory<th class=n>Took<th class=n>Ended<th class=n>Process",
        execs.len()
    );
    // The last one with a number is its bearer by now.
    let mut depths: BTreeMap<i64, usize> = BTreeMap::new();
    for row in execs.iter().take(MOST) {
        let number = |name| row.number(name).unwrap_or_default();
        let parent = depths.get(&number("parent")).map_or(0, |depth| depth + 1);
        let depth = depths.get(&number("pid")).copied().unwrap_or(parent);
        depths.insert(number("pid"), depth);
        let words = row.fields.get("argv").and_then(|argv| argv.as_array());
        let words = words.into_iter().flatten().filter_map(|word| word.as_str());
        let ended = match (row.number("code"), row.number("signal")) {
            (Some(code), _) => code.to_string(),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => String::new(),
        };
        let deny = if matches!(ended.as_str(), "" | "0") { "" } else { " deny" };
        let _ = write!(
            out,
            "<tr><td class=t>{}<td style=\"padding-left:{}rem\"><code>{}</code><td class=t><code>{}</code>\
             <td class=n>{}<td class=\"n{deny}\">{ended}<td class=n>{}",
            text::time(row.at / 1000),
            depth.min(DEEPEST),
            escape(&words.collect::<Vec<_>>().join(" ")),
            escape(row.text("cwd")),
            row.number("duration").map_or(String::new(), took),
            number("pid")
        );
    }
    out.push_str("</table>");
    if execs.len() > MOST {
        let _ = write!(out, "<p>and {} more: ringfence logs</p>", execs.len() - MOST);
    }
    out.push_str("</details>");
}

/// A duration in microseconds, for people.
fn took(micros: i64) -> String {
    match micros {
        ..1000 => format!("{micros} µs"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// Events over time: bars of all, and in red of those denied.
fn timeline(out: &mut String, start: i64, end: i64, events: &[Row]) {
    const BARS: usize = 120;
    if events.is_empty() {
        out.push_str("<p>Nothing was recorded.</p>");
        return;
    }
    let span = (end - start).max(1);
    let mut bars = [(0u64, 0u64); BARS];
    for row in events {
        let part = (row.at - start).clamp(0, span - 1) as u128 * BARS as u128 / span as u128;
        let bar = &mut bars[(part as usize).min(BARS - 1)];
        bar.0 += 1;
        bar.1 += u64::from(row.denied());
    }
    let most = bars.iter().map(|bar| bar.0).max().unwrap_or(1).max(1) as f64;
    let _ = write!(
        out,
        "<h2>Timeline</h2><svg viewBox=\"0 0 {BARS} 32\" preserveAspectRatio=none role=img \
         aria-label=\"{} events over time\">",
        events.len()
    );
    for (at, (all, denied)) in bars.iter().enumerate().filter(|(_, bar)| bar.0 > 0) {
        for (count, color) in [(all, "var(--allow)"), (denied, "var(--deny)")] {
            let height = *count as f64 / most * 32.0;
            let top = 32.0 - height;
            let _ = write!(
                out,
                "<rect x={at} y={top:.2} width=.9 height={height:.2} fill=\"{color}\"></rect>"
            );
        }
    }
    out.push_str("</svg>");
}

fn hosts(out: &mut String, events: &[Row]) {
    #[derive(Default)]
    struct Host {
        connections: u64,
        denied: u64,
        sent: u64,
        received: u64,
    }
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    for row in events.iter().filter(|row| row.kind == "network") {
        let host = hosts.entry(place(row)).or_default();
        host.connections += row.number("peers").unwrap_or(1) as u64;
        host.denied += u64::from(row.denied());
        host.sent += row.number("sent").unwrap_or_default() as u64;
        host.received += row.number("received").unwrap_or_default() as u64;
    }
    if hosts.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Network by host</h2><table><tr><th>Host<th class=n>Connections<th class=n>Denied\
         <th class=n>Sent<th class=n>Received",
    );
    let more = hosts.len().saturating_sub(MOST);
    for (name, host) in hosts.into_iter().take(MOST) {
        let _ = write!(
            out,
            "<tr><td><code>{}</code><td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}",
            escape(&name),
            host.connections,
            host.denied,
            text::size(host.sent),
            text::size(host.received)
        );
    }
    out.push_str("</table>");
    if more > 0 {
        let _ = write!(out, "<p>and {more} more hosts: ringfence logs</p>");
    }
}

fn rows(out: &mut String, title: &str, rows: &[&Row], open: bool) {
    if rows.is_empty() {
        return;
    }
    let open = if open || rows.len() <= 50 { " open" } else { "" };
    let _ = write!(out, "<h2>{title}</h2><details{open}><summary>{}</summary><table>", rows.len());
    for row in rows.iter().take(MOST) {
        let deny = if row.denied() { " class=deny" } else { "" };
        let pid = row.number("pid").map_or(String::new(), |pid| pid.to_string());
        let _ = write!(
            out,
            "<tr><td class=t>{}<td class=t>{}<td{deny}><code>{}</code><td class=n>{pid}",
            text::time(row.at / 1000),
            row.kind,
            escape(&summary(row))
        );
    }
    out.push_str("</table>");
    if rows.len() > MOST {
        let more = rows.len() - MOST;
        let _ = write!(out, "<p>and {more} more: ringfence logs</p>");
    }
    out.push_str("</details>");
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_comes_from_inside_is_no_markup() {
        assert_eq!(
            escape("<img src=x onerror='1'>\u{1b}"),
            "&lt;img src=x onerror=&#39;1&#39;&gt;\\u{1b}"
        );
    }
}
