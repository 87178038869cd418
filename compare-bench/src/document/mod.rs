//! What is shown of runs, on the terminal and as a page: which lock to choose, on what it was measured, and
//! the figures of each question.

mod faults;
mod grid;
pub(crate) mod html;
mod table;
pub(crate) mod terminal;
pub(crate) mod wrap;

use crate::record::Report;
use crate::view::advice::{Advice, BILLING, TERMS, advice};
use crate::view::overview::Overview;
use crate::view::{Group, Question, show, trust, words};

/// The loud warning.
pub(crate) const DEBUG: &str = "WARNING: this is a debug build. Its figures mean nothing. Build with --release, or use `cargo xtask compare`.";

/// What the columns of all tables are.
const COLUMNS: &str = "The number before a name is its rank; locks whose intervals overlap that of the best of a rank share it. Behind \
     each median stands its interval of 95 % (bootstrap over the rounds). p99: 99 of 100 took at most so long. To raw: the ratio to raw statements, which are the fewest that any lock on this server needs, \
     and are measured in turns with the locks; 1.10 of a latency is 10 % slower, 2.00 of a rate is twice that of as many raw tasks. Where the raw \
     statements of many tasks have one connection that does one at a time, the ratio to it stands apart.";

/// A part of what is shown.
pub(crate) struct Section<'a> {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block<'a>>,
}

pub(crate) enum Block<'a> {
    Text(String),
    /// Must not be overlooked.
    Warning(String),
    Advice(Advice),
    Group(&'a Group),
}

/// Whether the figures are to be used at all.
pub(crate) fn warnings(runs: &[Report]) -> Vec<Block<'_>> {
    let doubt = |run: &Report| {
        let of = if runs.len() > 1 { format!(" (run of {})", run.date) } else { String::new() };
        trust::doubt(run)
            .map(|doubt| Block::Warning(format!("THESE FIGURES ARE NOT TO BE USED{of}: {doubt}.")))
    };
    runs.iter().filter_map(doubt).collect()
}

/// What to choose in one setting. `what` names the setting, where there are several.
pub(crate) fn which<'a>(overview: &Overview, what: &str) -> Section<'a> {
    let mut blocks: Vec<Block<'_>> = advice(&overview.families).into_iter().map(Block::Advice).collect();
    blocks.push(Block::Text(BILLING.join(" ")));
    blocks.push(Block::Text(TERMS.to_owned()));
    Section { title: format!("Which lock{what}"), blocks }
}

/// On what it was measured.
pub(crate) fn machine(run: &Report) -> Vec<String> {
    let (machine, build) = (&run.machine, &run.build);
    let commit = build.git_commit.as_deref().map_or(String::new(), |commit| {
        let changed = if build.git_dirty == Some(true) { " with changes" } else { "" };
        format!(", commit {}{changed}", commit.get(..10).unwrap_or(commit))
    });
    let sync = run.disk.as_ref().map_or(String::new(), |disk| {
        format!(", a sync of {} takes {}", disk.file_system, show::time(disk.sync_us.p50))
    });
    let mut lines = vec![format!(
        "{} ({} cores, {} MiB, {}), load before {:.2}{sync}, {} run of {} s, {}{commit}, {}",
        machine.cpu,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        run.load_before,
        run.mode,
        run.seconds.round(),
        run.date,
        show::conditions(&run.conditions),
    )];
    for backend in &run.backends {
        let mut text = format!("{}: {}, data on {}", backend.name, backend.version, backend.storage);
        for (name, value) in &backend.settings {
            text.extend([", ", name, "=", value]);
        }
        lines.push(text);
    }
    lines
}

/// A section for each question.
pub(crate) fn figures(questions: &[Question]) -> Vec<Section<'_>> {
    fn section(question: &Question) -> Section<'_> {
        let mut blocks = vec![Block::Text(question.what.to_owned())];
        blocks.extend(words::told(question).map(|meaning| Block::Text(meaning.to_owned())));
        blocks.extend(question.groups.iter().map(Block::Group));
        Section { title: question.title.to_owned(), blocks }
    }
    questions.iter().map(section).collect()
}

/// What is missing, and what failed.
pub(crate) fn absent(runs: &[Report]) -> Vec<Block<'_>> {
    let missing = runs.iter().flat_map(|run| &run.missing);
    let missing = missing.map(|it| Block::Text(format!("not measured: {}: {}", it.backend, it.reason)));
    let unfinished = runs.iter().filter(|run| !run.finished && run.violation.is_none());
    let unfinished = unfinished.map(|run| Block::Text(format!("the run of {} was not complete", run.date)));
    let failures = runs.iter().flat_map(|run| &run.failures).map(|failure| {
        let (workload, case) = (&failure.workload, &failure.case);
        Block::Warning(format!("FAILED: {workload}, {case}, on {}: {}", failure.backend, failure.reason))
    });
    let violations = runs.iter().filter_map(|run| run.violation.as_ref()).map(|violation| {
        let (workload, backend, reason) = (&violation.workload, &violation.backend, &violation.reason);
        Block::Warning(format!("THE LOCK DID NOT EXCLUDE. {workload} on {backend}: {reason}"))
    });
    missing.chain(unfinished).chain(failures).chain(violations).collect()
}
