//! The plots of a lock that goes from process to process.

use maud::Markup;

use crate::error::Result;
use crate::html::figures::{PARTIES, TIME, as_size, beside, figure, over, series, settings, under};
use crate::html::plot::{Axis, Scale};
use crate::stats::as_float;
use crate::view::family::in_words;
use crate::view::line::{Fairness, Line};
use crate::view::{Group, Question, Setting, distinct, show};

const PROCESSES: Axis = Axis { label: "processes that want one lock", scale: Scale::Log, shown: PARTIES };

/// How many times the lock was granted, how evenly, and how long a process waited at most.
const GRANTS: Measure = Measure {
    title: "Grants a second over the number of processes",
    axis: Axis { label: "grants a second", scale: Scale::Log, shown: show::number },
    of: |it| it.grants_per_second,
};
const JAIN: Measure = Measure {
    title: "Fairness: 1 if all processes got the lock equally often",
    axis: Axis { label: "evenness (Jain's index)", scale: Scale::Linear, shown: |jain| format!("{jain:.2}") },
    of: |it| it.jain,
};
const WAIT: Measure = Measure {
    title: "Starvation: the longest time that a process waited",
    axis: Axis { label: "longest wait", ..TIME },
    of: |it| it.longest_wait_us,
};

/// With longer holds, the hold alone decides how often a lock is granted.
const SHORT_US: u64 = 1000;

/// What is shown over the number of processes.
struct Measure {
    title: &'static str,
    axis: Axis,
    of: fn(Fairness) -> f64,
}

impl Measure {
    fn of(&self, line: &Line) -> Option<f64> {
        line.fairness.map(self.of)
    }

    fn title(&self, hold_us: u64) -> String {
        format!("{}, hold time {} ms", self.title, hold_us / 1000)
    }
}

/// Of each family: grants, from a release to the next grant over the time that the lock is held, fairness and
/// starvation.
pub(crate) fn families(question: &Question) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for hold_us in short_holds(question) {
        figures.extend(of_families(question, &GRANTS, hold_us)?);
    }
    let x = Axis {
        label: "time for which each process holds the lock",
        scale: Scale::Linear,
        shown: |ms| format!("{ms:.0} ms"),
    };
    let mut parties: Vec<_> = question.groups.iter().map(|group| group.parties).collect();
    parties.sort_unstable();
    parties.dedup();
    for parties in parties {
        let title = format!("From a release to the next grant over the hold time, {parties} processes");
        let at = |group: &Group| as_float(group.hold_us) / 1000.0;
        figures.extend(over(question, &x, &TIME, &title, at, |group| group.parties == parties)?);
    }
    figures.extend(of_families(question, &JAIN, 0)?);
    figures.extend(of_families(question, &WAIT, 0)?);
    Ok(figures)
}

/// Of each backend beside the other libraries there: grants and fairness.
pub(crate) fn libraries(question: &Question) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for setting in settings(question) {
        let lines = || within(question, setting).flat_map(|group| &group.lines);
        for backend in distinct(lines().filter(|line| line.is_peer).map(|line| &*line.backend)) {
            for hold_us in short_holds(question) {
                let groups: Vec<&Group> =
                    within(question, setting).filter(|group| group.hold_us == hold_us).collect();
                for measure in [&GRANTS, &JAIN] {
                    let what = format!("{}: {}", in_words(backend), measure.title(hold_us));
                    let title = under(&what, question, setting);
                    let series = beside(&groups, backend, |line| measure.of(line));
                    figures.extend(figure(&title, Some(setting), &PROCESSES, &measure.axis, &series)?);
                }
            }
        }
    }
    Ok(figures)
}

fn of_families(question: &Question, measure: &Measure, hold_us: u64) -> Result<Vec<Markup>> {
    let mut figures = Vec::new();
    for setting in settings(question) {
        let groups = within(question, setting).filter(|group| group.hold_us == hold_us);
        let point = |line: &Line| Some((measure.of(line)?, None));
        let series = series(groups, |group| as_size(group.parties), point);
        let title = under(&measure.title(hold_us), question, setting);
        figures.extend(figure(&title, Some(setting), &PROCESSES, &measure.axis, &series)?);
    }
    Ok(figures)
}

fn within<'a>(question: &'a Question, setting: &'a Setting) -> impl Iterator<Item = &'a Group> {
    question.groups.iter().filter(move |group| group.setting == *setting)
}

fn short_holds(question: &Question) -> Vec<u64> {
    let mut holds = distinct(question.groups.iter().map(|group| group.hold_us));
    holds.retain(|hold_us| *hold_us <= SHORT_US);
    holds.sort_unstable();
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{handing, measured, report};
    use crate::view::asked::BESIDE;
    use crate::view::questions;

    #[test]
    fn grants_are_drawn_over_the_number_of_processes_for_each_backend_and_library() {
        let mut run = report();
        for parties in [1, 4, 64] {
            for hold_us in [0, 1000, 10_000] {
                for backend in ["redis", "zookeeper"] {
                    let mut result = measured(backend, 6);
                    (result.parties, result.hold_us) = (parties, hold_us);
                    result.handing = Some(handing(parties));
                    result.peers[0].handing = Some(handing(parties));
                    result.peers[1].error = Some("failed".to_owned());
                    run.results.push(result);
                }
            }
        }
        let questions = questions(&[run]);
        let find = |id: &str| questions.iter().find(|question| question.id == id).unwrap();
        let text = |figures: Vec<Markup>| figures.into_iter().map(Markup::into_string).collect::<Vec<_>>();
        let plots = text(families(find("processes")).unwrap());
        let grants: Vec<_> =
            plots.iter().filter(|plot| plot.contains("aria-label=\"Grants a second")).collect();
        assert_eq!(grants.len(), 2, "one for each short hold");
        assert!(grants[1].contains("hold time 1 ms"), "{}", grants[1]);
        for name in ["\nRedis/Valkey\n", "\nZooKeeper\n"] {
            assert!(grants.iter().all(|plot| plot.contains(name)), "{name}");
        }
        let plots = text(libraries(find(BESIDE)).unwrap());
        assert_eq!(plots.len(), 8, "two backends, two holds, grants and fairness");
        for name in ["aria-label=\"Redis: Grants a second", "\nlockwell\n", "\nquick\n"] {
            assert!(plots[0].contains(name), "{name} in {}", plots[0]);
        }
        assert!(!plots[0].contains("\nslow\n"), "it has no turns: {}", plots[0]);
    }
}
