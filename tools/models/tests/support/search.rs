//! The search of a model through all of its states.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// Searches all states, and panics if a property does not hold.
pub(crate) fn holds<M>(model: M)
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>,
    M: Send + Sync + 'static,
{
    let began = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states, {depth} steps deep, {:.1} s", began.elapsed().as_secs_f32());
    checker.assert_properties();
}

/// Searches until a property is violated, and returns in how many steps.
pub(crate) fn breaks<M>(model: M, property: &'static str) -> usize
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>,
    M: Debug + Send + Sync + 'static,
{
    let world = format!("{model:?}");
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().finish_when(wanted).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{world}: \"{property}\" always holds"));
    let steps = path.into_actions();
    println!("{world} breaks \"{property}\":");
    for (index, step) in steps.iter().enumerate() {
        println!("{:3}. {step:?}", index + 1);
    }
    steps.len()
}
