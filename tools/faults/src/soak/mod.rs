//! `compare-bench faults soak`: faults drawn at random, over all backends, for a while.
//!
//! What comes otherwise than expected is repeated with fewer and fewer of its faults, and the command is
//! printed that repeats what is left.

mod draw;
pub(super) mod shrink;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

pub(crate) use self::draw::SOAK;
use super::kind::Kind;
use super::result::{Results, RunOutcome, Shrunk, Verdict};
use super::table;
use crate::campaign::{Campaign, Next, open};
use crate::error::{Error, Result};
use crate::made::Origin;
use crate::time::millis;

/// How often a choice of faults is tried before it is taken for harmless.
const TIMES: u64 = 2;

/// So many choices are tried at most.
const CHOICES: usize = 12;

/// For how long, and on what.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SoakArgs {
    /// How long to run. The last round is finished.
    #[arg(long = "for", value_name = "TIME", default_value = "2h")]
    length: humantime::Duration,

    /// The seed of the random rounds. The same seed gives the same rounds.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Test only these backends, separated by commas [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Kind>,

    /// The number of rounds at the same time.
    #[arg(long, value_name = "ROUNDS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    at_once: u8,

    /// The file for the results, to which the rounds are added. Rounds that it already contains are not
    /// repeated, if they are of the same commit and on the same releases of the servers.
    #[arg(long, value_name = "FILE", default_value = "results/faults.json")]
    json: PathBuf,
}

/// One run, and which of its faults.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReplayArgs {
    /// The scenario of the run, or `soak` for a round of `faults soak`.
    #[arg(value_name = "SCENARIO", value_parser = names())]
    scenario: String,

    /// The backend of the run.
    #[arg(long, value_enum)]
    backend: Kind,

    /// The seed of the run. For `soak`: the seed of the round, as the results show it.
    #[arg(long)]
    seed: u64,

    /// Only these faults of the run, by number from 0, separated by commas [default: all]. `none`: no faults.
    #[arg(long, value_name = "NUMBERS")]
    faults: Option<Faults>,

    /// How many times to repeat the run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,

    /// The records of runs with an unexpected outcome are kept next to this file. The file itself is not
    /// written.
    #[arg(long, value_name = "FILE", default_value = "results/replay.json")]
    json: PathBuf,
}

/// Numbers with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Faults(Vec<usize>);

impl std::str::FromStr for Faults {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        text.split(',').map(|number| number.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(if numbers.is_empty() { "none" } else { "" })?;
        f.write_str(&numbers.join(","))
    }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(table::all().map(|scenario| scenario.name).chain([SOAK.name]))
}

/// The rounds of a seed: the backends in turn, each with a seed of its own.
fn rounds(seed: u64, kinds: &[Kind]) -> impl Iterator<Item = (Kind, u64)> {
    // Two soaks with seeds that follow each other share no round. Of a size that JSON keeps in any tool.
    let of_round = move |round: u64| (seed.wrapping_mul(1_000_003).wrapping_add(round)) & ((1 << 53) - 1);
    kinds.iter().copied().cycle().zip((0..).map(of_round))
}

/// The rounds that need not be run again.
fn known(results: &Results, kinds: &[Kind], origin: &Origin) -> Vec<(Kind, u64)> {
    let mut known = Vec::new();
    for &kind in kinds {
        let made = origin.made(&SOAK, kind);
        let seeds = results.outcomes.iter().map(|outcome| outcome.seed);
        let seeds = seeds.filter(|seed| results.has(SOAK.name, kind.name(), *seed, &made));
        known.extend(seeds.map(|seed| (kind, seed)));
    }
    known
}

/// Runs rounds until the time is over, or until it is interrupted.
pub(super) async fn run(args: &SoakArgs) -> Result<ExitCode> {
    let mut results = open(&args.json)?;
    let end = Instant::now() + *args.length;
    let kinds = if args.backend.is_empty() { Kind::ALL.to_vec() } else { args.backend.clone() };
    let origin = Origin::look(kinds.iter().map(|kind| (&SOAK, *kind)));
    let known = known(&results, &kinds, &origin);
    let campaign = Campaign { origin, json: &args.json, keep: None };
    let left = rounds(args.seed, &kinds).filter(|round| !known.contains(round));
    let rounds = stream::iter(left.take_while(|_| Instant::now() < end));
    let rounds = rounds.map(|(kind, seed)| round(&campaign, kind, seed));
    let mut rounds = std::pin::pin!(rounds.buffer_unordered(usize::from(args.at_once)));
    let (mut done, mut odd, mut failed, mut operations) = (0, 0, 0, 0);
    while let Next::Outcome(outcome) = campaign.next(&mut rounds).await? {
        done += 1;
        operations += outcome.counts.operations;
        failed += u64::from(matches!(outcome.verdict, Verdict::NotRun { .. }));
        odd += u64::from(matches!(outcome.verdict, Verdict::Otherwise { .. }));
        println!("{done:>4} seed {} {}", outcome.seed, outcome.line());
        for line in outcome.findings.examples.iter().cloned().chain(found(&outcome)) {
            println!("      {line}");
        }
        results.add(*outcome, &args.json)?;
    }
    println!(
        "soak with seed {}: {done} rounds, {operations} operations, {odd} came otherwise, {failed} not run",
        args.seed
    );
    println!("{}", results.lateness());
    println!("all figures: {}", args.json.display());
    Ok(if odd + failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One round, and what is left of it if it came otherwise.
async fn round(campaign: &Campaign<'_>, kind: Kind, seed: u64) -> Result<RunOutcome> {
    let mut outcome = campaign.played(&SOAK, kind, seed, None).await?;
    if matches!(outcome.verdict, Verdict::Otherwise { .. }) {
        let number = SOAK.schedule(seed, kind, millis(kind.ttl())).len();
        let fails = async |faults: &[usize]| times(campaign, kind, seed, faults).await > 0;
        let faults = shrink::shrink(number, CHOICES, fails).await;
        let seen = times(campaign, kind, seed, &faults).await;
        outcome.shrunk = Some(Shrunk { faults, seen, tried: TIMES });
    }
    Ok(outcome)
}

/// How often of [`TIMES`] it comes otherwise than expected with these faults.
async fn times(campaign: &Campaign<'_>, kind: Kind, seed: u64, faults: &[usize]) -> u64 {
    let mut odd = 0;
    for _ in 0..TIMES {
        let outcome = campaign.played(&SOAK, kind, seed, Some(faults)).await;
        odd += u64::from(outcome.is_ok_and(|outcome| matches!(outcome.verdict, Verdict::Otherwise { .. })));
    }
    odd
}

/// What is left of a round, and the command that repeats it.
fn found(outcome: &RunOutcome) -> Vec<String> {
    let Some(Shrunk { faults, seen, tried }) = &outcome.shrunk else { return Vec::new() };
    let (backend, seed) = (&outcome.backend, outcome.seed);
    let faults = Faults(faults.clone());
    vec![
        format!("of its faults, {faults} suffice: {seen} of {tried} came otherwise again"),
        format!("compare-bench faults replay soak --backend {backend} --seed {seed} --faults {faults}"),
    ]
}

/// Repeats one run.
pub(super) async fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    let scenario = table::all().chain([&SOAK]).find(|scenario| scenario.name == args.scenario);
    let scenario = scenario.ok_or_else(|| Error::failed("there is no such scenario"))?;
    (scenario.expected)(args.backend).map_err(Error::failed)?;
    let only = args.faults.as_ref().map(|faults| &*faults.0);
    for (number, planned) in
        scenario.schedule(args.seed, args.backend, millis(args.backend.ttl())).iter().enumerate()
    {
        let is_left_out = only.is_some_and(|only| !only.contains(&number));
        let mark = if is_left_out { " (left out)" } else { "" };
        println!("{number:>3} at {:>5} ms: {:?}{mark}", planned.at, planned.fault);
    }
    let origin = Origin::look([(scenario, args.backend)]);
    let campaign = Campaign { origin, json: &args.json, keep: None };
    let (mut odd, mut failed) = (0, 0);
    for number in 1..=args.times {
        let outcome = campaign.played(scenario, args.backend, args.seed, only).await?;
        println!("{number:>3} {}", outcome.line());
        odd += u64::from(matches!(outcome.verdict, Verdict::Otherwise { .. }));
        failed += u64::from(matches!(outcome.verdict, Verdict::NotRun { .. }));
    }
    println!("{odd} of {} came otherwise than expected, {failed} could not be run", args.times);
    Ok(if odd + failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::outcome;

    #[test]
    fn choices_of_faults_are_read_and_shown() {
        for text in ["0", "0,2,11", "none"] {
            assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
        }
        assert!("1,x".parse::<Faults>().is_err());
    }

    #[test]
    fn a_round_is_known_on_its_backend_and_of_its_commit() {
        let origin = Origin::of("0123");
        let outcome = RunOutcome {
            scenario: SOAK.name.to_owned(),
            made: origin.made(&SOAK, Kind::Sqlite),
            backend: Kind::Sqlite.name().to_owned(),
            ..outcome(7, Vec::new())
        };
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert_eq!(known(&results, &Kind::ALL, &origin), [(Kind::Sqlite, 7)]);
        assert!(known(&results, &[Kind::Memory], &origin).is_empty());
        for other in ["4567", "0123+"] {
            assert!(known(&results, &Kind::ALL, &Origin::of(other)).is_empty(), "{other}");
        }
    }

    #[test]
    fn rounds_are_the_same_again_and_others_with_another_seed() {
        let some = |seed| rounds(seed, &Kind::ALL).take(500).collect::<Vec<_>>();
        assert_eq!(some(3), some(3));
        assert_eq!(some(3)[..11].iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), Kind::ALL);
        let (three, four) = (some(3), some(4));
        assert!(three.iter().all(|(_, seed)| four.iter().all(|(_, other)| other != seed)));
    }
}
