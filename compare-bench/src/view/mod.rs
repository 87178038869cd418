//! What people ask, and the figures of one run or of several that answer it: the terminal, the report and the
//! exports show the same.

pub(crate) mod advice;
pub(crate) mod asked;
pub(crate) mod family;
pub(crate) mod line;
pub(crate) mod overview;
pub(crate) mod rank;
pub(crate) mod show;
pub(crate) mod trust;
pub(crate) mod words;

use crate::measure::workload::arrivals::A_SECOND;
use crate::plan::case::counted;
use crate::record::{Conditions, Measurement, Report};
use crate::view::asked::{ASKED, Asked};

pub(super) use crate::view::line::Line;
pub(super) use crate::view::show::Unit;

/// A question, and what was measured to answer it.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What its figures are.
    pub(crate) what: &'static str,
    pub(crate) groups: Vec<Group>,
}

/// Where and how something was measured. Figures of different settings are not compared with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// For people: "AMD EPYC, 2 cores, 24 GiB".
    pub(crate) machine: String,
    pub(crate) conditions: Conditions,
}

impl Setting {
    pub(crate) fn of(run: &Report) -> Self {
        Self { machine: show::machine(&run.machine), conditions: run.conditions.clone() }
    }
}

/// What can be compared with each other: the same work in the same setting.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) workload: String,
    pub(crate) unit: Unit,
    pub(crate) parties: usize,
    /// "tasks" or "processes", where a workload has both.
    pub(crate) parties_are: String,
    pub(crate) hold_us: u64,
    pub(crate) setting: Setting,
    /// In the order of their ranks.
    pub(crate) lines: Vec<Line>,
}

/// All questions that these runs have figures for.
pub(crate) fn questions(runs: &[Report]) -> Vec<Question> {
    let questions = ASKED.iter().map(|asked| {
        let Asked { id, title, what, .. } = *asked;
        Question { id, title, what, groups: groups(asked, runs) }
    });
    questions.filter(|question| !question.groups.is_empty()).collect()
}

/// Each once, in their order.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct: Vec<T> = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// The settings of these runs.
pub(crate) fn settings(runs: &[Report]) -> Vec<Setting> {
    distinct(runs.iter().map(Setting::of))
}

/// Of several runs in the same setting, the first that has a lock shows it.
fn groups(asked: &Asked, runs: &[Report]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for run in runs {
        let setting = Setting::of(run);
        for result in run.results.iter().filter(|result| asked.workloads.contains(&&*result.workload)) {
            let Some(figure) = (asked.ours)(result) else { continue };
            let is_it = |group: &Group| {
                (&*group.workload, &*group.parties_are, group.parties, group.hold_us, &group.setting)
                    == (&*result.workload, parties_are(result), result.parties, result.hold_us, &setting)
            };
            let number = groups.iter().position(is_it).unwrap_or_else(|| {
                groups.push(group(asked, result, run, runs));
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
    groups.sort_by_key(|group| (group.setting.conditions.delay_us, group.parties, group.hold_us));
    groups
}

/// In `handoff`, the tasks of a backend that cannot reach beyond its process stand beside the processes of
/// others.
fn parties_are(result: &Measurement) -> &str {
    if result.workload == "independent" { &result.parties_are } else { "" }
}

fn group(asked: &Asked, result: &Measurement, run: &Report, runs: &[Report]) -> Group {
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
        ("arrivals", rate) if result.parties_are == A_SECOND => format!("{rate} requests arrive in a second"),
        ("arrivals", _) => format!("requests arrive at {}", result.case),
        ("hot", _) | (_, 1) => result.case.clone(),
        (_, parties) => format!("{parties} {}, a lock each", result.parties_are),
    };
    // Where there is nothing to tell apart, it stands at the top once.
    if runs.iter().any(|other| other.conditions != run.conditions) {
        title = format!("{title}; {}", show::conditions(&run.conditions));
    }
    let setting = Setting::of(run);
    if runs.iter().any(|other| show::machine(&other.machine) != setting.machine) {
        title = format!("{title}; {}", setting.machine);
    }
    Group {
        title,
        workload: result.workload.clone(),
        unit: asked.unit.unwrap_or_else(|| result.quantity.into()),
        parties: result.parties,
        parties_are: parties_are(result).to_owned(),
        hold_us: result.hold_us,
        setting,
        lines: Vec::new(),
    }
}

impl Group {
    /// Those of its lines, in the order of their ranks among themselves.
    pub(crate) fn among(&self, is_wanted: impl Fn(&Line) -> bool) -> Vec<Line> {
        let mut lines: Vec<Line> = self.lines.iter().filter(|line| is_wanted(line)).cloned().collect();
        rank::rank(&mut lines, self.unit);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};

    #[test]
    fn several_locks_are_not_compared_with_one() {
        let mut several = measured("postgres", 6);
        (several.workload, several.parties) = ("hot".to_owned(), 16);
        several.case = "8 names, 2 processes each".to_owned();
        let one = Measurement { workload: "handoff".to_owned(), ..several.clone() };
        let mut run = report();
        run.results = vec![several, one];
        let questions = questions(&[run]);
        let hot = questions.iter().find(|question| question.id == "hot").unwrap();
        let groups: Vec<_> = hot.groups.iter().map(|group| (&*group.title, group.lines.len())).collect();
        assert_eq!(groups, [("8 names, 2 processes each", 3)], "ours and two other libraries");
    }
}
