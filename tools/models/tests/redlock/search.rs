//! Searching a world, and telling what was found.

use std::collections::HashSet;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::model::Redlock;
use crate::state::{Claim, State};

/// Searches all of it, and expects that every property holds.
pub(crate) fn holds(world: Redlock) {
    search(world).assert_properties();
}

/// The same for one property, where others do not hold.
pub(crate) fn holds_only(world: Redlock, property: &'static str) {
    search(world).assert_no_discovery(property);
}

fn search(world: Redlock) -> impl Checker<Redlock> {
    let began = Instant::now();
    let checker = world.checker().threads(2).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states, {depth} steps deep, {:.1} s", began.elapsed().as_secs_f32());
    checker
}

/// Searches until a property is violated, or "sometimes" has come. Returns the shortest way there, step by
/// step.
pub(crate) fn finds(world: &Redlock, property: &'static str) -> Vec<String> {
    let mut path = look(world, property, usize::MAX).unwrap_or_else(|| panic!("never \"{property}\""));
    // The search stops at the end of a block, not at the first find: a longer way may have replaced a shorter
    // one.
    while let Some(shorter) = look(world, property, path.len()) {
        path = shorter;
    }
    let steps = retell(world, path);
    println!("\"{property}\":");
    for (index, step) in steps.iter().enumerate() {
        println!("{:3}. {step}", index + 1);
    }
    steps
}

/// A path there of fewer than this number of states.
fn look(world: &Redlock, property: &'static str, below: usize) -> Option<Vec<(State, Option<Action>)>> {
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checker = world.clone().checker().finish_when(wanted).target_max_depth(below).spawn_bfs().join();
    checker.discovery(property).map(Path::into_vec)
}

/// The path in words. Where states were merged, claims and nodes changed their places on the way: here they
/// keep the names that they had at the start.
fn retell(world: &Redlock, path: Vec<(State, Option<Action>)>) -> Vec<String> {
    let plain = Redlock { merge: false, ..world.clone() };
    let mut claims: Vec<usize> = (0..world.claims).collect();
    let mut nodes: Vec<usize> = (0..world.nodes).collect();
    let mut steps = Vec::new();
    for (state, action) in path {
        let Some(action) = action else { break };
        steps.push(action.describe(&state, &claims, &nodes));
        if world.merge {
            let next = plain.next_state(&state, action).expect("it was taken");
            let (claims_now, nodes_now) = next.order();
            claims = claims_now.iter().map(|&from| claims[from]).collect();
            nodes = nodes_now.iter().map(|&from| nodes[from]).collect();
        }
    }
    steps
}

/// What became of the claims, without names: of each granted claim its token, its floor, and the tokens of
/// those that had been granted before it began.
pub(crate) type Grants = Vec<(u64, u64, Vec<u64>)>;

/// All that can become of the claims.
pub(crate) fn outcomes(world: &Redlock) -> HashSet<Grants> {
    let mut open = world.init_states();
    let mut seen: HashSet<State> = open.iter().cloned().collect();
    while let Some(state) = open.pop() {
        for next in world.next_states(&state) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen.iter().map(grants).collect()
}

fn grants(state: &State) -> Grants {
    let earlier = |claim: &Claim| {
        let mut tokens: Vec<u64> = claim.after.members().filter_map(|it| state.claims[it].token()).collect();
        tokens.sort_unstable();
        tokens
    };
    let claims = state.claims.iter();
    let mut grants: Grants =
        claims.filter_map(|it| it.token().map(|token| (token, it.floor, earlier(it)))).collect();
    grants.sort_unstable();
    grants
}
