//! Runs whose results are kept in a file.

use std::path::Path;

use futures_util::{Stream, StreamExt};
use testbed::Checkout;

use crate::checker::rules::Findings;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::result::{Counts, Results, RunOutcome, Verdict};
use crate::run::Run;
use crate::scenario::{Expected, Scenario};

/// The results so far, and the folder for those to come.
pub(super) fn open(json: &Path) -> Result<Results> {
    if let Some(folder) = json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Results::read(json)
}

/// Plays one run, with all of its faults or `only` some. Keeps its histories if that is wanted, or if it came
/// otherwise.
pub(super) async fn played(
    scenario: &Scenario,
    kind: Kind,
    seed: u64,
    only: Option<&[usize]>,
    json: &Path,
    keep: Option<&Path>,
) -> Result<RunOutcome> {
    let expected = (scenario.expected)(kind).map_err(Error::failed)?;
    let folder = tempfile::Builder::new().prefix("lockwell-faults-histories-").tempdir()?;
    let run = Run { scenario, kind, seed, only, folder: folder.path() };
    let mut outcome = match run.play(expected).await {
        Ok(outcome) => outcome,
        Err(error) => failure(&run, expected, &error),
    };
    outcome.commit = commit();
    let is_odd = matches!(outcome.verdict, Verdict::Otherwise { .. });
    let beside = is_odd.then(|| json.with_extension("histories"));
    if let Some(keep) = keep.map(Path::to_owned).or(beside) {
        let target = keep.join(format!("{}-{}-{seed}", scenario.name, kind.name()));
        std::fs::create_dir_all(&target)?;
        for file in std::fs::read_dir(folder.path())?.flatten() {
            if file.file_type()?.is_file() {
                std::fs::copy(file.path(), target.join(file.file_name()))?;
            }
        }
    }
    Ok(outcome)
}

fn commit() -> Option<String> {
    let Checkout { commit, has_changes } = Checkout::look();
    Some(commit? + if has_changes? { "+" } else { "" })
}

/// A failure of the machinery itself, which says nothing about the lock.
fn failure(run: &Run<'_>, expected: Expected, error: &Error) -> RunOutcome {
    RunOutcome {
        scenario: run.scenario.name.to_owned(),
        backend: run.kind.name().to_owned(),
        seed: run.seed,
        commit: None,
        expected,
        verdict: Verdict::NotRun { why: error.to_string() },
        seconds: 0.0,
        counts: Counts::default(),
        findings: Findings::default(),
        began: 0,
        happened: Vec::new(),
        excerpt: None,
        shrunk: None,
    }
}

/// What comes next of runs that are made at once.
pub(crate) enum Next {
    Outcome(Box<RunOutcome>),
    End,
    /// Ctrl-C. Leaving drops servers, workers and folders, and every run that is finished is in the file.
    Interrupted,
}

pub(crate) async fn next(outcomes: &mut (impl Stream<Item = Result<RunOutcome>> + Unpin)) -> Result<Next> {
    tokio::select! {
        outcome = outcomes.next() => {
            Ok(outcome.transpose()?.map_or(Next::End, |outcome| Next::Outcome(Box::new(outcome))))
        }
        signal = tokio::signal::ctrl_c() => {
            signal?;
            println!("interrupted; the same command goes on where it was");
            Ok(Next::Interrupted)
        }
    }
}
