//! One figure that will be measured.

use std::time::Duration;

use crate::plan::Rounds;

/// One figure that will be measured: a workload with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// The variant, for people: "16 tasks". Nothing else in the workload has this name.
    pub(crate) name: String,
    pub(crate) parties: usize,
    /// "tasks" of one process, or "processes".
    pub(crate) parties_are: &'static str,
    /// Of parties that contend: the number of names that they share evenly.
    pub(crate) names: usize,
    /// How long each of them holds the lock on purpose.
    pub(crate) hold: Duration,
    /// An option in the address of our client.
    pub(crate) option: Option<(&'static str, &'static str)>,
    pub(crate) rounds: Rounds,
    /// Which other libraries do it, too.
    pub(crate) others: Others,
}

/// Which other libraries do a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    None,
    /// Those of which many processes start in a moment and need little memory.
    Light,
    All,
}

impl Others {
    /// Whether a library does it.
    pub(crate) fn have(self, is_light: bool) -> bool {
        match self {
            Self::None => false,
            Self::Light => is_light,
            Self::All => true,
        }
    }
}

impl Case {
    /// So many tasks of one process, as the client is without options.
    pub(crate) fn of_tasks(tasks: usize, rounds: Rounds) -> Self {
        Self {
            name: counted(tasks, "tasks"),
            parties: tasks,
            parties_are: "tasks",
            names: 1,
            hold: Duration::ZERO,
            option: None,
            rounds,
            others: Others::All,
        }
    }

    /// One of its names: several are numbered, and a single one is this name itself.
    pub(crate) fn name_of(&self, name: &str, number: usize) -> String {
        if self.names > 1 { format!("{name}/{number}") } else { name.to_owned() }
    }
}

/// "1 task", "2 tasks".
pub(crate) fn counted(number: usize, several: &str) -> String {
    let one = several.strip_suffix("sses").map(|stem| format!("{stem}ss"));
    let one = one.or_else(|| several.strip_suffix('s').map(str::to_owned));
    match (number, one) {
        (1, Some(one)) => format!("1 {one}"),
        _ => format!("{number} {several}"),
    }
}
