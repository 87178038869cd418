//! Runs whose results are kept in a file.

use std::path::Path;

use futures_util::{Stream, StreamExt};

use crate::checker::rules::Findings;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::made::{Made, Origin};
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

/// What the runs of one call have in common.
#[derive(Debug)]
pub(super) struct Campaign<'a> {
    pub(super) origin: Origin,
    /// The file of the results.
    pub(super) json: &'a Path,
    /// Where the histories of all runs are kept, if they are.
    pub(super) keep: Option<&'a Path>,
}

impl Campaign<'_> {
    /// Plays one run, with all of its faults or `only` some. Keeps its histories if that is wanted, or if it
    /// came otherwise.
    pub(super) async fn played(
        &self,
        scenario: &Scenario,
        kind: Kind,
        seed: u64,
        only: Option<&[usize]>,
    ) -> Result<RunOutcome> {
        let expected = (scenario.expected)(kind).map_err(Error::failed)?;
        let folder = tempfile::Builder::new().prefix("lockwell-faults-histories-").tempdir()?;
        let run = Run { scenario, kind, seed, only, folder: folder.path() };
        let mut outcome = match run.play(expected).await {
            Ok(outcome) => outcome,
            Err(error) => failure(&run, expected, &error),
        };
        outcome.made = self.origin.made(scenario, kind);
        let is_odd = matches!(outcome.verdict, Verdict::Otherwise { .. });
        let beside = is_odd.then(|| self.json.with_extension("histories"));
        if let Some(keep) = self.keep.map(Path::to_owned).or(beside) {
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

    /// The next outcome of runs that are made at once.
    pub(super) async fn next(
        &self,
        outcomes: &mut (impl Stream<Item = Result<RunOutcome>> + Unpin),
    ) -> Result<Next> {
        tokio::select! {
            outcome = outcomes.next() => {
                Ok(outcome.transpose()?.map_or(Next::End, |outcome| Next::Outcome(Box::new(outcome))))
            }
            signal = tokio::signal::ctrl_c() => {
                signal?;
                let next = if self.origin.is_of_commit() {
                    "goes on where it was"
                } else {
                    "begins anew, since this is not the code of a commit"
                };
                println!("interrupted; the same command {next}");
                Ok(Next::Interrupted)
            }
        }
    }
}

/// A failure of the machinery itself, which says nothing about the lock.
fn failure(run: &Run<'_>, expected: Expected, error: &Error) -> RunOutcome {
    RunOutcome {
        scenario: run.scenario.name.to_owned(),
        backend: run.kind.name().to_owned(),
        seed: run.seed,
        made: Made::default(),
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
pub(super) enum Next {
    Outcome(Box<RunOutcome>),
    End,
    /// Ctrl-C. Leaving drops servers, workers and folders, and every run that is finished is in the file.
    Interrupted,
}
