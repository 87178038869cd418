//! What each backend survives, by experiment: the command `compare-bench faults`.
//!
//! A `scenario` has workers, which are processes that take locks and note until when they considered
//! themselves the holders, and a `schedule` of faults, drawn from a seed. The `checker` reads the
//! histories afterwards, and two `witness`es outside the library say what was lost. The `result` is
//! compared with what is expected of the backend. The hosts of `jobs` run jobs once for a key instead, and
//! note their attempts.

#[cfg(test)]
mod broken;
mod checker;
mod clocks;
mod ends;
mod error;
mod excerpt;
mod history;
mod inject;
mod jobs;
mod judge;
mod kind;
mod made;
mod plan;
mod play;
mod post;
mod result;
mod run;
mod scenario;
mod schedule;
mod servers;
mod table;
mod time;
mod witness;
mod work;
pub mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use futures_util::{StreamExt, stream};

use self::scenario::Scenario;
use crate::checker::rules::Findings;
use crate::error::Result;
use crate::made::Origin;
use crate::result::Counts;
use crate::run::Run;

pub use self::error::Error;
pub use self::excerpt::{Excerpt, HeldSpan};
pub use self::inject::Happened;
pub use self::kind::Kind;
pub use self::made::Made;
pub use self::result::{Results, RunOutcome, SCHEMA, Verdict};
pub use self::schedule::FaultTarget;
pub use self::time::nanos;

/// For how long locks are held at most in the quick set, in microseconds.
const QUICK_HOLD: u64 = 30_000;

/// What is run, and on what.
#[derive(Clone, Debug, clap::Args)]
pub struct FaultsArgs {
    /// The scenarios to run [default: all]. `--list` describes them.
    #[arg(value_name = "SCENARIO", value_parser = names())]
    scenarios: Vec<String>,

    /// Test only these backends, separated by commas [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Kind>,

    /// Run only a short list of scenarios, at most eight minutes, on one backend of each kind if `--backend`
    /// is not given. Locks are held for up to 30 ms instead of 1 ms, so that several runs at a time do not
    /// keep a small machine busy.
    #[arg(long, conflicts_with = "scenarios")]
    quick: bool,

    /// The seed of the random times of the faults. The same seed gives the same schedule, but not always the
    /// same outcome.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Run each scenario this many times, with increasing seeds.
    #[arg(long, default_value_t = 1)]
    repeat: u64,

    /// The number of runs at the same time.
    #[arg(long, value_name = "RUNS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    at_once: u8,

    /// The file for the results. They are added as the runs end; one of the same run takes the place of the
    /// old one.
    #[arg(long, value_name = "FILE", default_value = "results/faults.json")]
    json: PathBuf,

    /// Keep the records of all runs in this folder. The records of runs with an unexpected outcome are always
    /// kept, next to the file for the results.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,

    /// List the scenarios with their expected outcomes, and end.
    #[arg(long)]
    list: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(table::all().map(|scenario| scenario.name))
}

/// Runs them.
pub async fn run(args: &FaultsArgs) -> Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = args.json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut results = Results::read(&args.json)?;
    let (chosen, mut done, mut well) = (args.runs(), 0, 0);
    let origin = Origin::look(chosen.iter().map(|(_, kind, _)| *kind));
    let plays =
        stream::iter(&chosen).map(|(scenario, kind, seed)| args.played(&origin, scenario, *kind, *seed));
    let mut plays = std::pin::pin!(plays.buffer_unordered(usize::from(args.at_once)));
    loop {
        let next = tokio::select! {
            outcome = plays.next() => outcome.transpose()?,
            // Leaving drops servers, workers and folders. Every run that is finished is in the file.
            signal = tokio::signal::ctrl_c() => return signal.map(|()| ExitCode::from(130)).map_err(Error::from),
        };
        let Some(outcome) = next else { break };
        done += 1;
        well += usize::from(outcome.verdict == Verdict::AsExpected);
        println!("{done:>3} {}", outcome.line());
        for example in &outcome.findings.examples {
            println!("      {example}");
        }
        results.add(outcome, &args.json)?;
    }
    println!("{well} of {} came as expected", chosen.len());
    println!("{}", results.lateness());
    println!("all figures: {}", args.json.display());
    Ok(if well == chosen.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl FaultsArgs {
    /// Plays one run. Keeps its histories if that is wanted, or if it came otherwise.
    async fn played(
        &self,
        origin: &Origin,
        scenario: &Scenario,
        kind: Kind,
        seed: u64,
    ) -> Result<RunOutcome> {
        let nothing = || Error::failed(format!("{} has no {}", kind.name(), scenario.name));
        let expected = (scenario.expected)(kind).ok_or_else(nothing)?;
        let folder = tempfile::Builder::new().prefix("lockwell-faults-histories-").tempdir()?;
        let run = Run { scenario, kind, seed, folder: folder.path() };
        // A failure of the machinery itself says nothing about the lock.
        let failure = |error: Error| RunOutcome {
            scenario: scenario.name.to_owned(),
            backend: kind.name().to_owned(),
            seed,
            made: Made::default(),
            expected,
            verdict: Verdict::NotRun { why: error.to_string() },
            seconds: 0.0,
            counts: Counts::default(),
            findings: Findings::default(),
            began: 0,
            happened: Vec::new(),
            excerpt: None,
        };
        let mut outcome = run.play(expected).await.unwrap_or_else(failure);
        outcome.made = origin.made(scenario, kind);
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

    /// Every run, by scenario and then by backend.
    fn runs(&self) -> Vec<(Scenario, Kind, u64)> {
        let is_chosen = |scenario: &&Scenario| {
            let by_name =
                self.scenarios.is_empty() || self.scenarios.iter().any(|name| name == scenario.name);
            by_name && (!self.quick || scenario.is_quick)
        };
        let mut runs = Vec::new();
        for mut scenario in table::all().filter(is_chosen).copied() {
            if self.quick {
                scenario.crew.hold = scenario.crew.hold.max(QUICK_HOLD);
            }
            let is_usual = |kind: &Kind| !self.quick || Kind::QUICK.contains(kind);
            let is_wanted = |kind: &Kind| {
                if self.backend.is_empty() { is_usual(kind) } else { self.backend.contains(kind) }
            };
            for kind in Kind::ALL.into_iter().filter(is_wanted) {
                if (scenario.expected)(kind).is_some() {
                    runs.extend((0..self.repeat).map(|turn| (scenario, kind, self.seed + turn)));
                }
            }
        }
        runs
    }
}

/// What happens in a scenario, in one sentence.
pub fn about(scenario: &str) -> Option<&'static str> {
    table::all().find(|it| it.name == scenario).map(|it| it.about)
}

fn list() {
    for scenario in table::all() {
        let quick = if scenario.is_quick { " (quick)" } else { "" };
        println!("{}{quick}: {}", scenario.name, scenario.about);
        for kind in Kind::ALL {
            if let Some(expected) = (scenario.expected)(kind) {
                println!("    {:<11} {}", kind.name(), expected.words());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FaultsArgs,
    }

    #[test]
    fn the_quick_set_is_short_and_holds_for_longer() {
        let runs = |line: &[&str]| Line::parse_from(line).args.runs();
        let (quick, all) = (runs(&["faults", "--quick"]), runs(&["faults"]));
        assert!((10..all.len() / 10).contains(&quick.len()), "{} of {}", quick.len(), all.len());
        for (scenario, kind, seed) in quick {
            assert!(scenario.is_quick && Kind::QUICK.contains(&kind) && seed == 1, "{scenario:?}");
            assert!(scenario.crew.hold >= QUICK_HOLD, "{scenario:?}");
        }
        assert!(all.iter().any(|(scenario, ..)| scenario.crew.hold < QUICK_HOLD));
    }
}
