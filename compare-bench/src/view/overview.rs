//! All families at a glance: the figures that decide about them first, of one setting.

use crate::record::Report;
use crate::view::family::{Candidate, candidates};
use crate::view::line::Line;
use crate::view::trust::{apart, doubt};
use crate::view::unit::Unit;
use crate::view::{Group, Question, Setting, settings, show};

/// One thing that is compared first.
pub(crate) struct Measure {
    /// For the head of a column.
    title: &'static str,
    /// Within a sentence: "for a free lock".
    pub(crate) work: &'static str,
    /// Whether all locks are used for it.
    pub(crate) is_common: bool,
    question: &'static str,
    is_it: fn(&Group) -> bool,
    /// Of the cases with at most so many parties, the one with the most: more share the cores of a small
    /// machine, and not every run has them.
    most: usize,
}

pub(crate) const MEASURES: [Measure; 5] = [
    Measure {
        title: "A free lock: acquire and release",
        work: "a free lock",
        is_common: true,
        question: "nobody",
        is_it: |_| true,
        most: 1,
    },
    Measure {
        title: "Hand-over between PARTIES processes",
        work: "a hand-over between processes",
        is_common: true,
        question: "processes",
        // One process hands it over to itself.
        is_it: |group| group.hold_us == 0 && group.parties > 1,
        most: 4,
    },
    Measure {
        title: "PARTIES tasks, a lock each: locks a second",
        work: "many names at once",
        is_common: false,
        question: "many",
        is_it: |group| group.parties_are == "tasks",
        most: 64,
    },
    Measure {
        title: "Free again after its holder was killed (lease of 4 s)",
        work: "recovery after a crash",
        is_common: false,
        question: "dies",
        is_it: |group| group.fault.as_deref() == Some("the holder is killed"),
        most: usize::MAX,
    },
    Measure {
        title: "Holding PARTIES locks: processor time in a second",
        work: "holding",
        is_common: false,
        question: "holding",
        is_it: |_| true,
        most: usize::MAX,
    },
];

/// The figures of one measure.
pub(crate) struct Column {
    pub(crate) measure: &'static Measure,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// Of each family the backend that stands for it, in the order of their ranks.
    pub(crate) lines: Vec<Line>,
    /// The id of the group with all figures.
    pub(crate) figures: String,
}

impl Column {
    pub(crate) fn of(&self, backend: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.who == backend)
    }

    /// The best of these families, and those that cannot be told apart from it. Nobody is the best of one.
    pub(crate) fn best<'a>(&'a self, among: &[&Candidate]) -> Vec<&'a Line> {
        let is_among = |line: &&Line| among.iter().any(|candidate| candidate.backend == line.who);
        let lines: Vec<&Line> =
            self.lines.iter().filter(is_among).filter(|line| line.rank.is_some()).collect();
        match lines[..] {
            [first, _, ..] => {
                lines.into_iter().filter(|line| line.who == first.who || !apart(first, line)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What stands above everything else.
pub(crate) struct Overview {
    pub(crate) setting: Setting,
    /// What holds for these figures: "data on ext4, servers sync each commit, where a sync takes 70 us".
    pub(crate) holds: String,
    /// Where and when they were measured.
    pub(crate) measured: String,
    /// Why they are not to be used, if they are not.
    pub(crate) doubt: Option<String>,
    pub(crate) families: Vec<Candidate>,
    pub(crate) columns: Vec<Column>,
}

/// One for each setting in which a family was measured.
pub(crate) fn overviews(runs: &[Report], questions: &[Question]) -> Vec<Overview> {
    settings(runs).into_iter().filter_map(|setting| overview(setting, runs, questions)).collect()
}

fn overview(setting: Setting, runs: &[Report], questions: &[Question]) -> Option<Overview> {
    let alike: Vec<&Report> = runs.iter().filter(|run| Setting::of(run) == setting).collect();
    let first = *alike.first()?;
    let families = candidates(&alike);
    if families.is_empty() {
        return None;
    }
    let columns =
        MEASURES.iter().filter_map(|measure| column(measure, &setting, questions, &families)).collect();
    Some(Overview {
        holds: show::setting(&first.conditions, first.sync_us()),
        measured: format!("{}, {}", setting.machine, when(first)),
        setting,
        doubt: alike.into_iter().find_map(doubt),
        families,
        columns,
    })
}

fn when(run: &Report) -> String {
    let date = run.date.split('T').next().unwrap_or_default();
    if run.mode == "usual" { format!("measured on {date}") } else { format!("a {} run of {date}", run.mode) }
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
        measure,
        title: measure.title.replace("PARTIES", &group.parties.to_string()),
        unit: group.unit,
        lines,
        figures: group.id.clone(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::view::rank::rank;
    use crate::view::rank::tests::line;

    pub(crate) fn candidate(backend: &str) -> Candidate {
        let family = crate::view::family::family(backend).to_owned();
        Candidate { family, backend: backend.to_owned(), ..Candidate::default() }
    }

    /// A column of the first measures, by their number.
    pub(crate) fn column(measure: usize, mut lines: Vec<Line>) -> Column {
        rank(&mut lines, Unit::Time);
        let (measure, figures) = (&MEASURES[measure], format!("figures-{measure}"));
        Column { measure, title: measure.title.to_owned(), unit: Unit::Time, lines, figures }
    }

    #[test]
    fn the_best_are_those_that_cannot_be_told_apart() {
        let column = column(
            0,
            vec![line("redis", 50.0, 1.0), line("postgres", 51.0, 1.0), line("zookeeper", 90.0, 1.0)],
        );
        let all = ["redis", "postgres", "zookeeper"].map(candidate);
        let names = |among: &[&Candidate]| -> Vec<String> {
            column.best(among).into_iter().map(|line| line.who.clone()).collect()
        };
        assert_eq!(names(&[&all[0], &all[1], &all[2]]), ["redis", "postgres"]);
        assert_eq!(names(&[&all[1], &all[2]]), ["postgres"]);
        assert!(names(&[&all[2]]).is_empty(), "one alone is not compared");
    }
}
