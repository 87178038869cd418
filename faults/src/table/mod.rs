//! The scenarios.

mod data;
mod network;
mod processes;
mod servers;

use super::habit::Habit;
use super::kind::{Kind, Memory, Setup};
use super::scenario::{Crew, Expected, Scenario};

use Expected::{MayOverlap, Safe, Unavailable};

type Outcome = Result<Expected, &'static str>;

const NO_PROCESS: &str = "its workers are tasks of one process";
const NO_SERVER: &str = "there is no server";
const NO_LINE: &str = "clients find the servers by themselves, past anything in between";
const NO_CLOCK: &str = "the servers of such a group cannot be given clocks of their own here";
const NOT_REDIS: &str = "there is no such command";
const NOT_SQL: &str = "there are no rows that others could lock";
const NOT_SQLITE: &str = "there is no file that others could open";
const ONE_NODE: &str = "there are no other servers";
const NOT_CLUSTER: &str = "it has no slots, and no cluster of it is started here";
const NO_LEADER: &str = "no server leads";

fn safe_in_processes(kind: Kind) -> Outcome {
    if kind == Kind::Memory { Err(NO_PROCESS) } else { Ok(Safe) }
}

/// Behind sentinels another server may take over, which need not know the last grants.
fn or_moved(kind: Kind, otherwise: Expected) -> Outcome {
    match kind {
        Kind::Sentinel => Ok(MayOverlap),
        _ if kind.has_server() => Ok(otherwise),
        _ => Err(NO_SERVER),
    }
}

fn safe_or_moved(kind: Kind) -> Outcome {
    or_moved(kind, Safe)
}

fn told_or_moved(kind: Kind) -> Outcome {
    or_moved(kind, Unavailable)
}

/// Several nodes of which one is in trouble are safe and available; one that is alone is not available.
fn told_if_alone(kind: Kind) -> Outcome {
    or_moved(kind, if kind.is_alone() { Unavailable } else { Safe })
}

fn safe_with_server(kind: Kind) -> Outcome {
    if kind.has_server() { Ok(Safe) } else { Err(NO_SERVER) }
}

fn on_line(kind: Kind, expected: Expected) -> Outcome {
    match kind {
        _ if kind.has_lines() => Ok(expected),
        Kind::Sentinel => Err(NO_LINE),
        _ => Err(NO_SERVER),
    }
}

fn safe_on_line(kind: Kind) -> Outcome {
    on_line(kind, Safe)
}

fn told_on_line(kind: Kind) -> Outcome {
    on_line(kind, Unavailable)
}

/// Of three servers.
fn safe_of_three(kind: Kind) -> Outcome {
    if kind.nodes() == 3 { Ok(Safe) } else { Err(ONE_NODE) }
}

const QUICK: Scenario = Scenario {
    name: "",
    about: "",
    crew: Crew::USUAL,
    memory: Memory::Keeps,
    setup: Setup::Usual,
    is_quick: true,
    draw: |_| (),
    expected: |_| Ok(Safe),
};

const LONG: Scenario = Scenario { is_quick: false, ..QUICK };

/// Holders for whom faults matter: they hold for more than a lease.
const HOLDERS: Crew = Crew { long: (60, 150), ..Crew::USUAL };

/// All scenarios: what happens to processes, to the network, to servers, and to what servers keep.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    [processes::ALL, network::ALL, servers::ALL, data::ALL].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_schedule() {
        for scenario in all() {
            for kind in Kind::ALL {
                let draw = |seed| scenario.schedule(seed, kind, 1500);
                assert_eq!(draw(7), draw(7), "{}", scenario.name);
                // Where only the server is drawn, two seeds may agree.
                let is_drawn = (8..30).any(|seed| draw(7) != draw(seed));
                assert!(draw(7).is_empty() || is_drawn, "{}", scenario.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_every_scenario_has_a_backend() {
        let mut names: Vec<_> = all().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for scenario in all() {
            assert!(Kind::ALL.into_iter().any(|kind| (scenario.expected)(kind).is_ok()), "{}", scenario.name);
        }
    }

    /// The table of docs/guarantees.md has the same rows, and says the same of each backend.
    #[test]
    fn the_documentation_has_the_same_table() {
        let text = include_str!("../../../docs/guarantees.md");
        let lines = text.lines().skip_while(|line| !line.starts_with("| scenario |")).skip(2);
        let rows: Vec<Vec<&str>> = lines
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let expected: Vec<Vec<String>> = all()
            .map(|scenario| {
                let cells = Kind::ALL.map(|kind| match (scenario.expected)(kind) {
                    Ok(expected) => expected.word().to_owned(),
                    Err(_) => String::new(),
                });
                std::iter::once(format!("`{}`", scenario.name)).chain(cells).collect()
            })
            .collect();
        for (row, expected) in rows.iter().zip(&expected) {
            // Behind the word: `?` where it was not run, and how often it came so where that was not always.
            let words: Vec<&str> = row
                .iter()
                .map(|cell| cell.split(' ').next().unwrap_or_default().trim_end_matches('?'))
                .collect();
            assert_eq!(words, *expected);
        }
        assert_eq!(rows.len(), expected.len());
    }
}
