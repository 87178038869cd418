//! What people ask, and the figures of one run or of several that answer it: the terminal, the report and the
//! exports show the same.

pub(crate) mod answer;
mod asked;
pub(crate) mod export;
pub(crate) mod line;
pub(crate) mod missing;
pub(crate) mod rank;
pub(crate) mod show;
pub(crate) mod unit;

use crate::plan::case::counted;
use crate::record::{Conditions, Measurement, Report};
use crate::view::asked::{ASKED, Asked};

pub(super) use crate::view::line::Line;
pub(super) use crate::view::unit::Unit;

/// A question, and what was measured to answer it.
#[derive(Debug)]
pub(crate) struct Question {
    /// In addresses within the report.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What those have who ask: "nobody else wants the lock".
    pub(crate) condition: &'static str,
    /// What its figures are.
    pub(crate) what: &'static str,
    pub(crate) groups: Vec<Group>,
}

/// What can be compared with each other: the same work under the same conditions.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// In addresses within the report.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) workload: String,
    pub(crate) unit: Unit,
    pub(crate) parties: usize,
    /// "tasks" or "processes", where a workload has both.
    pub(crate) parties_are: String,
    pub(crate) hold_us: u64,
    /// Of recovery: what was broken.
    pub(crate) fault: Option<String>,
    pub(crate) conditions: Conditions,
    /// In the order of their ranks.
    pub(crate) lines: Vec<Line>,
}

/// All questions that these runs have figures for.
pub(crate) fn questions(runs: &[Report]) -> Vec<Question> {
    let questions = ASKED.iter().map(|asked| {
        let Asked { id, title, condition, what, .. } = *asked;
        Question { id, title, condition, what, groups: groups(asked, runs) }
    });
    questions.filter(|question| !question.groups.is_empty()).collect()
}

/// These conditions, each once.
pub(crate) fn distinct<'a>(all: impl IntoIterator<Item = &'a Conditions>) -> Vec<&'a Conditions> {
    let mut distinct: Vec<&Conditions> = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// A report for each of the conditions. Of several runs under the same conditions, the first that has a lock
/// shows it.
pub(crate) fn by_conditions(runs: &[Report]) -> Vec<Report> {
    let mut merged: Vec<Report> = Vec::new();
    for run in runs {
        let Some(before) = merged.iter_mut().find(|before| before.conditions == run.conditions) else {
            merged.push(run.clone());
            continue;
        };
        let is_known = |backend: &str| before.results.iter().any(|result| result.backend == backend);
        let more: Vec<_> = run.results.iter().filter(|result| !is_known(&result.backend)).cloned().collect();
        before.results.extend(more);
    }
    merged
}

/// Of several runs under the same conditions, the first that has a lock shows it.
fn groups(asked: &Asked, runs: &[Report]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for run in runs {
        for result in run.results.iter().filter(|result| asked.workloads.contains(&&*result.workload)) {
            let Some(figure) = (asked.ours)(result) else { continue };
            let is_it = |group: &Group| {
                (&*group.workload, &*group.parties_are, group.parties, group.hold_us, &group.conditions)
                    == (
                        &*result.workload,
                        parties_are(result),
                        result.parties,
                        result.hold_us,
                        &run.conditions,
                    )
                    && group.fault.as_ref() == fault(result)
            };
            let number = groups.iter().position(is_it).unwrap_or_else(|| {
                groups.push(group(asked, groups.len(), result, run, runs));
                groups.len() - 1
            });
            let peers = result.peers.iter().filter_map(|peer| Some((peer, (asked.theirs)(peer)?)));
            let peers = peers.map(|(peer, figure)| Line::peer(peer, result, figure));
            let ours = Line::ours(result, figure, (asked.to_floor)(result));
            let lines = &mut groups[number].lines;
            for line in std::iter::once(ours).chain(peers) {
                if !lines.iter().any(|before| before.who == line.who) {
                    lines.push(line);
                }
            }
        }
    }
    for group in &mut groups {
        rank::rank(&mut group.lines, group.unit);
    }
    // Faults stay in the order in which they were tried.
    let parties = |group: &Group| if group.fault.is_some() { 0 } else { group.parties };
    groups.sort_by_key(|group| (group.conditions.delay_us, parties(group), group.hold_us));
    groups
}

/// In `handoff`, the tasks of a backend that cannot reach beyond its process stand beside the processes of
/// others.
fn parties_are(result: &Measurement) -> &str {
    if result.workload == "independent" { &result.parties_are } else { "" }
}

/// What was broken: cases of recovery with different faults are not compared with each other.
fn fault(result: &Measurement) -> Option<&String> {
    result.recovery.as_ref().map(|_| &result.case)
}

fn group(asked: &Asked, number: usize, result: &Measurement, run: &Report, runs: &[Report]) -> Group {
    let mut title = match (&*result.workload, result.parties) {
        ("uncontended", _) => "One task".to_owned(),
        ("handoff", parties) => {
            format!(
                "{}, each holding the lock for {} ms",
                counted(parties, "processes"),
                result.hold_us / 1000
            )
        }
        ("crowd" | "readers" | "semaphore", parties) => format!("{}, one lock", counted(parties, "tasks")),
        ("herd", parties) => format!("{}, one lock", counted(parties, "processes")),
        ("holding", locks) => format!("{} held", counted(locks, "locks")),
        ("arrivals", rate) => format!("{rate} requests arrive in a second"),
        ("recovery", _) => capital(&result.case),
        (_, 1) => result.case.clone(),
        (_, parties) => format!("{parties} {}, a lock each", result.parties_are),
    };
    // Where there is nothing to tell apart, it stands at the top once.
    if runs.iter().any(|other| other.conditions != run.conditions) {
        title = format!("{title}; {}", show::conditions(&run.conditions));
    }
    Group {
        id: format!("{}-{}", asked.id, number + 1),
        title,
        workload: result.workload.clone(),
        unit: asked.unit.unwrap_or_else(|| result.quantity.into()),
        parties: result.parties,
        parties_are: parties_are(result).to_owned(),
        hold_us: result.hold_us,
        fault: fault(result).cloned(),
        conditions: run.conditions.clone(),
        lines: Vec::new(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl Group {
    /// Those of its lines, in the order of their ranks among themselves.
    pub(crate) fn among(&self, is_wanted: impl Fn(&Line) -> bool) -> Vec<Line> {
        let mut lines: Vec<Line> = self.lines.iter().filter(|line| is_wanted(line)).cloned().collect();
        rank::rank(&mut lines, self.unit);
        lines
    }
}
