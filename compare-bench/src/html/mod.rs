//! The report: one file that needs no network and no script.
//!
//! What stands above is small. The rest is folded, and with a script it is read when it is opened.

mod about;
mod figures;
mod filters;
mod hand_over;
mod holding;
mod network;
mod overview;
mod plot;
mod survival;
mod tables;
mod timeline;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::record::Report;
use crate::view::asked::BESIDE;
use crate::view::overview::overviews;
use crate::view::{Question, missing, questions};
use faults::Results;

const STYLE: &str = include_str!("style.css");

const SCRIPT: &str = include_str!("script.js");

/// Not even a mistake in this file makes a browser fetch anything, or run another script.
fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'")
}

/// A part of the report. Folded: what most readers want stands above all of them.
struct Section {
    id: &'static str,
    title: &'static str,
    body: Markup,
}

/// The whole page: of comparisons, and of runs of faults.
pub(crate) fn page(runs: &[Report], faults: &[Results]) -> Result<String> {
    let questions = questions(runs);
    let sections = sections(runs, &questions, faults)?;
    let title = "Which distributed lock: the backends of lockwell, compared";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(filters::style(runs))) }
            }
            body {
                header {
                    h1 { "Which distributed lock" }
                    p { "Backends of lockwell, a Rust library for locks" }
                    (filters::controls(runs))
                }
                (about::warnings(runs))
                section id="answer" { (answer(runs, &questions, faults)) }
                nav aria-label="Sections" {
                    ol { @for section in &sections { li { a href={ "#" (section.id) } { (section.title) } } } }
                }
                @for section in &sections {
                    // A link to what is folded opens it, if it leads below the summary.
                    section { details {
                        summary { h2 { (section.title) } }
                        div id=(section.id) { noscript { (section.body) } }
                    } }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(page.into_string())
}

fn sections(runs: &[Report], questions: &[Question], faults: &[Results]) -> Result<Vec<Section>> {
    let find = |id: &str| questions.iter().find(|question| question.id == id);
    let with = |id: &str, draw: &dyn Fn(&Question) -> Result<Vec<Markup>>| -> Result<Markup> {
        let Some(question) = find(id) else { return Ok(absent("the runs of this report left it out")) };
        let figures = draw(question)?;
        Ok(html! {
            p { (question.what) }
            @if !figures.is_empty() { p.faint { "A plot of several families has one server, or group of servers, of each, and six at most (SQLite is left out \
                 first, since one host alone can use it); the tables have all. The boxes at the top of the page choose the data and machines \
                 that are shown, and in the tables the families." } }
            @for figure in &figures { (figure) }
            (tables::groups(question))
        })
    };
    let contended = html! {
        (with("processes", &hand_over::families)?)
        h3 { "Beside other libraries" }
        (with(BESIDE, &hand_over::libraries)?)
        h3 { "Two processes for each of several locks" }
        (with("hot", &|_| Ok(Vec::new()))?)
        h3 { "Many tasks of one process" }
        (with("tasks", &|_| Ok(Vec::new()))?)
        h3 { "Many read, few write" }
        (with("readers", &|_| Ok(Vec::new()))?)
        h3 { "A few at a time" }
        (with("semaphore", &|_| Ok(Vec::new()))?)
    };
    let slow = if runs.iter().any(|run| run.conditions.delay_us > 0) {
        network::section(find("nobody"), find("processes"), find("slow"))?
    } else {
        absent("--delay puts a slow network before each server")
    };
    let dies = match find("dies") {
        Some(_) => with("dies", &|_| Ok(Vec::new()))?,
        None => {
            html! { p { "The section " a href="#faults" { "on faults" } " has the times from a holder's death to the next grant." } }
        }
    };
    let beside = overview::beside(&overviews(runs, questions));
    Ok(vec![
        Section {
            id: "conditions",
            title: "Under other conditions",
            body: beside.unwrap_or_else(|| {
                absent("this needs runs under several conditions, such as --durability default")
            }),
        },
        Section { id: "guarantees", title: "Guarantees", body: about::guarantees(runs, faults) },
        Section { id: "matrix", title: "All at a glance", body: tables::matrix(runs, questions) },
        Section { id: "all", title: "All figures", body: tables::everything() },
        Section {
            id: "latency",
            title: "Nobody else wants the lock",
            body: with("nobody", &|_| figures::percentiles(runs))?,
        },
        Section { id: "throughput", title: "Many locks at once", body: with("many", &figures::throughput)? },
        Section { id: "load", title: "Requests arrive at a rate", body: with("load", &figures::load)? },
        Section { id: "hand-over", title: "Everybody wants one lock", body: contended },
        Section { id: "network", title: "The network is slow", body: slow },
        Section { id: "herd", title: "Cost of waiting", body: herd(find("server"))? },
        Section { id: "recovery", title: "The holder dies", body: dies },
        Section {
            id: "faults",
            title: if faults.is_empty() { "Faults (none were run)" } else { "Faults, step by step" },
            body: survived(faults)?,
        },
        Section {
            id: "holding",
            title: "Cost of holding",
            body: with("holding", &|_| holding::holding(runs))?,
        },
        Section { id: "missing", title: "Not measured", body: not_measured(runs, faults) },
        Section { id: "libraries", title: "Other libraries", body: about::libraries(runs) },
        Section { id: "method", title: "Method and commands", body: about::method(runs) },
    ])
}

fn survived(faults: &[Results]) -> Result<Markup> {
    if faults.is_empty() {
        return Ok(absent(
            "compare-bench faults writes a file for this section; pass it to render with the others",
        ));
    }
    let each: Vec<Markup> = faults.iter().map(survival::section).collect::<Result<_>>()?;
    Ok(html! { @for one in &each { (one) } })
}

fn absent(reason: &str) -> Markup {
    html! { p.absent { "Not measured: " (reason) "." } }
}

fn answer(runs: &[Report], questions: &[Question], faults: &[Results]) -> Markup {
    let overviews = overviews(runs, questions);
    html! {
        @if overviews.is_empty() { (absent("no backend that several processes can share took part")) }
        @for overview in &overviews { (overview::first(overview, faults)) }
    }
}

fn not_measured(runs: &[Report], faults: &[Results]) -> Markup {
    let failures = runs.iter().flat_map(|run| &run.failures);
    html! {
        ul {
            @for failure in failures {
                li { (failure.workload) ", " (failure.case) " on " (failure.backend) " failed: " (failure.reason) }
            }
            @for line in missing::not_measured(runs) { li { (line) } }
            @if faults.is_empty() { li { "what each backend survives: compare-bench faults" } }
        }
    }
}

fn herd(server: Option<&Question>) -> Result<Markup> {
    let Some(question) = server else {
        return Ok(absent("the workloads crowd and herd were left out"));
    };
    let figures = figures::herd(question)?;
    Ok(html! {
        p { "A release that wakes all waiters makes each of them ask again: the herd. " (question.what) }
        @for figure in &figures { (figure) }
        (tables::groups(question))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};

    #[test]
    fn sections_without_figures_say_so() {
        let page = page(&[report()], &[]).unwrap();
        assert!(page.contains("<section id=\"answer\">"), "{page}");
        for id in ["guarantees", "matrix", "latency", "throughput", "hand-over", "network", "herd"] {
            assert!(page.contains(&format!("<div id=\"{id}\">")), "{id}");
        }
        for id in ["recovery", "faults", "holding", "missing", "libraries", "method"] {
            assert!(page.contains(&format!("<div id=\"{id}\">")), "{id}");
        }
        assert!(page.matches("Not measured: ").count() >= 9, "{page}");
        assert!(page.contains("Faults (none were run)"), "{page}");
    }

    #[test]
    fn nothing_of_others_runs_or_is_fetched() {
        let mut report = report();
        report.results.push(measured("<script>alert(1)</script>", 6));
        let page = page(&[report], &[]).unwrap();
        let (before, after) = page.split_once(SCRIPT).expect("its own script");
        let page = format!("{before}{after}").replacen("<script></script>", "", 1);
        for bad in ["<script", "src=", "url(", "@import", "http://", "https://"] {
            // The name space of SVG is a name, no address.
            let rest = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
            assert!(!rest.contains(bad), "{bad}");
        }
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn links_lead_somewhere() {
        let mut report = report();
        report.results = vec![measured("redis", 6), measured("zookeeper", 6)];
        let page = page(&[report], &[]).unwrap();
        let mut links = 0;
        for link in page.split("href=\"#").skip(1) {
            let id = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
            links += 1;
        }
        assert!(links > 13, "{links}");
    }

    /// A run of all workloads.
    fn near() -> Report {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/near.json");
        crate::record::file::read(std::path::Path::new(data)).unwrap()
    }

    #[test]
    fn several_runs_make_each_plot_once() {
        let (disk, mut tmpfs, mut later, mut far) = (near(), near(), near(), near());
        tmpfs.conditions.storage = "tmpfs".to_owned();
        later.date = "2031-01-01T00:00:00Z".to_owned();
        far.conditions.delay_us = 5000;
        let runs = [disk, tmpfs, later, far];
        let page = page(&runs, &[]).unwrap();
        let captions = page.split("<figcaption>").skip(1);
        let mut captions: Vec<&str> =
            captions.filter_map(|rest| rest.split("</figcaption>").next()).collect();
        captions.sort_unstable();
        let twice: Vec<_> = captions.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(captions.len() > 10 && twice.is_empty(), "{twice:?}");
        assert!(page.contains("over the delay of the network"), "no line has two delays");
        let of_disk = captions.iter().filter(|caption| caption.starts_with("Acquisitions over"));
        assert!(
            of_disk.clone().count() > 0 && of_disk.clone().all(|it| it.contains("where a sync takes 999 us")),
            "{captions:?}"
        );
        for group in questions(&runs).iter().flat_map(|question| &question.groups) {
            let mut names: Vec<_> = group.lines.iter().map(|line| &line.who).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{}: {names:?}", group.title);
        }
    }

    #[test]
    fn the_answer_is_short_and_above_what_is_folded() {
        let page = page(&[near()], &[]).unwrap();
        let (above, below) = page.split_once("<details>").unwrap();
        assert!(
            above.contains("What if a failover gives two hosts the lock?")
                && above.contains("svg class=\"bar")
        );
        assert!(!below.contains("svg class=\"bar"));
        // A sentence for each row of the first table.
        let table = above.split("</table>").next().unwrap();
        let sentences = table.matches(".</td>").count();
        assert!((1..=5).contains(&sentences) && table.matches("<tr>").count() == sentences + 1, "{table}");
        // This run was made for a test, on a loaded machine.
        assert!(above.contains("These figures are not to be used"), "{above}");
        let words = |text: &str| {
            text.split('<')
                .filter_map(|it| it.split_once('>'))
                .map(|it| it.1.split_whitespace().count())
                .sum::<usize>()
        };
        let body = above.split_once("<body>").unwrap().1;
        assert!(words(body) < 640, "{} words: {body}", words(body));
    }

    #[test]
    fn what_was_seen_under_faults_stands_beside_the_guarantees() {
        let text = include_str!("../../tests/data/faults.json");
        let results: Results = serde_json::from_str(text).unwrap();
        let page = page(&[near()], &[results]).unwrap();
        for expected in [
            "runs as expected",
            " kinds of faults</a>",
            "holder-killed",
            "<figcaption>holder-killed on",
            "Faults, step by step",
            "told of the end of their lease",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        // A file of faults alone makes a page, too.
        let results: Results = serde_json::from_str(text).unwrap();
        assert!(super::page(&[], &[results]).unwrap().contains("holder-killed"));
    }
}
