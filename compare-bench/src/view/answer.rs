//! "If ... choose ... because ...": sentences made from the figures alone.

use crate::record::Report;
use crate::view::{Group, Line, Question, show};

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
    // Backends are what is chosen here; how other libraries do on them stands in the figures.
    let ranked: Vec<&Line> = group.lines.iter().filter(|line| line.rank.is_some() && !line.is_peer).collect();
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

/// What was asked for and not measured, and what this version cannot measure.
pub(crate) fn not_measured(runs: &[Report]) -> Vec<String> {
    let mut lines: Vec<String> = runs
        .iter()
        .flat_map(|run| &run.missing)
        .map(|missing| format!("{}: {}", missing.backend, missing.reason))
        .collect();
    lines.extend(
        runs.iter()
            .filter(|run| !run.finished)
            .map(|run| format!("the run of {} was not complete", run.date)),
    );
    if !runs.iter().any(|run| run.conditions.delay_us > 0) {
        lines.push("a slow network: use --delay".to_owned());
    }
    if runs.iter().all(|run| run.conditions.storage == "tmpfs") {
        lines.push("servers with their data on a disk".to_owned());
    }
    let has =
        |workload: &str| runs.iter().flat_map(|run| &run.results).any(|result| result.workload == workload);
    if !has("recovery") {
        lines.push("a holder, a leader or a server that dies: the workload recovery".to_owned());
    }
    if !has("holding") {
        lines.push("what it costs to hold many locks: the workload holding".to_owned());
    }
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{conditions, report};
    use crate::view::Unit;
    use crate::view::rank::{rank, tests::line};

    fn told(mut lines: Vec<Line>) -> Vec<String> {
        rank(&mut lines, Unit::Time);
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
    fn where_nothing_is_sure_nothing_is_said() {
        assert!(told(vec![line("a", 50.0, -1.0)]).is_empty());
        assert!(told(vec![line("a", 50.0, 1.0)])[0].ends_with("nothing else was measured."));
    }

    #[test]
    fn what_is_missing_is_told() {
        let lines = not_measured(&[report()]);
        assert!(lines.iter().any(|line| line.contains("was not complete")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("--delay")), "{lines:?}");
    }
}
