//! The report in a real browser: at three widths, light and dark, and as it is printed.
//!
//! Screenshots are left in `target/report/`.

mod chrome;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::chrome::Chrome;

/// A phone, a tablet, a desk.
const WIDTHS: [u32; 3] = [360, 768, 1280];

/// A4 at 96 dots an inch, less its margins.
const PAPER: u32 = 718;

/// What looks at the page from within. It returns what is wrong with it, and whether the paper is dark.
const LOOK: &str = r"
    const bad = [], wide = document.documentElement.clientWidth, printed = arguments[0];
    // On paper everything is shown. On a screen, what is folded is looked at as well.
    const folded = printed ? [] : [...document.querySelectorAll('details:not([open])')];
    for (const one of folded) one.open = true;
    if (document.documentElement.scrollWidth > wide + 1) bad.push('the page is wider than the window: ' + document.documentElement.scrollWidth);
    for (const table of document.querySelectorAll('table')) {
        const box = table.parentElement, scrolls = !printed && getComputedStyle(box).overflowX === 'auto';
        if (box.getBoundingClientRect().right > wide + 1) bad.push('a box is wider than the page');
        if (!scrolls && table.getBoundingClientRect().right > wide + 1) bad.push('a table overflows: ' + table.textContent.slice(0, 60));
        if (table.rows.length < 1) bad.push('a table is empty');
        if (table.getBoundingClientRect().height < 1) bad.push('a table is not shown: ' + table.textContent.slice(0, 60));
    }
    const light = colour => colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
    const style = name => getComputedStyle(document.documentElement)[name];
    const paper = light(style('backgroundColor'));
    if (Math.abs(paper - light(style('color'))) < 0.5) bad.push('the text does not stand out');
    const plots = document.querySelectorAll('svg.plot');
    if (plots.length < 3) bad.push('there are ' + plots.length + ' plots');
    for (const plot of plots) {
        const name = plot.getAttribute('aria-label');
        const ink = [...plot.querySelectorAll('polyline, circle, polygon')].filter(it => {
            const box = it.getBoundingClientRect(), { stroke, fill } = getComputedStyle(it);
            return box.width + box.height > 1 && (stroke !== 'none' || fill !== 'none');
        });
        if (ink.length < 3) bad.push('no ink: ' + name);
        const texts = [...plot.querySelectorAll('text')];
        if (texts.length < 6) bad.push('labels are missing: ' + name);
        // The axes say what they are, and each has marks.
        if (!texts.some(it => it.hasAttribute('transform'))) bad.push('the axis has no name: ' + name);
        const below = texts.reduce((low, it) => Number(it.getAttribute('y')) > Number(low.getAttribute('y')) ? it : low, texts[0]);
        if (below && !/[a-z]{3}/.test(below.textContent)) bad.push('the axis below has no name: ' + name);
        const section = plot.closest('section');
        if (section && !section.querySelector('table')) bad.push('no table has the figures of ' + name);
        for (const text of texts) {
            const box = text.getBoundingClientRect();
            if (box.width === 0) bad.push('an empty label: ' + name);
            if (Math.abs(light(getComputedStyle(text).fill) - paper) < 0.5) bad.push('a label does not stand out: ' + text.textContent);
        }
        const frame = plot.getBoundingClientRect();
        if (printed && frame.right > wide + 1) bad.push('a plot overflows: ' + name);
    }
    for (const link of document.querySelectorAll('a[href^=\'#\']'))
        if (!document.getElementById(link.getAttribute('href').slice(1))) bad.push('a link leads nowhere: ' + link.href);
    for (const one of folded) one.open = false;
    return { bad, dark: paper < 0.5 };
";

fn target() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("report");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn render(files: &[&str], to: &Path) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
    command.arg("render").args(files.iter().map(|file| data.join(file))).arg("--output").arg(to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Whether the test must be left out. It fails where servers are required.
fn is_missing() -> bool {
    let Err(reason) = chrome::installed() else { return false };
    assert!(!testbed::servers_required(), "{reason}");
    eprintln!("IGNORED: {reason}");
    true
}

fn look(chrome: &Chrome, is_printed: bool) -> Value {
    chrome.script(LOOK, &json!([is_printed]))
}

#[test]
fn the_report_is_well_in_a_browser() {
    if is_missing() {
        return;
    }
    let folder = target();
    let page = folder.join("report.html");
    render(&["near.json", "far.json", "faults.json"], &page);
    let chrome = Chrome::start();
    for width in WIDTHS {
        for scheme in ["light", "dark"] {
            chrome.as_if(width, "screen", scheme);
            chrome.open(&page);
            let seen = look(&chrome, false);
            assert_eq!(seen, json!({ "bad": [], "dark": scheme == "dark" }), "{scheme} at {width}");
            chrome.screenshot(&folder.join(format!("{scheme}-{width}.png")));
        }
    }
    // On paper it is light, whatever the screen is.
    for scheme in ["light", "dark"] {
        chrome.as_if(PAPER, "print", scheme);
        chrome.open(&page);
        assert_eq!(look(&chrome, true), json!({ "bad": [], "dark": false }), "print from {scheme}");
        chrome.screenshot(&folder.join(format!("print-from-{scheme}.png")));
    }
    assert_eq!(chrome.complaints(), Vec::<String>::new());
}

/// All backends, on a disk and on tmpfs, beside other libraries: what readers of the repository make of its
/// runs.
#[test]
fn the_committed_runs_make_a_report() {
    if is_missing() {
        return;
    }
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
    let mut files: Vec<PathBuf> = fs::read_dir(runs).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let page = target().join("runs.html");
    render(&files.iter().map(|file| file.to_str().unwrap()).collect::<Vec<_>>(), &page);
    let chrome = Chrome::start();
    for (width, media) in [(WIDTHS[0], "screen"), (WIDTHS[2], "screen"), (PAPER, "print")] {
        chrome.as_if(width, media, "light");
        chrome.open(&page);
        assert_eq!(
            look(&chrome, media == "print"),
            json!({ "bad": [], "dark": false }),
            "{media} at {width}"
        );
        chrome.screenshot(&target().join(format!("runs-{media}-{width}.png")));
    }
    // The picture of docs/measured.md.
    chrome.as_if(1024, "screen", "light");
    chrome.open(&page);
    chrome.picture("#latency figure", &target().join("latency.png"));
    assert_eq!(chrome.complaints(), Vec::<String>::new());
}

#[test]
fn what_is_wrong_is_seen() {
    if is_missing() {
        return;
    }
    let page = target().join("bad.html");
    let bad = "<!doctype html><html style='background:#fff;color:#eee'><body><div><table><tr><td style='min-width:3000px'>x</td></tr></table></div>\
               <svg class=plot aria-label=none></svg><a href='#nowhere'>x</a><script>missing()</script>\
               <img src='http://127.0.0.1:9/x.png'></body></html>";
    fs::write(&page, bad).unwrap();
    let chrome = Chrome::start();
    chrome.as_if(360, "screen", "light");
    chrome.open(&page);
    let seen = look(&chrome, false).to_string();
    for expected in
        ["wider than the window", "a table overflows", "no ink", "leads nowhere", "stand out", "no name"]
    {
        assert!(seen.contains(expected), "{expected} in {seen}");
    }
    let complaints = chrome.complaints().join("\n");
    assert!(complaints.contains("missing is not defined"), "{complaints}");
    assert!(complaints.contains("127.0.0.1:9"), "{complaints}");
}

#[test]
fn exports_have_all_figures() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/near.json");
    let export = |form: &str| {
        let to = folder.path().join(form);
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
        command.args(["render", "--export", form, "--output"]).arg(&to).arg(&data);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::read_to_string(to).unwrap()
    };
    let report: Value = serde_json::from_str(&fs::read_to_string(&data).unwrap()).unwrap();
    let csv = export("csv");
    let columns = csv.lines().next().unwrap().split(',').count();
    assert_eq!(columns, 16);
    for result in report["results"].as_array().unwrap() {
        let start = format!(",{},", result["workload"].as_str().unwrap());
        let p99 = format!(",p99,{}", result["latency_us"]["p99"].as_f64().unwrap());
        assert!(csv.lines().any(|line| line.contains(&start) && line.ends_with(&p99)), "{p99}");
    }
    let md = export("md");
    assert!(md.contains("## Nobody else wants the lock") && md.contains("| rank | lock |"), "{md}");
    for line in md.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(line.matches('|').count(), 7, "{line}");
    }
}
