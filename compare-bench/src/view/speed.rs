//! How fast some families are, in words. Nothing is said that the figures do not tell.

use crate::view::family::Candidate;
use crate::view::line::Line;
use crate::view::overview::{Column, Overview};
use crate::view::show;
use crate::view::unit::Unit;

/// What cannot be said about speed.
pub(crate) const UNKNOWN: &str = "cannot be told on this machine now";

/// How fast those are that fit, at what all locks are used for.
pub(crate) struct Speed {
    /// The work, and the family that does it fastest, where that is known.
    pub(crate) fastest: Vec<(&'static str, String)>,
    /// Of each work that was compared, those that cannot be told apart from the fastest, and the fastest
    /// itself.
    pub(crate) leaders: Vec<Vec<String>>,
    pub(crate) words: String,
}

impl Speed {
    pub(crate) fn of(fit: &[&Candidate], overview: &Overview) -> Self {
        if overview.doubt.is_some() {
            let words = "the speed is unknown".to_owned();
            return Self { fastest: Vec::new(), leaders: Vec::new(), words };
        }
        let (mut fastest, mut leaders, mut words) = (Vec::new(), Vec::new(), Vec::new());
        for column in overview.columns.iter().filter(|column| column.measure.is_common) {
            let best = column.best(fit);
            if let [one] = best[..] {
                fastest.push((column.measure.work, family(one, fit)));
            }
            if !best.is_empty() {
                leaders.push(best.iter().map(|line| family(line, fit)).collect());
            }
            words.extend(compared(column, fit, &best));
        }
        if words.is_empty() {
            words.push("how fast it is was not measured".to_owned());
        }
        Self { fastest, leaders, words: words.join(", and ") }
    }
}

fn family(line: &Line, fit: &[&Candidate]) -> String {
    fit.iter().find(|it| it.backend == line.who).map_or_else(|| line.who.clone(), |it| it.family.clone())
}

/// What one column says about those that fit.
fn compared(column: &Column, fit: &[&Candidate], best: &[&Line]) -> Option<String> {
    let work = column.measure.work;
    let figure = |line: &Line| show::plain(column.unit, line.median);
    let mut lines =
        column.lines.iter().filter(|line| line.rank.is_some() && fit.iter().any(|it| it.backend == line.who));
    let first = lines.next()?;
    let has_figure = |it: &Candidate| column.of(&it.backend).is_some_and(|line| line.rank.is_some());
    let without = names(fit.iter().filter(|it| !has_figure(it)).map(|it| it.family.clone()), "and");
    let without = if without.is_empty() { String::new() } else { format!(" (not measured: {without})") };
    let Some(second) = lines.next() else {
        let on = if fit.len() > 1 { format!(" on {}", family(first, fit)) } else { String::new() };
        return Some(format!("{work} takes {}{on}{without}", figure(first)));
    };
    let is_all = lines.next().is_none();
    let told = match best {
        [one] => format!(
            "for {work} {} is {}{} {} ({} and {})",
            family(one, fit),
            if is_all { "" } else { "the fastest, " },
            show::times(times(column.unit, one, second)),
            family(second, fit),
            figure(one),
            figure(second)
        ),
        several => format!(
            "for {work} {} cannot be told apart ({})",
            names(several.iter().map(|line| family(line, fit)), "and"),
            names(several.iter().map(|line| figure(line)), "and")
        ),
    };
    Some(told + &without)
}

fn times(unit: Unit, better: &Line, worse: &Line) -> f64 {
    match unit {
        Unit::Time | Unit::Count => worse.median / better.median,
        Unit::Rate => better.median / worse.median,
    }
}

/// "a, b and c".
pub(crate) fn names(all: impl Iterator<Item = String>, last: &str) -> String {
    let all: Vec<String> = all.collect();
    match &all[..] {
        [before @ .., end] if !before.is_empty() => format!("{} {last} {end}", before.join(", ")),
        _ => all.concat(),
    }
}
