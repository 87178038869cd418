//! "If ... choose ... because ...": sentences made from the figures alone.

use crate::measure::workload;
use crate::record::{PeerResult, Report};
use crate::target::Kind;
use crate::view::{Group, Line, Question, rank, show};

/// A sentence, and where its figures are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// The id of the group.
    pub(crate) figures: String,
}

/// One sentence for each group that has somebody to choose.
pub(crate) fn answers(questions: &[Question]) -> Vec<Answer> {
    let groups =
        questions.iter().flat_map(|question| question.groups.iter().map(move |group| (question, group)));
    groups.filter_map(|(question, group)| answer(question, group)).collect()
}

fn answer(question: &Question, group: &Group) -> Option<Answer> {
    // Backends are what is chosen here, so they are ranked without the other libraries, which stand in the figures.
    let mut lines: Vec<Line> = group.lines.iter().filter(|line| !line.is_peer).cloned().collect();
    rank::rank(&mut lines, group.unit);
    let ranked: Vec<&Line> = lines.iter().filter(|line| line.rank.is_some()).collect();
    let first = ranked.first()?.rank;
    let best: Vec<_> = ranked.iter().filter(|line| line.rank == first).collect();
    let next = ranked.iter().find(|line| line.rank != first);
    let figure = |line: &Line| line.value.map_or(String::new(), |value| show::value(group.unit, value));
    let asked = condition(question, group);
    let names: Vec<_> = best.iter().map(|line| &*line.who).collect();
    let choice = match &names[..] {
        [one] => format!("{one}, because it has {}", figure(best[0])),
        [first, others @ ..] => format!(
            "{first} or {}: their intervals overlap, so it is unknown which is better ({})",
            others.join(" or "),
            best.iter().map(|line| format!("{} {}", line.who, figure(line))).collect::<Vec<_>>().join(", ")
        ),
        [] => return None,
    };
    let rest = match next {
        Some(next) => {
            let times = next.median / best[0].median;
            format!(", and the next, {}, {}: {times:.1} times that of {}.", next.who, figure(next), names[0])
        }
        None if names.len() == 1 => "; nothing else was measured.".to_owned(),
        None => ".".to_owned(),
    };
    let text = format!("If {asked}, choose {choice}{rest}");
    Some(Answer { text, figures: group.id.clone() })
}

fn condition(question: &Question, group: &Group) -> String {
    let mut detail = group.title.clone();
    if let Some(first) = detail.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    format!("{} ({detail})", question.condition)
}

/// What was asked for and not measured, and what would measure the rest.
pub(crate) fn not_measured(runs: &[Report]) -> Vec<String> {
    let results = || runs.iter().flat_map(|run| &run.results);
    let missing = || runs.iter().flat_map(|run| &run.missing);
    let mut lines: Vec<String> =
        missing().map(|missing| format!("{}: {}", missing.backend, missing.reason)).collect();
    let unfinished = runs.iter().filter(|run| !run.finished);
    lines.extend(unfinished.map(|run| format!("the run of {} was not complete", run.date)));
    let workloads = workload::ALL.iter().filter(|it| !results().any(|result| result.workload == it.name()));
    lines.extend(workloads.map(|workload| format!("{}: {}", workload.name(), workload.about())));
    let is_known = |name: &str| {
        let measured = runs.iter().flat_map(|run| &run.backends).any(|backend| backend.name == name);
        measured || missing().any(|missing| missing.backend == name)
    };
    let others: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).filter(|name| !is_known(name)).collect();
    if !others.is_empty() {
        lines.push(format!("{}: use --backend, or --full", others.join(", ")));
    }
    let has_peer = |wanted: fn(&PeerResult) -> bool| results().flat_map(|result| &result.peers).any(wanted);
    let all = |wanted: fn(&Report) -> bool| runs.iter().all(wanted);
    let remaining = [
        (all(|run| run.conditions.delay_us == 0), "a slow network: use --delay"),
        (all(|run| run.conditions.storage == "tmpfs"), "servers with their data on a disk"),
        (all(|run| run.conditions.storage != "tmpfs"), "servers with their data in memory: use --tmpfs"),
        (!has_peer(|peer| peer.unsafe_because.is_none()), "other libraries: use --peers"),
        (!has_peer(|peer| peer.unsafe_because.is_some()), "common but faulty recipes: use --contrast"),
    ];
    lines.extend(remaining.iter().filter(|(is_missing, _)| *is_missing).map(|(_, text)| (*text).to_owned()));
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{conditions, report};
    use crate::view::Unit;
    use crate::view::rank::tests::line;

    fn told(mut lines: Vec<Line>) -> Vec<String> {
        rank::rank(&mut lines, Unit::Time);
        let group = Group {
            id: "nobody-1".to_owned(),
            title: "One task".to_owned(),
            workload: "uncontended".to_owned(),
            unit: Unit::Time,
            parties: 1,
            parties_are: String::new(),
            hold_us: 0,
            fault: None,
            conditions: conditions(),
            lines,
        };
        let question = Question {
            id: "nobody",
            title: "",
            condition: "nobody else wants the lock",
            what: "",
            groups: vec![group],
        };
        answers(&[question]).into_iter().map(|answer| answer.text).collect()
    }

    #[test]
    fn the_best_is_named_with_its_figure_and_the_next() {
        assert_eq!(
            told(vec![line("zk", 300.0, 10.0), line("redis", 50.0, 1.0), line("memory", 1.0, 0.0)]),
            [
                "If nobody else wants the lock (one task), choose redis, because it has 50.0 us [49.0 .. 51.0], and the next, \
              zk, 300 us [290 .. 310]: 6.0 times that of redis."
            ]
        );
    }

    #[test]
    fn ties_are_called_ties() {
        let told = told(vec![line("a", 50.0, 2.0), line("b", 51.0, 2.0)]);
        assert!(told[0].contains("choose a or b: their intervals overlap"), "{told:?}");
    }

    #[test]
    fn a_library_does_not_make_two_backends_equal() {
        // Its wide interval overlaps those of both.
        let peer = Line { is_peer: true, ..line("peer on a", 49.0, 20.0) };
        let told = told(vec![peer, line("a", 50.0, 1.0), line("b", 60.0, 1.0)]);
        assert!(told[0].contains("choose a, because"), "{told:?}");
    }

    #[test]
    fn where_nothing_is_sure_nothing_is_said() {
        assert!(told(vec![line("a", 50.0, -1.0)]).is_empty());
        assert!(told(vec![line("a", 50.0, 1.0)])[0].ends_with("nothing else was measured."));
    }

    #[test]
    fn what_is_missing_is_told() {
        let lines = not_measured(&[report()]);
        assert!(lines.iter().any(|line| line.contains("was not complete")), "{lines:?}");
        for expected in ["--delay", "--tmpfs", "--peers", "--contrast", "--full", "recovery: ", "semaphore: "]
        {
            assert!(lines.iter().any(|line| line.contains(expected)), "{expected} in {lines:?}");
        }
    }
}
