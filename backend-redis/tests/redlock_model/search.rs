//! Searching a world, and telling what was found.

use std::fmt::Write;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::model::Redlock;

/// Searches all of it, and expects that every property holds. Returns the number of different states.
pub(crate) fn holds(world: Redlock) -> usize {
    let began = Instant::now();
    let checker = world.checker().threads(2).spawn_bfs().join();
    let (states, seconds) = (checker.unique_state_count(), began.elapsed().as_secs_f32());
    println!("{states} states, {} steps deep, {seconds:.1} s", checker.max_depth());
    checker.assert_properties();
    states
}

/// The same for one property, where others do not hold.
pub(crate) fn holds_only(world: Redlock, property: &'static str) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!("{} states, {} steps deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_no_discovery(property);
}

/// Searches until a property is violated. Returns the shortest way there, one step in each line.
pub(crate) fn breaks(world: Redlock, property: &'static str) -> Vec<String> {
    let world = Redlock { merge: false, ..world };
    let checker = world.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    let Some(path) = checker.discovery(property) else {
        panic!("no violation of \"{property}\" in {} states", checker.unique_state_count());
    };
    let steps: Vec<String> = path.into_actions().iter().map(ToString::to_string).collect();
    let mut text = format!("\"{property}\", after {} states:\n", checker.unique_state_count());
    for (index, step) in steps.iter().enumerate() {
        writeln!(text, "{:3}. {step}", index + 1).expect("a string takes everything");
    }
    println!("{text}");
    steps
}
