//! All families at a glance: the figures that decide about them first, of one setting.

use crate::record::Report;
use crate::view::family::{Candidate, candidates};
use crate::view::line::Line;
use crate::view::show::Unit;
use crate::view::{Group, Question, Setting, settings, show};

/// One thing that is compared first.
struct Measure {
    /// For the head of a column.
    title: &'static str,
    question: &'static str,
    is_it: fn(&Group) -> bool,
    /// Of the cases with at most so many parties, the one with the most: more share the cores of a small
    /// machine, and not every run has them.
    most: usize,
}

const MEASURES: [Measure; 4] = [
    Measure { title: "A free lock: acquire and release", question: "nobody", is_it: |_| true, most: 1 },
    Measure {
        title: "Hand-over between PARTIES processes",
        question: "processes",
        // One process hands it over to itself.
        is_it: |group| group.hold_us == 0 && group.parties > 1,
        most: 4,
    },
    Measure {
        title: "PARTIES tasks, a lock each: locks a second",
        question: "many",
        is_it: |group| group.parties_are == "tasks",
        most: 64,
    },
    Measure {
        title: "Holding PARTIES locks: processor time in a second",
        question: "holding",
        is_it: |_| true,
        most: usize::MAX,
    },
];

/// The figures of one measure.
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// Of each family the backend that stands for it, in the order of their ranks.
    pub(crate) lines: Vec<Line>,
}

impl Column {
    pub(crate) fn of(&self, backend: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.who == backend)
    }
}

/// What stands above everything else.
pub(crate) struct Overview {
    /// What holds for these figures: "data on ext4, servers sync each commit, where a sync takes 70 us".
    pub(crate) holds: String,
    pub(crate) families: Vec<Candidate>,
    pub(crate) columns: Vec<Column>,
}

/// One for each setting in which a family was measured.
pub(crate) fn overviews(runs: &[Report], questions: &[Question]) -> Vec<Overview> {
    settings(runs).iter().filter_map(|setting| overview(setting, runs, questions)).collect()
}

fn overview(setting: &Setting, runs: &[Report], questions: &[Question]) -> Option<Overview> {
    let alike: Vec<&Report> = runs.iter().filter(|run| Setting::of(run) == *setting).collect();
    let first = *alike.first()?;
    let families = candidates(&alike);
    if families.is_empty() {
        return None;
    }
    let columns =
        MEASURES.iter().filter_map(|measure| column(measure, setting, questions, &families)).collect();
    Some(Overview { holds: show::setting(&first.conditions, first.sync_us()), families, columns })
}

fn column(
    measure: &'static Measure,
    setting: &Setting,
    questions: &[Question],
    families: &[Candidate],
) -> Option<Column> {
    let question = questions.iter().find(|question| question.id == measure.question)?;
    let fits =
        |group: &&Group| group.setting == *setting && group.parties <= measure.most && (measure.is_it)(group);
    let group = question.groups.iter().filter(fits).max_by_key(|group| group.parties)?;
    let stands = |line: &Line| families.iter().any(|family| !line.is_peer && family.backend == line.who);
    let lines = group.among(stands);
    (!lines.is_empty()).then(|| Column {
        title: measure.title.replace("PARTIES", &group.parties.to_string()),
        unit: group.unit,
        lines,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn candidate(backend: &str) -> Candidate {
        let family = crate::view::family::family(backend).to_owned();
        Candidate { family, backend: backend.to_owned(), ..Candidate::default() }
    }
}
