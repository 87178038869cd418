//! What each backend survives, by experiment: the command `compare-bench faults`.
//!
//! A `scenario` has workers, which are processes that take locks and note until when they considered
//! themselves the holders, and a `schedule` of faults, drawn from a seed. The `checker` reads the
//! histories afterwards, and two `witness`es outside the library say what was lost. The `result` is
//! compared with what is expected of the backend.

#[cfg(test)]
mod broken;
mod campaign;
mod checker;
mod clocks;
mod ends;
mod error;
mod excerpt;
mod history;
mod inject;
mod judge;
mod kind;
mod made;
mod misuse;
mod plan;
mod play;
mod result;
mod run;
mod scenario;
mod schedule;
mod servers;
mod soak;
mod strangers;
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
use crate::campaign::{Campaign, Next, open};
use crate::error::Result;
use crate::made::Origin;

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
#[command(args_conflicts_with_subcommands = true)]
pub struct FaultsArgs {
    #[command(subcommand)]
    command: Option<FaultsCommand>,

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

    /// The file for the results. Runs that it already contains are not repeated, if they are of the same
    /// commit, with holds of the same length and on the same releases of the servers. Otherwise they are run
    /// again, and the new result takes the place of the old one.
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

#[derive(Clone, Debug, clap::Subcommand)]
enum FaultsCommand {
    /// Run random faults for a time. If an outcome is unexpected, find the few faults that cause it.
    Soak(soak::SoakArgs),
    /// Repeat one run several times, with all or some of its faults, and count the unexpected outcomes.
    Replay(soak::ReplayArgs),
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(table::all().map(|scenario| scenario.name))
}

/// Runs them.
pub async fn run(args: &FaultsArgs) -> Result<ExitCode> {
    match &args.command {
        Some(FaultsCommand::Soak(soak)) => return soak::run(soak).await,
        Some(FaultsCommand::Replay(replay)) => return soak::replay(replay).await,
        None => (),
    }
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let mut results = open(&args.json)?;
    let (chosen, mut done) = (args.runs(), 0);
    let origin = Origin::look(chosen.iter().map(|(scenario, kind, _)| (scenario, *kind)));
    let campaign = Campaign { origin, json: &args.json, keep: args.keep.as_deref() };
    let is_new = |(scenario, kind, seed): &&(Scenario, Kind, u64)| {
        !results.has(scenario.name, kind.name(), *seed, &campaign.origin.made(scenario, *kind))
    };
    let left: Vec<_> = chosen.iter().filter(is_new).collect();
    let is_known = |(scenario, kind, seed): &&&(Scenario, Kind, u64)| {
        results.done(scenario.name, kind.name(), *seed).is_some()
    };
    let again = left.iter().filter(is_known).count();
    if again > 0 {
        println!(
            "{again} runs of the file are not of this commit, these servers and holds, and are run again"
        );
    }
    let plays =
        stream::iter(left).map(|(scenario, kind, seed)| campaign.played(scenario, *kind, *seed, None));
    let mut plays = std::pin::pin!(plays.buffer_unordered(usize::from(args.at_once)));
    loop {
        let outcome = match campaign.next(&mut plays).await? {
            Next::Outcome(outcome) => outcome,
            Next::End => break,
            Next::Interrupted => return Ok(ExitCode::from(130)),
        };
        done += 1;
        println!("{done:>3} {}", outcome.line());
        for example in &outcome.findings.examples {
            println!("      {example}");
        }
        results.add(*outcome, &args.json)?;
    }
    println!("{}", results.table());
    println!("{}", results.lateness());
    println!("all figures: {}", args.json.display());
    // Runs of other seeds and scenarios in the file are not what was asked for.
    let asked = |(scenario, kind, seed): &(Scenario, Kind, u64)| {
        results.is_well(scenario.name, kind.name(), *seed, &campaign.origin.made(scenario, *kind))
    };
    Ok(if chosen.iter().all(asked) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl FaultsArgs {
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
                if (scenario.expected)(kind).is_ok() {
                    runs.extend((0..self.repeat).map(|turn| (scenario, kind, self.seed + turn)));
                }
            }
        }
        runs
    }
}

/// What happens in a scenario, in one sentence.
pub fn about(scenario: &str) -> Option<&'static str> {
    let mut all = std::iter::once(&soak::SOAK).chain(table::all());
    all.find(|it| it.name == scenario).map(|it| it.about)
}

fn list() {
    for scenario in table::all() {
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
