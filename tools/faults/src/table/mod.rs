//! The scenarios.

mod data;
mod expected;
mod grace;
mod network;
mod processes;
mod servers;
pub(crate) mod soak;

use crate::scenario::Scenario;

/// All scenarios: what happens to processes, to the network, to servers, and to what servers keep; and at
/// last anything.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    let soak = std::slice::from_ref(&soak::SOAK);
    [processes::ALL, network::ALL, servers::ALL, data::ALL, grace::ALL, soak].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

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
            assert!(
                Kind::ALL.into_iter().any(|kind| (scenario.expected)(kind).is_some()),
                "{}",
                scenario.name
            );
        }
    }

    /// The table of docs/guarantees.md has the same rows, and says the same of each backend. What is safe
    /// everywhere may be in the list in front of it.
    #[test]
    fn the_documentation_has_the_same_table() {
        let text = include_str!("../../../../docs/guarantees.md");
        let (_, safe) = text.split_once("The outcome of these scenarios is *safe*").expect("a list");
        let (safe, _) = safe.split_once("\n\n").expect("the end of the list");
        let safe: Vec<&str> = safe.split('`').skip(1).step_by(2).collect();
        let lines = text.lines().skip_while(|line| !line.starts_with("| scenario |")).skip(2);
        let rows: Vec<Vec<&str>> = lines
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let expected: Vec<Vec<String>> = all()
            .map(|scenario| {
                let cells = Kind::ALL.map(|kind| {
                    (scenario.expected)(kind).map_or_else(String::new, |expected| expected.word().to_owned())
                });
                std::iter::once(format!("`{}`", scenario.name)).chain(cells).collect()
            })
            .collect();
        let (listed, expected): (Vec<_>, Vec<_>) =
            expected.into_iter().partition(|row| safe.contains(&row[0].trim_matches('`')));
        assert_eq!(listed.len(), safe.len(), "{safe:?}");
        for row in &listed {
            assert!(row[1..].iter().all(|cell| cell.is_empty() || cell == "safe"), "{row:?}");
        }
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
