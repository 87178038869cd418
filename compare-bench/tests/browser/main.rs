//! The report in a real browser: at four widths, light and dark, as it is printed, and without a script.
//!
//! Screenshots are left in `target/report/`.

mod chrome;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::chrome::Chrome;

/// A phone, a tablet, a desk, a large desk.
const WIDTHS: [u32; 4] = [390, 768, 1280, 1920];

/// What the page may have before anything is opened, in bytes and in elements.
const FIRST_VIEW: (usize, u64) = (300_000, 3000);

/// A4 at 96 dots an inch, less its margins.
const PAPER: u32 = 718;

/// Shows all that can be shown: ticks all data and, if it is told to, opens what is folded.
const OPEN: &str = r"
    for (const box of document.querySelectorAll('.filters input')) box.checked = true;
    if (arguments[0]) for (const one of document.querySelectorAll('details:not([open])')) one.open = true;
";

/// Folds all of it. What is open makes pictures of a hundred thousand pixels.
const FOLD: &str = "for (const one of document.querySelectorAll('details[open]')) one.open = false;";

/// Whether a script would still load something.
const IS_ALL_LOADED: &str = "return document.querySelector('noscript') === null;";

/// What looks at the page from within. It returns what is wrong with it, and whether the paper is dark.
const LOOK: &str = r"
    const bad = [], wide = document.documentElement.clientWidth, printed = arguments[0];
    if (document.documentElement.scrollWidth > wide + 1) bad.push('the page is wider than the window: ' + document.documentElement.scrollWidth);
    for (const table of document.querySelectorAll('table')) {
        const box = table.parentElement, scrolls = !printed && getComputedStyle(box).overflowX === 'auto';
        if (box.getBoundingClientRect().right > wide + 1) bad.push('a box is wider than the page');
        if (!scrolls && table.getBoundingClientRect().right > wide + 1) bad.push('a table overflows: ' + table.textContent.slice(0, 60));
        if (!printed && wide >= 1280 && box.scrollWidth > box.clientWidth) bad.push('a table scrolls sideways: ' + table.textContent.slice(0, 60));
        if (table.rows.length < 1) bad.push('a table is empty');
        for (const head of table.querySelectorAll('thead th')) {
            const { overflowWrap, wordBreak } = getComputedStyle(head);
            if (overflowWrap === 'anywhere' || wordBreak === 'break-all') bad.push('a head may break within a word: ' + head.textContent);
            if (head.scrollWidth > head.clientWidth + 1) bad.push('a head overflows: ' + head.textContent);
        }
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
        // Each line has its name, and no two names lie on each other.
        const names = texts.filter(it => it.getAttribute('text-anchor') === 'start').map(it => it.getBoundingClientRect());
        if (names.length > 6) bad.push('more than six lines: ' + name);
        for (const box of names) if (box.right > frame.right + 1) bad.push('the name of a line is cut off: ' + name);
        names.sort((one, other) => one.top - other.top);
        if (names.some((box, number) => number > 0 && box.top + box.height / 2 < names[number - 1].top + box.height / 4)) bad.push('names overlap: ' + name);
        if (printed && frame.right > wide + 1) bad.push('a plot overflows: ' + name);
    }
    for (const link of document.querySelectorAll('a[href^=\'#\']'))
        if (!document.getElementById(link.getAttribute('href').slice(1))) bad.push('a link leads nowhere: ' + link.href);
    return { bad, dark: paper < 0.5 };
";

/// What looks at the first screen of the page. It returns what is wrong with it.
const FIRST: &str = r"
    const bad = [], wide = document.documentElement.clientWidth >= 1280;
    for (const name of ['.answer', '.families']) {
        const table = document.querySelector(name);
        if (!table) { bad.push('there is no ' + name); continue; }
        const box = table.parentElement;
        if (wide && box.scrollWidth > box.clientWidth) bad.push(name + ' scrolls sideways: ' + box.scrollWidth);
        if (wide && table.getBoundingClientRect().bottom > innerHeight) bad.push(name + ' is not on the first screen: ' + table.getBoundingClientRect().bottom);
    }
    const bars = [...document.querySelectorAll('svg.bar')].filter(it => it.checkVisibility());
    if (bars.length < 10) bad.push('there are ' + bars.length + ' bars');
    const light = colour => colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
    const paper = light(getComputedStyle(document.documentElement).backgroundColor);
    for (const part of bars.flatMap(it => [...it.querySelectorAll('rect')])) {
        const box = part.getBoundingClientRect(), frame = part.parentElement.getBoundingClientRect();
        if (box.width < 0.3 || box.height < 1) bad.push('a bar is not seen');
        if (box.right > frame.right + 1) bad.push('a bar is too long');
        if (Math.abs(light(getComputedStyle(part).fill) - paper) < 0.2) bad.push('a bar does not stand out');
    }
    const shown = [...document.querySelectorAll('section > details[open]')];
    if (shown.length > arguments[0]) bad.push(shown.length + ' questions are not folded');
    return bad;
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
    testbed::lacks(&reason);
    true
}

fn look(chrome: &Chrome, is_printed: bool) -> Value {
    // On paper all is shown, whether it is folded or not.
    chrome.script(OPEN, &json!([!is_printed]));
    chrome.wait_for(IS_ALL_LOADED);
    let seen = chrome.script(LOOK, &json!([is_printed]));
    chrome.script(FOLD, &json!([]));
    seen
}

/// All committed runs.
fn committed() -> Vec<String> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
    let files = fs::read_dir(runs).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<String> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
    files.sort();
    files
}

/// A page of committed runs, which the tests of this program share.
fn page_of_runs() -> &'static Path {
    static PAGE: LazyLock<PathBuf> = LazyLock::new(|| {
        let page = target().join("runs.html");
        render(&committed().iter().map(String::as_str).collect::<Vec<_>>(), &page);
        page
    });
    &PAGE
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
    let page = page_of_runs();
    let chrome = Chrome::start();
    let screens = WIDTHS.map(|width| (width, "screen"));
    for (width, media) in screens.into_iter().chain([(PAPER, "print")]) {
        chrome.as_if(width, media, "light");
        chrome.open(page);
        assert_eq!(
            look(&chrome, media == "print"),
            json!({ "bad": [], "dark": false }),
            "{media} at {width}"
        );
        chrome.screenshot(&target().join(format!("runs-{media}-{width}.png")));
    }
    // The picture of docs/measured.md. What is linked to is not folded.
    chrome.as_if(1024, "screen", "light");
    chrome.open_at(page, "#latency");
    assert_eq!(chrome.script(FIRST, &json!([1])), json!([]));
    let is_open = "return document.querySelector('#latency').closest('details').open;";
    assert_eq!(chrome.script(is_open, &json!([])), true);
    chrome.picture("#latency figure", &target().join("latency.png"));
    assert_eq!(chrome.complaints(), Vec::<String>::new());
}

/// Without scrolling and without opening anything: what to choose, and how fast each family is.
#[test]
fn the_first_screen_answers() {
    let page = page_of_runs();
    let text = fs::read_to_string(page).unwrap();
    let mut first_view = 0;
    for (number, part) in text.split("<noscript>").enumerate() {
        first_view += if number == 0 { part.len() } else { part.split_once("</noscript>").unwrap().1.len() };
    }
    assert!(first_view < FIRST_VIEW.0 && text.len() > FIRST_VIEW.0, "{first_view} of {} bytes", text.len());
    if is_missing() {
        return;
    }
    let chrome = Chrome::start();
    for (width, scheme) in [(390, "light"), (768, "dark"), (1280, "light"), (1280, "dark"), (1920, "light")] {
        chrome.as_if(width, "screen", scheme);
        chrome.open(page);
        assert_eq!(chrome.script(FIRST, &json!([0])), json!([]), "{scheme} at {width}");
        let elements = chrome.script("return document.querySelectorAll('*').length;", &json!([]));
        assert!(elements.as_u64().unwrap() < FIRST_VIEW.1, "{elements} elements");
        chrome.window(width, &target().join(format!("first-{scheme}-{width}.png")));
    }
    chrome.as_if(PAPER, "print", "light");
    chrome.open(page);
    assert_eq!(chrome.script(FIRST, &json!([0])), json!([]), "on paper");
    assert_eq!(chrome.complaints(), Vec::<String>::new());
}

/// Links, filters and the order of rows, as somebody uses them.
#[test]
fn figures_are_loaded_filtered_and_sorted() {
    if is_missing() {
        return;
    }
    let chrome = Chrome::start();
    chrome.as_if(1280, "screen", "light");
    chrome.open(page_of_runs());
    let tick = |class: &str, on: bool| {
        let ticked = chrome.script(
            "const box = document.getElementById('show-' + arguments[0]); box.checked = arguments[1]; return box.checked;",
            &json!([class, on]),
        );
        assert_eq!(ticked, on);
    };
    let seen = |selector: &str| {
        let count =
            "return [...document.querySelectorAll(arguments[0])].filter(it => it.checkVisibility()).length;";
        chrome.script(count, &json!([selector])).as_u64().unwrap()
    };
    // A link to a table that is folded loads its question only.
    let folded = "return document.querySelectorAll('noscript').length;";
    let before = chrome.script(folded, &json!([])).as_u64().unwrap();
    chrome.script("document.querySelector('.families th a').click();", &json!([]));
    chrome.wait_for("return document.querySelector(location.hash + ' table.figures tbody tr')?.checkVisibility() === true;");
    assert_eq!(chrome.script(folded, &json!([])), before - 1);

    // Data: one at first. Families.
    assert_eq!(seen(".answer"), 1);
    tick("data-tmpfs-disk-0", true);
    assert_eq!(seen(".answer"), 2);
    tick("data-ext4-disk-0", false);
    assert_eq!((seen(".answer"), seen(".families tbody tr")), (1, 6));
    tick("family-redlock", false);
    assert_eq!((seen(".families tbody tr"), seen("table.figures .family-redlock")), (5, 0));
    tick("machine-amd-epyc--2-cores--24-gib", false);
    assert_eq!(seen(".answer"), 0);
    tick("machine-amd-epyc--2-cores--24-gib", true);

    // All of them in one table, by their medians; what has none is last.
    chrome.script("document.querySelector('#all').closest('details').open = true;", &json!([]));
    chrome.wait_for("return document.querySelectorAll('#everything tbody tr').length > 1000;");
    let rows = seen("#everything tbody tr");
    tick("data-ext4-disk-0", true);
    assert!(seen("#everything tbody tr") > rows && rows > 300, "{rows}");
    for (falling, button) in ["ascending", "descending"].into_iter().zip([6; 2]) {
        chrome.script(
            "document.querySelectorAll('#everything th button')[arguments[0] - 1].click();",
            &json!([button]),
        );
        let order = chrome.script(SORTED, &json!([]));
        assert_eq!(order, json!([falling, true]), "the rows are sorted by their medians");
    }
    assert_eq!(chrome.complaints(), Vec::<String>::new());
}

/// How the table of all rows is sorted by its heading, and whether its times are.
const SORTED: &str = r"
    const order = document.querySelector('#everything th[aria-sort]').ariaSort, scale = { us: 1, ms: 1e3, s: 1e6 };
    const times = [...document.querySelectorAll('#everything tbody tr')].map(row => /^([\d.]+) (us|ms|s) /.exec(row.cells[5].textContent));
    const worth = times.filter(it => it).map(it => it[1] * scale[it[2]]);
    const pairs = worth.slice(1).map((it, number) => order === 'ascending' ? worth[number] <= it : worth[number] >= it);
    return [order, worth.length > 300 && pairs.every(it => it)];
";

#[test]
fn the_report_is_whole_without_a_script() {
    if is_missing() {
        return;
    }
    let chrome = Chrome::start();
    let page = target().join("plain.html");
    render(&["near.json", "far.json", "faults.json"], &page);
    chrome.without_scripts();
    chrome.as_if(1280, "screen", "light");
    chrome.open(&page);
    chrome.script(OPEN, &json!([true]));
    assert_eq!(
        chrome.script("return document.querySelectorAll('th button').length;", &json!([])),
        0,
        "a script ran"
    );
    assert_eq!(chrome.script(LOOK, &json!([false])), json!({ "bad": [], "dark": false }));
    // The boxes work, too.
    let hidden = "document.querySelector('.filters input').checked = false; return document.querySelector('.answer').checkVisibility();";
    assert_eq!(chrome.script(hidden, &json!([])), false);
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
