//! What people ask, and the figures of one run or of several that answer it: the terminal, the report and the
//! exports show the same.

pub(crate) mod advice;
pub(crate) mod asked;
pub(crate) mod cells;
pub(crate) mod family;
pub(crate) mod line;
pub(crate) mod missing;
pub(crate) mod overview;
pub(crate) mod rank;
pub(crate) mod show;
pub(crate) mod speed;
pub(crate) mod trust;
pub(crate) mod unit;
pub(crate) mod words;

use crate::plan::case::counted;
use crate::record::{Conditions, Measurement, Report};
use crate::stats::as_float;
use crate::view::asked::{ASKED, Asked};

pub(super) use crate::view::line::Line;
pub(super) use crate::view::unit::Unit;

/// A question, and what was measured to answer it.
#[derive(Debug)]
pub(crate) struct Question {
    /// In addresses within the report.
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
    pub(crate) setting: Setting,
    /// How long a sync of the disk took in the first run in this setting, in microseconds.
    pub(crate) sync_us: Option<f64>,
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

/// A report for each setting. Of several runs in the same setting, the first that has a lock shows it.
pub(crate) fn by_setting(runs: &[Report]) -> Vec<Report> {
    let mut merged: Vec<Report> = Vec::new();
    for run in runs {
        let Some(before) = merged.iter_mut().find(|before| Setting::of(before) == Setting::of(run)) else {
            merged.push(run.clone());
            continue;
        };
        let is_known = |one: &Measurement| {
            before
                .results
                .iter()
                .any(|result| (&result.backend, &result.workload) == (&one.backend, &one.workload))
        };
        let more: Vec<_> = run.results.iter().filter(|result| !is_known(result)).cloned().collect();
        before.results.extend(more);
    }
    merged
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
                    && group.fault.as_ref() == fault(result)
            };
            let number = groups.iter().position(is_it).unwrap_or_else(|| {
                groups.push(group(asked, groups.len(), result, run, runs));
                groups.len() - 1
            });
            let peers = result.peers.iter().filter_map(|peer| Some((peer, (asked.theirs)(peer)?)));
            let peers = peers.map(|(peer, figure)| Line::peer(peer, result, figure));
            let mut ours = Line::ours(result, figure, (asked.to_floor)(result));
            ours.remarks.extend(under_load(result, run));
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
    groups.sort_by_key(|group| (group.setting.conditions.delay_us, parties(group), group.hold_us));
    groups
}

/// How much longer requests take that arrive at a rate than those for a lock that nobody else wants, and what
/// share that rate is of the highest that was reached in the same run.
fn under_load(result: &Measurement, run: &Report) -> Option<String> {
    let of = |workload: &'static str| {
        run.results.iter().filter(move |other| other.workload == workload && other.backend == result.backend)
    };
    let free = of("uncontended").next().filter(|_| result.workload == "arrivals")?;
    let times = result.latency_us.p99 / free.latency_us.p50;
    let most = of("independent").map(|other| other.per_second).fold(0.0, f64::max);
    let share = 100.0 * as_float(u64::try_from(result.parties).unwrap_or(u64::MAX)) / most;
    times.is_finite().then(|| {
        let of_most =
            if share.is_finite() { format!(", at {share:.0} % of the highest rate") } else { String::new() };
        format!("p99 {times:.1} times the median of a free lock{of_most}")
    })
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
        id: format!("{}-{}", asked.id, number + 1),
        title,
        workload: result.workload.clone(),
        unit: asked.unit.unwrap_or_else(|| result.quantity.into()),
        parties: result.parties,
        parties_are: parties_are(result).to_owned(),
        hold_us: result.hold_us,
        fault: fault(result).cloned(),
        setting,
        sync_us: run.sync_us(),
        lines: Vec::new(),
    }
}

pub(crate) fn capital(text: &str) -> String {
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

    #[test]
    fn requests_under_load_are_compared_with_a_free_lock() {
        let of = |workload: &str, parties: usize, per_second: f64, micros: f64| {
            let mut result = measured("redis", 6);
            (result.workload, result.parties, result.per_second) = (workload.to_owned(), parties, per_second);
            (result.latency_us.p50, result.latency_us.p99) = (micros, 5.0 * micros);
            result
        };
        let mut run = report();
        run.results = vec![of("arrivals", 1000, 1000.0, 400.0), of("uncontended", 1, 5000.0, 200.0)];
        assert_eq!(
            under_load(&run.results[0], &run).as_deref(),
            Some("p99 10.0 times the median of a free lock")
        );
        run.results.push(of("independent", 64, 4000.0, 300.0));
        let told = under_load(&run.results[0], &run).unwrap();
        assert!(told.ends_with(", at 25 % of the highest rate"), "{told}");
        assert_eq!(under_load(&run.results[1], &run), None);
    }
}
