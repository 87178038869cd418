//! "If ... choose ... because ...": sentences made from the figures alone.
//!
//! A question has one sentence for all its cases under the same conditions, such as all numbers of processes.
//! Behind it stand the sentences of the cases.

use crate::view::line::Line;
use crate::view::unit::Unit;
use crate::view::{Group, Question, rank, show};

/// How many cases of another choice are named.
const NAMED: usize = 4;

/// The sentence for a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) sentence: Sentence,
    /// Those of its cases, if there are several.
    pub(crate) cases: Vec<Sentence>,
}

/// A sentence, and where its figures are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) text: String,
    /// The id of the group.
    pub(crate) figures: String,
}

/// The answers to all questions that have somebody to choose. A slow network is a question of its own, so the
/// other questions are answered without a delay.
pub(crate) fn answers(questions: &[Question]) -> Vec<Answer> {
    questions
        .iter()
        .flat_map(|question| sets(question).into_iter().filter_map(|set| answer(question, &set)))
        .collect()
}

/// The cases of a question that have one answer: those under the same conditions. Each fault is for itself.
fn sets(question: &Question) -> Vec<Vec<Case<'_>>> {
    let is_slow = question.id == "slow";
    let mut sets: Vec<Vec<Case<'_>>> = Vec::new();
    for group in &question.groups {
        if group.conditions.delay_us > 0 && !is_slow {
            continue;
        }
        let Some(case) = Case::of(group) else { continue };
        let is_together = |set: &&mut Vec<Case<'_>>| {
            let first = set[0].group;
            let same = first.conditions == group.conditions || is_slow;
            same && first.fault.is_none() && group.fault.is_none()
        };
        match sets.iter_mut().find(is_together) {
            Some(set) => set.push(case),
            None => sets.push(vec![case]),
        }
    }
    sets
}

fn answer(question: &Question, set: &[Case<'_>]) -> Option<Answer> {
    let (first, others) = set.split_first()?;
    if others.is_empty() {
        return Some(Answer { sentence: first.sentence(question), cases: Vec::new() });
    }
    let cases = set.iter().map(|case| case.sentence(question)).collect();
    Some(Answer { sentence: summary(question, set), cases })
}

/// The backend that is best most often, an example, and where others are better.
fn summary(question: &Question, set: &[Case<'_>]) -> Sentence {
    let wins = |who: &str| set.iter().filter(|case| case.has_best(who)).count();
    let everybody = set.iter().flat_map(|case| &case.best);
    // Of those with the same number, the one that is named first.
    let leader = everybody.rev().max_by_key(|line| wins(&line.who)).map_or("", |line| &*line.who);
    let ahead: Vec<&Case<'_>> = set.iter().filter(|case| case.has_best(leader)).collect();
    // One in which nobody shares its rank says more.
    let Some(example) = ahead.iter().rfind(|case| case.best.len() == 1).or(ahead.last()) else {
        return set[0].sentence(question);
    };
    let conditions =
        set[0].conditions().filter(|first| set.iter().all(|case| case.conditions() == Some(first)));
    let title = |case: &Case<'_>| if conditions.is_some() { case.title() } else { case.full_title() };
    let share = if ahead.len() == set.len() { String::new() } else { format!("{} of ", ahead.len()) };
    let mut text = format!(
        "If {}{}, choose {leader}, because nothing is better in {share}{} cases. For example, {}: {}.",
        question.condition,
        conditions.map_or(String::new(), |text| format!(" ({text})")),
        set.len(),
        title(example),
        example.because()
    );
    let mut others: Vec<(&str, Vec<String>)> = Vec::new();
    for case in set.iter().filter(|case| !case.has_best(leader)) {
        let who = &*case.best[0].who;
        match others.iter_mut().find(|(known, _)| *known == who) {
            Some((_, titles)) => titles.push(title(case)),
            None => others.push((who, vec![title(case)])),
        }
    }
    let named = |(who, titles): &(&str, Vec<String>)| match titles.len() {
        few if few <= NAMED => format!("{who} ({})", titles.join("; ")),
        many => format!("{who} ({many} cases)"),
    };
    let others: Vec<_> = others.iter().map(named).collect();
    if !others.is_empty() {
        text = format!("{text} The best in the others: {}.", others.join(", "));
    }
    Sentence { text, figures: example.group.id.clone() }
}

/// A group of figures with its backends in their order: other libraries stand in the figures, and options of
/// a backend beside it.
struct Case<'a> {
    group: &'a Group,
    best: Vec<Line>,
    next: Option<Line>,
    /// The best with an option, where that is better still.
    variant: Option<Line>,
}

impl<'a> Case<'a> {
    fn of(group: &'a Group) -> Option<Self> {
        let lines = group.among(|line| !line.is_peer && line.option.is_none());
        let (best, rest): (Vec<Line>, Vec<Line>) =
            lines.into_iter().filter(|line| line.rank.is_some()).partition(|line| line.rank == Some(1));
        let first = best.first()?;
        let is_better = |line: &&Line| {
            let overlaps = line.value.zip(first.value).is_none_or(|(one, other)| rank::overlap(one, other));
            line.backend == first.backend && line.option.is_some() && !overlaps
        };
        // The best comes first.
        let variant = group.lines.iter().take_while(|line| line.who != first.who).find(is_better).cloned();
        Some(Self { group, next: rest.into_iter().next(), variant, best })
    }

    fn has_best(&self, who: &str) -> bool {
        self.best.iter().any(|line| line.who == who)
    }

    fn title(&self) -> String {
        let full = self.full_title();
        full.split("; ").next().unwrap_or_default().to_owned()
    }

    /// With the conditions, where there are several.
    fn full_title(&self) -> String {
        let mut letters = self.group.title.chars();
        letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
    }

    fn conditions(&self) -> Option<&str> {
        self.group.title.split_once("; ").map(|(_, conditions)| conditions)
    }

    fn sentence(&self, question: &Question) -> Sentence {
        let asked = format!("{} ({})", question.condition, self.full_title());
        let names: Vec<_> = self.best.iter().map(|line| &*line.who).collect();
        let text = format!("If {asked}, choose {}, because {}.", names.join(" or "), self.because());
        Sentence { text, figures: self.group.id.clone() }
    }

    fn because(&self) -> String {
        let [best, ..] = &self.best[..] else { return String::new() };
        let mut text = if self.best.len() == 1 {
            format!("{} {} {}", best.who, self.verb(), self.figure(best))
        } else {
            let each = self.best.iter().map(|line| format!("{} {}", line.who, self.figure(line)));
            let each = each.collect::<Vec<_>>().join(", ");
            format!("the intervals of {each} overlap, so it is unknown which of them is better")
        };
        match &self.next {
            Some(next) => {
                let figure = self.figure(next);
                text = format!(
                    "{text}, and the next, {}, {} {figure}{}",
                    next.who,
                    self.verb(),
                    self.distance(next)
                );
            }
            None if self.best.len() == 1 => text += "; nothing else was measured",
            None => (),
        }
        if let Some(variant) = &self.variant {
            let option = variant.option.as_deref().unwrap_or_default();
            text = format!("{text}; with {option}, {} {} {}", best.who, self.verb(), self.figure(variant));
        }
        text
    }

    /// How far the next is from the best.
    fn distance(&self, next: &Line) -> String {
        let (best, next) = (self.best[0].median, next.median);
        match self.group.unit {
            Unit::Rate => format!(", {:.0} % of that", 100.0 * next / best),
            Unit::Time => format!(", {:.1} times as long", next / best),
            // Nothing is no measure.
            Unit::Count if best < 0.01 => String::new(),
            Unit::Count => format!(", {:.1} times as many", next / best),
        }
    }

    fn verb(&self) -> &'static str {
        match self.group.unit {
            Unit::Time => "takes",
            Unit::Rate => "reaches",
            Unit::Count => "needs",
        }
    }

    fn figure(&self, line: &Line) -> String {
        line.value.map_or(String::new(), |value| show::value(self.group.unit, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::conditions;
    use crate::view::rank::tests::line;

    fn group(title: &str, unit: Unit, mut lines: Vec<Line>) -> Group {
        rank::rank(&mut lines, unit);
        Group {
            id: format!("many-{}", title.len()),
            title: title.to_owned(),
            workload: "independent".to_owned(),
            unit,
            parties: 1,
            parties_are: String::new(),
            hold_us: 0,
            fault: None,
            conditions: conditions(),
            lines,
        }
    }

    fn answered(groups: Vec<Group>) -> Vec<Answer> {
        let condition = "nobody else wants the lock";
        answers(&[Question { id: "nobody", title: "", condition, what: "", groups }])
    }

    fn told(lines: Vec<Line>) -> String {
        let told = answered(vec![group("One task", Unit::Time, lines)]).pop();
        told.map_or(String::new(), |answer| answer.sentence.text)
    }

    #[test]
    fn the_best_is_named_with_its_figure_and_the_next() {
        assert_eq!(
            told(vec![line("zk", 300.0, 10.0), line("redis", 50.0, 1.0), line("memory", 1.0, 0.0)]),
            "If nobody else wants the lock (one task), choose redis, because redis takes 50.0 us [49.0 .. 51.0], and the next, zk, \
             takes 300 us [290 .. 310], 6.0 times as long."
        );
    }

    #[test]
    fn of_rates_the_next_is_a_share() {
        let lines = vec![line("a", 500.0, 5.0), line("b", 200.0, 5.0)];
        let told = &answered(vec![group("4 tasks", Unit::Rate, lines)])[0].sentence.text;
        assert!(
            told.contains("a reaches 500 /s")
                && told.ends_with("b, reaches 200 /s [195 .. 205], 40 % of that."),
            "{told}"
        );
    }

    #[test]
    fn ties_are_called_ties() {
        let told = told(vec![line("a", 50.0, 2.0), line("b", 51.0, 2.0)]);
        assert!(told.contains("choose a or b, because") && told.contains("overlap"), "{told}");
    }

    #[test]
    fn a_library_does_not_make_two_backends_equal() {
        // Its wide interval overlaps those of both.
        let peer = Line { is_peer: true, ..line("peer on a", 49.0, 20.0) };
        let told = told(vec![peer, line("a", 50.0, 1.0), line("b", 60.0, 1.0)]);
        assert!(told.contains("choose a, because"), "{told}");
    }

    #[test]
    fn an_option_stands_beside_its_backend() {
        let option = Line {
            backend: "a".into(),
            option: Some("coalesce=true".into()),
            ..line("a, coalesce=true", 5.0, 1.0)
        };
        let told = told(vec![option, line("a", 50.0, 1.0), line("b", 60.0, 1.0)]);
        assert!(
            told.contains("choose a, because")
                && told.ends_with("with coalesce=true, a takes 5.00 us [4.00 .. 6.00]."),
            "{told}"
        );
    }

    #[test]
    fn where_nothing_is_sure_nothing_is_said() {
        assert_eq!(told(vec![line("a", 50.0, -1.0)]), "");
        assert!(told(vec![line("a", 50.0, 1.0)]).ends_with("nothing else was measured."));
    }

    #[test]
    fn several_cases_have_one_sentence() {
        let lines = |a, b| vec![line("a", a, 1.0), line("b", b, 1.0)];
        let mut groups = vec![
            group("1 task", Unit::Time, lines(10.0, 20.0)),
            group("10 tasks", Unit::Time, lines(10.0, 30.0)),
            group("100 tasks", Unit::Time, lines(50.0, 40.0)),
        ];
        let answer = answered(groups.clone()).pop().unwrap();
        assert_eq!(
            answer.sentence.text,
            "If nobody else wants the lock, choose a, because nothing is better in 2 of 3 cases. For example, 10 tasks: a takes \
             10.0 us [9.0 .. 11.0], and the next, b, takes 30.0 us [29.0 .. 31.0], 3.0 times as long. The best in the others: b \
             (100 tasks)."
        );
        assert_eq!((answer.sentence.figures.as_str(), answer.cases.len()), ("many-8", 3));
        // Of a slow network there is a sentence elsewhere, and other conditions have another.
        groups[1].conditions.delay_us = 1000;
        groups[2].conditions.storage = "tmpfs".to_owned();
        assert!(answered(groups).iter().all(|answer| answer.cases.is_empty()));
    }
}
