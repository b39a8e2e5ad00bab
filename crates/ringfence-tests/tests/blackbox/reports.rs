//! The pages that `bench` and `report` write, as a real browser lays them out.

use ringfence_tests::{Finished, Person, Place, Running, Tier, binary, left_out};
use serde_json::Value;
use std::path::Path;

/// Looks at a page as it is laid out, and tells it in the page's title, for the browser to print:
/// what sticks out, what covers what, and how much there is.
const LOOK: &str = "<script>
addEventListener('load', () => {
    const told = {charts: 0, bars: 0, rows: document.querySelectorAll('tr').length, faults: []};
    const box = element => element.getBoundingClientRect();
    const fault = (what, element) => told.faults.push(what + ': ' + element.outerHTML.slice(0, 200));
    if (document.documentElement.scrollWidth > innerWidth) {
        told.faults.push('wider than the window: ' + document.documentElement.scrollWidth);
    }
    for (const chart of document.querySelectorAll('svg')) {
        told.charts += 1;
        const frame = box(chart);
        const texts = [...chart.querySelectorAll('text')];
        const bars = [...chart.querySelectorAll('rect')];
        told.bars += bars.length;
        for (const part of [...texts, ...bars, ...chart.querySelectorAll('path,circle')]) {
            const at = box(part);
            if (at.left < frame.left - 1 || at.right > frame.right + 1 || at.top < frame.top - 1 ||
                at.bottom > frame.bottom + 1) fault('outside of its chart', part);
        }
        const covers = (one, other) => {
            const [a, b] = [box(one), box(other)];
            return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
                Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
        };
        texts.forEach((text, at) => {
            for (const other of [...texts.slice(at + 1), ...bars]) {
                if (covers(text, other)) fault('covered', text);
            }
        });
    }
    document.title = JSON.stringify(told);
});
</script>";

/// The browser without a window, as nobody's business but this place's.
fn browser(place: &Place, width: u32, page: &Path) -> Finished {
    let mut command = place.command("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]);
    command.args(["--enable-logging=stderr", "--hide-scrollbars"]);
    command.arg(format!("--window-size={width},900"));
    command.arg(format!("--user-data-dir={}", place.at("home/.browser").display()));
    command.arg(format!("file://{}", page.display()));
    Running::start(command).finish()
}

/// What the page says of itself in windows of two widths; faults of its own rules are failures.
fn looked_at(place: &Place, name: &str, page: &str) -> Vec<Value> {
    let whole = place.file(format!("home/{name}.html"), page);
    let plain = browser(place, 1280, &whole);
    assert_eq!(plain.code, 0, "{}", plain.err);
    // Scripts, styles or pictures that its own rule refuses, and what else the browser complains of.
    assert!(!plain.err.contains("CONSOLE"), "{}", plain.err);
    // The rule of the page allows no script, so the one that looks comes instead of the rule.
    let (before, rest) = page.split_once("<meta http-equiv=").expect("a rule");
    let (_, after) = rest.split_once('>').expect("its end");
    let looking =
        place.file(format!("home/{name}-looked-at.html"), format!("{before}{LOOK}{after}"));
    let look = |width| {
        let seen = browser(place, width, &looking);
        let page = seen.text();
        let title = page.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
        let title = title.unwrap_or_else(|| panic!("{name} has no title: {}", seen.err)).0;
        let told: Value = serde_json::from_str(
            &title.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"),
        )
        .unwrap_or_else(|error| panic!("{error}: {title}"));
        assert_eq!(told["faults"], serde_json::json!([]), "{name}, {width} wide");
        told
    };
    [1280, 500].map(look).into()
}

#[test]
fn the_pages_are_sound_in_a_browser() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if place.shell("command -v chromium").code != 0 {
        return left_out("pages in a browser", "chromium is not installed");
    }
    // The control: a page with a bar outside of its chart and text upon text is told of.
    let bad = format!(
        "<!doctype html><title>x</title>{LOOK}<svg width=100 height=50><rect x=90 y=0 width=30 height=9 />\
         <text x=0 y=30>one</text><text x=5 y=30>two</text></svg>"
    );
    let bad = browser(place, 1280, &place.file("home/bad.html", bad)).text();
    assert!(bad.contains("outside of its chart") && bad.contains("covered"), "{bad}");

    let results = place.at("home/project/results");
    let out = results.display().to_string();
    let bench = ["bench", "start", "--quick", "--runs", "3", "--against", "none", "-o", &out];
    // On a busy machine it takes longer than one command may; the harness ends it all the same.
    let measured = place.command(binary()).args(bench).output().unwrap();
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let page = std::fs::read_dir(&results).unwrap().flatten().map(|entry| entry.path());
    let page = page.filter(|path| path.extension().is_some_and(|end| end == "html")).last();
    let page = std::fs::read_to_string(page.expect("a page")).unwrap();
    for told in looked_at(place, "bench", &page) {
        assert!(told["charts"].as_i64() > Some(5) && told["bars"].as_i64() > Some(20), "{told}");
    }

    let script = "for name in a b c; do echo > $name; done; cat /etc/hostname";
    place
        .run(&["--name", "looked-at", "--snapshot", "--record-programs"], &["sh", "-c", script])
        .ends(0);
    let page = place.ringfence(["report", "looked-at"]).quiet();
    for told in looked_at(place, "session", &page) {
        assert!(told["rows"].as_i64() > Some(5), "{told}");
    }
}
