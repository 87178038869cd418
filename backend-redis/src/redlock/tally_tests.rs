use std::collections::HashSet;

use super::VoteAnswer::{Held, Silent, Vote};
use super::*;

fn install(token: u64, nodes: &[usize]) -> Step {
    Step::Install { token, nodes: nodes.to_vec() }
}

#[test]
fn a_majority_that_agrees_is_granted_without_a_second_phase() {
    let mut tally = Tally::new(3);
    assert_eq!(tally.majority(), 2);
    assert_eq!(tally.vote(0, Vote(5)), Step::Wait);
    assert_eq!(tally.vote(2, Vote(5)), Step::Granted(5));
    assert_eq!(tally.vote(1, Vote(4)), Step::Granted(5), "later answers change nothing");
}

#[test]
fn a_lower_vote_is_raised_to_the_highest_of_the_majority() {
    let mut tally = Tally::new(3);
    tally.vote(0, Vote(5));
    assert_eq!(tally.vote(1, Vote(7)), install(7, &[0]));
    assert_eq!(tally.installed(0, true), Step::Granted(7));
}

#[test]
fn a_vote_that_comes_after_the_token_was_fixed_counts_if_it_can() {
    let mut lower = Tally::new(5);
    for node in 0..2 {
        assert_eq!(lower.vote(node, Vote(5)), Step::Wait);
    }
    assert_eq!(lower.vote(2, Vote(7)), install(7, &[0, 1]));
    assert_eq!(lower.vote(3, Vote(6)), install(7, &[3]), "each node is asked once");
    let mut equal = lower.clone();
    let mut higher = lower.clone();
    lower.installed(0, true);
    assert_eq!(lower.installed(3, true), Step::Granted(7));

    assert_eq!(equal.vote(4, Vote(7)), Step::Wait);
    assert_eq!(equal.installed(1, true), Step::Granted(7));

    assert_eq!(higher.vote(4, Vote(9)), Step::Wait, "the token stays");
    assert_eq!(higher.installed(0, true), Step::Wait);
    assert_eq!(higher.installed(1, true), Step::Granted(7));
}

#[test]
fn a_lock_held_elsewhere_fails_at_once() {
    let mut tally = Tally::new(5);
    tally.vote(0, Held);
    tally.vote(1, Held);
    assert_eq!(tally.vote(2, Held), Step::Failed(Why::Held));
    assert_eq!(tally.held(), 3);

    let mut mixed = Tally::new(5);
    mixed.vote(0, Held);
    mixed.vote(1, Silent);
    mixed.vote(2, Vote(1));
    assert_eq!(
        mixed.vote(3, Silent),
        Step::Failed(Why::Held),
        "three nodes work: without the holder it was won"
    );
}

#[test]
fn too_few_answers_are_no_holder() {
    let mut tally = Tally::new(5);
    tally.vote(0, Silent);
    tally.vote(1, Silent);
    assert_eq!(tally.vote(2, Silent), Step::Failed(Why::TooFewAnswers { silent: 3, nodes: 5 }));
}

#[test]
fn a_token_that_too_few_can_install_fails_at_once() {
    let mut tally = Tally::new(3);
    tally.vote(0, Vote(5));
    tally.vote(1, Vote(7));
    assert_eq!(tally.installed(0, false), Step::Wait, "the third node may still vote");
    assert_eq!(tally.vote(2, Vote(9)), Step::Failed(Why::NotInstalled));
}

#[test]
fn only_the_first_answer_of_a_node_counts() {
    let mut tally = Tally::new(3);
    tally.vote(0, Vote(5));
    assert_eq!(tally.vote(0, Vote(5)), Step::Wait, "one node is no majority");
    assert_eq!(tally.vote(0, Silent), Step::Wait);
    assert_eq!(tally.vote(1, Vote(6)), install(6, &[0]));
    assert_eq!(tally.vote(1, Vote(6)), Step::Wait, "not asked again");
    assert_eq!(tally.installed(2, true), Step::Wait, "it was not asked for phase 2");
    tally.installed(0, false);
    assert_eq!(tally.installed(0, true), Step::Wait);
}

/// A round with what an observer has seen of it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Round {
    tally: Tally,
    answers: [Option<VoteAnswer>; 3],
    asked: [bool; 3],
    raised: [Option<bool>; 3],
    failed: bool,
}

impl Round {
    /// Every round that one more answer leads to, with the step that the tally takes.
    fn next(&self) -> Vec<(Self, Step)> {
        let mut next = Vec::new();
        for node in 0..3 {
            for answer in [Vote(1), Vote(2), Vote(3), Held, Silent] {
                let mut round = self.clone();
                round.answers[node].get_or_insert(answer);
                let step = round.tally.vote(node, answer);
                next.push((round, step));
            }
            for ok in [true, false].into_iter().filter(|_| self.asked[node]) {
                let mut round = self.clone();
                round.raised[node].get_or_insert(ok);
                let step = round.tally.installed(node, ok);
                next.push((round, step));
            }
        }
        next
    }

    fn check(&mut self, step: Step) {
        match step {
            Step::Wait => {
                assert!(!self.failed);
                let open = |node: usize| {
                    self.answers[node].is_none() || self.asked[node] && self.raised[node].is_none()
                };
                assert!((0..3).any(open), "nothing more to come, and no decision");
            }
            Step::Install { token, nodes } => {
                for node in nodes {
                    assert!(!self.asked[node], "asked twice");
                    assert!(matches!(self.answers[node], Some(Vote(number)) if number < token));
                    self.asked[node] = true;
                }
            }
            Step::Granted(token) => {
                assert!(!self.failed, "what failed stays failed");
                let has = |&node: &usize| {
                    self.answers[node] == Some(Vote(token))
                        || self.asked[node] && self.raised[node] == Some(true)
                };
                assert!((0..3).filter(has).count() >= 2, "{token} is not at a majority");
            }
            Step::Failed(_) => self.failed = true,
        }
    }
}

/// Every order of every answer on three nodes, duplicates included.
#[test]
fn granted_means_installed_at_a_majority_and_failed_means_never() {
    let first = Round {
        tally: Tally::new(3),
        answers: [None; 3],
        asked: [false; 3],
        raised: [None; 3],
        failed: false,
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(round) = open.pop() {
        for (mut next, step) in round.next() {
            next.check(step);
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    assert!(seen.len() > 500, "{}", seen.len());
}

/// The model merges states that differ only in the names of the nodes.
#[test]
fn the_names_of_the_nodes_do_not_matter() {
    let order = [2, 0, 1];
    let mut one = Tally::new(3);
    let mut other = one.reordered(&order);
    for (node, answer) in [(2, Vote(3)), (0, Vote(1)), (1, Held)] {
        one.vote(node, answer);
        other.vote((node + 1) % 3, answer);
        assert_eq!(one.reordered(&order), other);
    }
    one.installed(0, true);
    assert_ne!(one.reordered(&order), other);
    assert_eq!(other.installed(1, true), Step::Granted(3));
    assert_eq!(one.reordered(&order), other);
}
