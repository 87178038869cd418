//! `compare-bench faults`: what each backend survives, by experiment.
//!
//! A [`scenario`] has workers, which are processes that take locks and note until when they considered themselves the holders, and a
//! [`schedule`] of faults, drawn from a seed. The [`checker`] reads the histories afterwards, and two [`witness`]es outside
//! the library say what was lost. The [`result`] is compared with what is expected of the backend.

#[cfg(test)]
mod broken;
mod checker;
mod ground;
mod habit;
mod history;
mod play;
mod result;
mod scenario;
mod schedule;
mod strangers;
mod strike;
mod table;
mod witness;
mod work;
pub(crate) mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;

use self::ground::Kind;
use self::play::Run;
use self::result::{Outcome, Results, Verdict};
use self::scenario::Scenario;
use crate::error::{Error, Result};
use crate::measure::history::nanos;

/// What is run, and on what.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FaultsArgs {
    /// The scenarios [default: all].
    #[arg(value_name = "SCENARIO", value_parser = names())]
    scenarios: Vec<String>,

    /// Only these backends.
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Kind>,

    /// Only the quick set, which takes at most eight minutes, on one backend of each kind if none is given.
    #[arg(long, conflicts_with = "scenarios")]
    quick: bool,

    /// What the faults are drawn from. The same seed draws the same schedule, not the same outcome.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Run each so often, with seeds that follow.
    #[arg(long, default_value_t = 1)]
    repeat: u64,

    /// The file of the results. Runs that it has already are not repeated.
    #[arg(long, value_name = "FILE", default_value = "results/faults.json")]
    json: PathBuf,

    /// Keep the histories of all runs in this folder. Those of runs that end otherwise than expected are kept anyway, beside
    /// the file of the results.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,

    /// List scenarios with what is expected, and end.
    #[arg(long)]
    list: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(table::ALL.iter().map(|scenario| scenario.name))
}

/// Runs them.
pub(crate) async fn run(args: &FaultsArgs) -> Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = args.json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut results = Results::read(&args.json)?;
    let runs = args.runs();
    for (number, (scenario, kind, seed)) in runs.iter().enumerate() {
        if results.has(scenario.name, kind.name(), *seed) {
            continue;
        }
        let outcome = args.play(scenario, *kind, *seed).await?;
        println!("{:>3} of {} {}", number + 1, runs.len(), outcome.line());
        for example in &outcome.findings.examples {
            println!("      {example}");
        }
        results.add(outcome, &args.json)?;
    }
    println!("{}", results.table());
    println!("all figures: {}", args.json.display());
    Ok(if results.are_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl FaultsArgs {
    /// Every run, by scenario and then by backend.
    fn runs(&self) -> Vec<(&'static Scenario, Kind, u64)> {
        let is_chosen = |scenario: &&Scenario| {
            let by_name =
                self.scenarios.is_empty() || self.scenarios.iter().any(|name| name == scenario.name);
            by_name && (!self.quick || scenario.is_quick)
        };
        let mut runs = Vec::new();
        for scenario in table::ALL.iter().filter(is_chosen) {
            let is_usual = |kind: &Kind| !self.quick || Kind::QUICK.contains(kind);
            let is_wanted = |kind: &Kind| {
                if self.backend.is_empty() { is_usual(kind) } else { self.backend.contains(kind) }
            };
            for kind in Kind::ALL.into_iter().filter(is_wanted) {
                if (scenario.expected)(kind).is_ok() {
                    runs.extend((0..self.repeat).map(|turn| (scenario, kind, self.seed + turn)));
                }
            }
        }
        runs
    }

    async fn play(&self, scenario: &Scenario, kind: Kind, seed: u64) -> Result<Outcome> {
        let expected = (scenario.expected)(kind).map_err(Error::failed)?;
        let folder = tempfile::Builder::new().prefix("lockwell-faults-histories-").tempdir()?;
        let run = Run { scenario, kind, seed, folder: folder.path() };
        let outcome = match run.play(expected).await {
            Ok(outcome) => outcome,
            Err(error) => play::failure(&run, expected, &error),
        };
        let is_odd = matches!(outcome.verdict, Verdict::Otherwise { .. });
        let beside = is_odd.then(|| self.json.with_extension("histories"));
        if let Some(keep) = self.keep.clone().or(beside) {
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
}

fn list() {
    for scenario in table::ALL {
        let quick = if scenario.is_quick { " (quick)" } else { "" };
        println!("{}{quick}: {}", scenario.name, scenario.about);
        for kind in Kind::ALL {
            match (scenario.expected)(kind) {
                Ok(expected) => println!("    {:<11} {}", kind.name(), expected.words()),
                Err(why) => println!("    {:<11} not run: {why}", kind.name()),
            }
        }
    }
}
