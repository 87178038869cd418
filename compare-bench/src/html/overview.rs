//! What stands above everything else: which lock to choose, and the figures of each family as bars.

use maud::{Markup, html};

use crate::html::{filters, survival};
use crate::view::advice::{BILLING, QUESTIONS, TERMS, advice};
use crate::view::cells::figure;
use crate::view::family::{Candidate, in_words};
use crate::view::line::Line;
use crate::view::overview::{Column, MEASURES, Measure, Overview};
use crate::view::unit::Unit;
use crate::view::{capital, distinct};
use faults::Results;

/// How wide and high the drawing of a bar is, in units of its own: the page stretches it.
const SIZE: (f64, f64) = (100.0, 10.0);

/// The narrowest interval that is seen.
const NARROW: f64 = 0.8;

/// The two tables of one setting.
pub(super) fn first(overview: &Overview, faults: &[Results]) -> Markup {
    html! {
        div.(filters::of_setting(&overview.setting)) {
            (questions(overview))
            h2 { "How fast each is, and what it survives" small { ": " (overview.holds) } }
            (families(overview, faults))
        }
    }
}

/// The same work under all conditions without a delay, side by side: what a slower disk changes, and what a
/// server is by default. Nothing where there is one.
pub(super) fn beside(overviews: &[Overview]) -> Option<Markup> {
    let near: Vec<&Overview> = overviews.iter().filter(|it| it.setting.conditions.delay_us == 0).collect();
    if near.len() < 2 {
        return None;
    }
    let families = distinct(near.iter().flat_map(|it| &it.families).map(|it| &*it.family));
    let cell = |overview: &Overview, measure: &Measure, family: &str| {
        let column = overview.columns.iter().find(|it| it.measure.work == measure.work)?;
        let backend = &overview.families.iter().find(|it| it.family == family)?.backend;
        let line = column.of(backend)?;
        Some(figure(column.unit, line.median, line.value))
    };
    Some(html! {
        p { "Medians and their intervals of 95 %, of one server, or group of servers, for each family. SQLite has a durability of its own, \
             which these conditions do not change." }
        @for measure in MEASURES.iter().filter(|it| it.is_common) {
            h3 { (capital(measure.work)) }
            div.wide { table.sorts {
                thead { tr { th { "lock server" } @for overview in &near {
                    th.n { (overview.holds) @if overview.doubt.is_some() { " (not to be used)" } }
                } } }
                tbody { @for family in &families { tr {
                    th { (family) }
                    @for overview in &near { td.n { (cell(overview, measure, family).unwrap_or_else(|| "-".to_owned())) } }
                } } }
            } }
        }
    })
}

/// A row for each set of answers.
fn questions(overview: &Overview) -> Markup {
    html! {
        @if let Some(doubt) = &overview.doubt {
            p.warning { "These figures are not to be used: " (doubt) ". Safety can be told without them." }
        }
        div.wide { table.answer {
            thead { tr { @for question in QUESTIONS { th { (question) } } th { "Choose" } th { "Because" } } }
            tbody { @for advice in advice(overview) { tr {
                @for (question, answer) in QUESTIONS.iter().zip(advice.answers) { td data-asked=(question) { (answer) } }
                td data-asked="Choose" { b { (advice.choice) } }
                td data-asked="Because" { (advice.because) "." }
            } } }
        } }
        p { b { (BILLING[0]) } " " (BILLING[1]) }
        p.faint { (TERMS) }
    }
}

/// A row for each family.
fn families(overview: &Overview, faults: &[Results]) -> Markup {
    html! {
        div.wide { table.families.sorts {
            thead { tr {
                th { "Lock on" }
                @for column in &overview.columns {
                    th { a href={ "#" (column.figures) } { (column.title) } (better(column.unit)) }
                }
                th { (promised(faults)) }
            } }
            tbody { @for family in &overview.families { tr.(filters::of_family(&family.backend)) {
                th { (family.family) @if in_words(&family.backend) != family.family { " " span.faint { (in_words(&family.backend)) } } }
                @for column in &overview.columns { td data-asked={ (column.title) (better(column.unit)) } { (bar(overview, column, family)) } }
                td data-asked=(promised(faults)) { (survives(family, faults)) }
            } } }
        } }
        p.faint {
            "Medians and intervals of 95 % (us: microseconds). Less time is better. Bold: the best among those as safe in a failover. \
             \"Cannot be told apart\": by intervals, or within the machine's noise. "
            (overview.measured) "."
            @if overview.setting.conditions.durability != "unknown" { " Servers and clients shared this machine." }
        }
    }
}

/// What stands in the last column.
fn promised(faults: &[Results]) -> &'static str {
    if faults.is_empty() {
        "What it survives, as documented"
    } else {
        "What it survives: as documented, and seen under faults"
    }
}

/// Behind the title of a column. What is said of times below the table is not repeated.
fn better(unit: Unit) -> &'static str {
    match unit {
        Unit::Time | Unit::Count => "",
        Unit::Rate => " (more is better)",
    }
}

/// The figure of a family, as a share of the largest of its column.
fn bar(overview: &Overview, column: &Column, family: &Candidate) -> Markup {
    let Some(line) = column.of(&family.backend) else { return html! { "-" } };
    // What promises less is no reason against what promises more.
    let kind: Vec<&Candidate> = overview.families.iter().filter(|it| it.kind() == family.kind()).collect();
    let best = column.best(&kind);
    let is_of_kind = |line: &&Line| line.rank.is_some() && kind.iter().any(|it| it.backend == line.who);
    // Where all are alike, none is marked.
    let is_told = overview.doubt.is_none() && best.len() < column.lines.iter().filter(is_of_kind).count();
    let is_best = is_told && best.iter().any(|best| best.who == line.who);
    let largest = column.lines.iter().filter(|line| line.value.is_some()).map(end).fold(0.0, f64::max);
    let at = |value: f64| if largest > 0.0 { SIZE.0 * value / largest } else { 0.0 };
    let text = figure(column.unit, line.median, line.value);
    html! {
        @if let Some(value) = line.value {
            svg.bar.best[is_best] viewBox={ "0 0 " (SIZE.0) " " (SIZE.1) } preserveAspectRatio="none" role="img" aria-label=(text) {
                rect.length x="0" y="1" width=(rounded(at(line.median))) height="8" {}
                @let width = at(value.high - value.low).max(NARROW);
                @let from = (at(value.low)).min(SIZE.0 - width);
                rect.interval x=(rounded(from)) y="4" width=(rounded(width)) height="2" {}
            }
        }
        @if is_best { b { (text) } } @else { (text) }
    }
}

/// As far as its bar or its interval goes.
fn end(line: &Line) -> f64 {
    line.value.map_or(line.median, |value| value.high.max(line.median))
}

fn rounded(value: f64) -> String {
    format!("{value:.2}")
}

/// By its promises, and by what was seen under faults.
fn survives(family: &Candidate, faults: &[Results]) -> Markup {
    let failover = match (family.across_hosts, family.failover_safe) {
        (false, _) => "one machine, so no failover",
        (true, true) => "no failover grants twice",
        (true, false) => "a failover may grant twice",
    };
    let may_grant_twice = family.across_hosts && !family.failover_safe;
    html! {
        @if family.durable { "a restart keeps its locks; " } @else { b { "a restart forgets its locks" } "; " }
        @if may_grant_twice { b { (failover) } } @else { (failover) }
        @if may_grant_twice && family.verifies() { " (verify_in refuses one of the two)" }
        @if let Some(old) = &family.old { " (" (old) ")" }
        @if let Some(seen) = survival::told(faults, &family.backend) { "; " a href="#faults" { (seen) } }
        @else if !faults.is_empty() { "; no faults were run on it" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::conditions;
    use crate::view::Setting;
    use crate::view::overview::tests::{candidate, column};
    use crate::view::rank::tests::line;

    /// One takes so many times as long as the other.
    fn page(doubt: Option<&str>, times: f64) -> String {
        let zookeeper =
            Candidate { across_hosts: true, failover_safe: true, durable: true, ..candidate("zookeeper3") };
        let redis = Candidate { across_hosts: true, ..candidate("redis") };
        let old = Some("an old release".to_owned());
        let postgres = Candidate { across_hosts: true, old, ..candidate("postgres") };
        let between = 50.0 + 25.0 * (times - 1.0) / 3.0;
        let overview = Overview {
            setting: Setting { machine: "A CPU".to_owned(), conditions: conditions() },
            holds: "data on ext4".to_owned(),
            measured: "A CPU".to_owned(),
            doubt: doubt.map(str::to_owned),
            families: vec![redis, postgres, zookeeper],
            columns: vec![column(
                0,
                vec![
                    line("redis", 50.0, 5.0),
                    line("postgres", between, 5.0),
                    line("zookeeper3", 50.0 * times, 50.0),
                ],
            )],
        };
        first(&overview, &[]).into_string()
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let page = page(None, 4.0);
        // Of the longest interval, which ends at 250 us.
        for expected in [
            "<rect class=\"length\" x=\"0\" y=\"1\" width=\"20.00\"",
            "<rect class=\"length\" x=\"0\" y=\"1\" width=\"80.00\"",
            "<rect class=\"interval\" x=\"60.00\" y=\"4\" width=\"40.00\"",
            "<b>50.0 us [45.0 .. 55.0]</b>",
            "Less time is better.",
            "<b>a failover may grant twice</b><",
            "<b>a failover may grant twice</b> (verify_in refuses one of the two) (an old release)<",
            "a restart keeps its locks; no failover grants twice",
            "<b>a restart forgets its locks</b>",
            "data on ext4",
        ] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
        assert_eq!(page.matches("bar best").count(), 1, "{page}");
    }

    #[test]
    fn where_all_are_alike_none_is_marked() {
        let page = page(None, 1.0);
        assert!(!page.contains("bar best") && page.contains("rect"), "{page}");
    }

    #[test]
    fn figures_that_are_not_to_be_used_have_no_best() {
        let page = page(Some("the load was 8"), 4.0);
        assert!(!page.contains("bar best") && !page.contains("<b>50.0"), "{page}");
        assert!(
            page.contains("><p class=\"warning\">These figures are not to be used: the load was 8."),
            "{page}"
        );
    }
}
