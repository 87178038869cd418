//! The tables of the report: of each group of figures, and of all of them at a glance.

use maud::{Markup, html};

use crate::html::filters;
use crate::plan::case::counted;
use crate::record::Report;
use crate::view::asked::BESIDE;
use crate::view::cells::{figure, percentile};
use crate::view::line::Line;
use crate::view::unit::Unit;
use crate::view::{Group, Question, Setting, settings, show, words};

/// A table for each group of a question. Those behind the first are folded; on paper all are shown. A link to
/// a folded table opens it, since the browser does that for what is within.
pub(crate) fn groups(question: &Question) -> Markup {
    let words: Vec<&str> = words::told(question).collect();
    html! {
        @if !words.is_empty() { p.faint { (words.join(" ")) } }
        @for (number, group) in question.groups.iter().enumerate() {
            details.(filters::of_setting(&group.setting)) open[number == 0] {
                summary { (group.title) }
                (table(group))
            }
        }
    }
}

/// What the columns of percentiles are.
const SHARES: [&str; 3] = ["90 % took at most", "99 % took at most", "99.9 % took at most"];

/// An empty table, which the script fills with the rows of all others.
pub(crate) fn everything() -> Markup {
    html! {
        p { "Each row of the tables below, to sort and to filter them together. The script of this page fills it; without one, the \
             tables below have the same figures." }
        div.wide id="everything" { table.sorts {
            thead { tr {
                @for head in ["work", "lock", "family", "data", "machine"] { th { (head) } }
                th.n { "median and its interval of 95 %" } @for share in SHARES { th.n { (share) } } th.n { "times the raw statements" }
            } }
            tbody {}
        } }
    }
}

fn table(group: &Group) -> Markup {
    html! {
        div.wide id=(group.id) { table.figures.sorts {
            thead { tr {
                th.n { "rank" } th { "lock" } th.n { "median and its interval of 95 %" } @for share in SHARES { th.n { (share) } }
                th.n { "times the raw statements" } th { "remarks" }
            } }
            tbody {
                @for line in &group.lines {
                    tr.(filters::of_family(&line.backend)).best[line.rank == Some(1)] {
                        td.n { @if let Some(rank) = line.rank { (rank) } }
                        td { (line.in_words()) }
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

/// All locks and all cases, a table for each setting: how many times the best each is.
pub(crate) fn matrix(runs: &[Report], questions: &[Question]) -> Markup {
    html! {
        p { "How many times as slow as the best of its row each is; the best is 1.0, also if the boxes hide it. Locks whose intervals overlap share a rank in the tables below. \
             A dash: not measured, or too few rounds. What options such as server_order change is in the tables, too. Where a server \
             fails, the time itself stands there: a lone server is down for as long as it was stopped, and a group of servers goes \
             on without it when it has noticed, which takes most of them longer than a short stop. Where requests arrive faster than they are answered, the rate that was reached stands there: the latency \
             would grow for as long as they arrive." }
        // With them the table is wider than most windows.
        p.choice { label { input type="checkbox" id="show-peers"; " other libraries" } }
        @for setting in settings(runs) { (of(&setting, questions)) }
    }
}

/// All locks on the same work.
struct Row<'a> {
    title: String,
    /// The id of the group.
    figures: &'a str,
    lines: Vec<Line>,
}

fn of(setting: &Setting, questions: &[Question]) -> Markup {
    let groups = questions.iter().flat_map(|question| question.groups.iter().map(move |it| (question, it)));
    let groups = groups.filter(|(_, group)| group.setting == *setting && group.unit != Unit::Count);
    let rows: Vec<Row> = groups
        .map(|(question, group)| Row {
            title: short(question, group),
            figures: &group.id,
            lines: group.among(|line| line.option.is_none()),
        })
        .collect();
    let mut locks: Vec<&Line> = Vec::new();
    for line in rows.iter().flat_map(|row| &row.lines) {
        if line.rank.is_some() && !locks.iter().any(|lock| lock.who == line.who) {
            locks.push(line);
        }
    }
    // Ours first, by name.
    locks.sort_by(|one, other| (one.is_peer, &one.who).cmp(&(other.is_peer, &other.who)));
    html! {
        div.wide.(filters::of_setting(setting)) { table.matrix.sorts {
            caption { (show::conditions(&setting.conditions)) "; " (setting.machine) }
            thead { tr {
                th { "work" }
                @for lock in &locks { th.n.(filters::of_family(&lock.backend)).peer[lock.is_peer] { (lock.in_words()) } }
            } }
            tbody {
                @for row in &rows {
                    tr {
                        td { a href={ "#" (row.figures) } { (row.title) } }
                        @for lock in &locks { (cell(&row.lines, lock)) }
                    }
                }
            }
        } }
    }
}

fn cell(lines: &[Line], lock: &Line) -> Markup {
    let found = lines.iter().find(|line| line.who == lock.who);
    let (level, text) = match found.and_then(|line| line.to_best) {
        Some(best) if best < 1.1 => ("m0", format!("{best:.1}")),
        Some(near) if near < 2.0 => ("m1", format!("{near:.1}")),
        Some(middle) if middle < 5.0 => ("m2", format!("{middle:.1}")),
        Some(far) if far < 20.0 => ("m3", format!("{far:.1}")),
        Some(further) => ("m4", format!("{further:.1}")),
        None => ("", found.and_then(|line| line.instead.clone()).unwrap_or_else(|| "-".to_owned())),
    };
    html! { td.n.(filters::of_family(&lock.backend)).peer[lock.is_peer].(level) { (text) } }
}

fn short(question: &Question, group: &Group) -> String {
    match &*group.workload {
        "uncontended" => "a free lock: acquire and release".to_owned(),
        "independent" => {
            format!("{} with a lock each: locks a second", counted(group.parties, &group.parties_are))
        }
        "arrivals" => format!("{} requests arrive in a second: acquire and release", group.parties),
        "handoff" => {
            let whom = if question.id == BESIDE { "the one that waited longest" } else { "the next" };
            let (processes, hold) = (counted(group.parties, "processes"), group.hold_us / 1000);
            format!("{processes} that hold one lock for {hold} ms: from a release to {whom}")
        }
        "hot" => format!("{}: locks a second", group.title.split(';').next().unwrap_or_default()),
        "herd" => format!("{} want one lock", counted(group.parties, "processes")),
        "holding" | "recovery" => group.title.split(';').next().unwrap_or_default().to_lowercase(),
        "readers" => format!("{} tasks, nine reads to a write: locks a second", group.parties),
        "semaphore" => format!("{} tasks and a semaphore: permits a second", group.parties),
        _ => format!("{} want one lock: locks a second", counted(group.parties, "tasks")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, recovery, report};
    use crate::view::questions;

    /// A run in which a server was stopped for half a second.
    #[test]
    fn a_fault_of_a_server_has_times_and_no_ratio() {
        let of = |backend: &str, role: &str, micros: f64| {
            let mut result = measured(backend, 6);
            result.workload = "recovery".to_owned();
            result.case = "a server is frozen".to_owned();
            result.ours = micros;
            result.rounds.iter_mut().for_each(|round| round.ours = micros);
            result.recovery = Some(recovery(role, micros));
            result
        };
        let mut run = report();
        run.results = vec![of("redis", "the server", 506_000.0), of("redlock", "one of the nodes", 3760.0)];
        let runs = [run];
        let page = matrix(&runs, &questions(&runs)).into_string();
        for expected in [">506 ms</td>", ">3.76 ms</td>"] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
        assert!(!page.contains("134.") && !page.contains("m4"), "{page}");
    }
}
