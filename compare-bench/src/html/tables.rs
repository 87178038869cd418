//! The tables of the report: of each group of figures, and of all of them at a glance.

use std::fmt::Write;

use maud::{Markup, html};

use crate::plan::case::counted;
use crate::record::{Conditions, Report};
use crate::view::export::{figure, percentile};
use crate::view::line::Line;
use crate::view::unit::Unit;
use crate::view::{Group, Question, distinct, show};

/// A table for each group of a question. Those behind the first are folded; on paper all are shown. A link to
/// a folded table opens it, since the browser does that for what is within.
pub(crate) fn groups(question: &Question) -> Markup {
    html! {
        @for (number, group) in question.groups.iter().enumerate() {
            details open[number == 0] {
                summary { (group.title) }
                (table(group))
            }
        }
    }
}

fn table(group: &Group) -> Markup {
    html! {
        div.wide id=(group.id) { table {
            thead { tr {
                th.n { "rank" } th { "lock" } th.n { "median [95 %]" } th.n { "p90" } th.n { "p99" } th.n { "p99.9" }
                th.n { "to raw statements" } th { "remarks" }
            } }
            tbody {
                @for line in &group.lines {
                    tr.best[line.rank == Some(1)] {
                        td.n { @if let Some(rank) = line.rank { (rank) } }
                        td { (line.who) }
                        td.n { (figure(group.unit, line.median, line.value)) }
                        @for time in [line.tail.p90, line.tail.p99, line.tail.p999] { td.n { (percentile(time)) } }
                        td.n { @if let Some(ratio) = line.to_floor { (ratio.to_string()) } @else { "-" } }
                        td { (line.remarks.join(", ")) }
                    }
                }
            }
        } }
    }
}

fn conditions(runs: &[Report]) -> Vec<&Conditions> {
    distinct(runs.iter().map(|run| &run.conditions))
}

/// How tables are hidden whose box is not ticked: without a script.
pub(crate) fn filter_style(runs: &[Report]) -> String {
    let mut style = String::new();
    for number in 0..conditions(runs).len() {
        let rule =
            format!("body:has(#show-c{number}:not(:checked)) .matrix.c{number} {{ display: none; }}\n");
        style.write_str(&rule).expect("a string takes all");
    }
    style
}

/// All locks and all cases, a table for each of the conditions: how many times the best each is.
pub(crate) fn matrix(runs: &[Report], questions: &[Question]) -> Markup {
    let conditions = conditions(runs);
    html! {
        p { "Each figure divided by the best of its row, which is 1.0: how many times slower. Ties are in the tables below. \
             A dash: not measured, or too few rounds. What options such as coalesce change is in the tables, too." }
        p.filters {
            @for (number, one) in conditions.iter().enumerate() {
                label { input type="checkbox" id={ "show-c" (number) } checked; " " (show::conditions(one)) }
            }
            label { input type="checkbox" id="show-peers" checked; " other libraries" }
        }
        @for (number, one) in conditions.iter().enumerate() { (under(one, number, questions)) }
    }
}

fn under(conditions: &Conditions, number: usize, questions: &[Question]) -> Markup {
    let groups = questions.iter().flat_map(|question| &question.groups);
    let groups = groups.filter(|group| group.conditions == *conditions && group.unit != Unit::Count);
    let rows: Vec<(&Group, Vec<Line>)> =
        groups.map(|group| (group, group.among(|line| line.option.is_none()))).collect();
    let mut locks: Vec<&Line> = Vec::new();
    for line in rows.iter().flat_map(|(_, lines)| lines) {
        if line.to_best.is_some() && !locks.iter().any(|lock| lock.who == line.who) {
            locks.push(line);
        }
    }
    // Ours first, by name.
    locks.sort_by(|one, other| (one.is_peer, &one.who).cmp(&(other.is_peer, &other.who)));
    html! {
        div.wide { table.matrix.{ "c" (number) } {
            caption { (show::conditions(conditions)) }
            thead { tr {
                th { "work" }
                @for lock in &locks { th.n.peer[lock.is_peer] { (lock.who) } }
            } }
            tbody {
                @for (group, lines) in &rows {
                    tr {
                        td { a href={ "#" (group.id) } { (short(group)) } }
                        @for lock in &locks { (cell(lines, lock)) }
                    }
                }
            }
        } }
    }
}

fn cell(lines: &[Line], lock: &Line) -> Markup {
    let found = lines.iter().find(|line| line.who == lock.who).and_then(|line| line.to_best);
    let Some(times) = found else { return html! { td.n.peer[lock.is_peer] { "-" } } };
    let level = match times {
        best if best < 1.1 => "m0",
        near if near < 2.0 => "m1",
        middle if middle < 5.0 => "m2",
        far if far < 20.0 => "m3",
        _ => "m4",
    };
    html! { td.n.peer[lock.is_peer].(level) { (format!("{times:.1}")) } }
}

fn short(group: &Group) -> String {
    match &*group.workload {
        "uncontended" => "free lock".to_owned(),
        "independent" => format!("{}, a lock each, a second", counted(group.parties, &group.parties_are)),
        "arrivals" => format!("{} arrive a second", group.parties),
        "handoff" => format!("{}, {} ms", counted(group.parties, "processes"), group.hold_us / 1000),
        "herd" => format!("{}, one lock", counted(group.parties, "processes")),
        "holding" | "recovery" => group.title.split(';').next().unwrap_or_default().to_lowercase(),
        "readers" => format!("{} tasks, 9 reads to a write, a second", group.parties),
        "semaphore" => format!("{} tasks, a semaphore, a second", group.parties),
        _ => format!("{}, one lock, a second", counted(group.parties, "tasks")),
    }
}
