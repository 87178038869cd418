//! Locks that are broken on purpose: each must be caught, or the suite proves nothing.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use lockwell::conformance::{Harness, Need, Pace, cases};
use lockwell::{DistributedLock, Locks, Result, async_trait};

use super::broken_lock::{Broken, Defect};
use super::run::{Gate, must_fail};

/// Each defect, a case that must catch it, and words of the complaint.
const CAUGHT: &[(Defect, &str, &str)] = &[
    (Defect::FreesByNameAlone, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::FreesByNameAlone, "a_release_that_is_repeated_is_harmless", "freed the successor"),
    (Defect::FreesByNameAlone, "a_stolen_lock_is_reported_lost", "the lock was lost"),
    (Defect::GrantsTwice, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::GrantsTwice, "a_counter_without_synchronisation_loses_nothing", "no task fails"),
    (Defect::TokenStartsAgainAfterRelease, "tokens_rise_over_a_thousand_holders", "token 1 after"),
    (Defect::TokenStartsAgainAfterRelease, "a_busy_hour_has_a_clean_history", "token"),
    (Defect::TokenStaysTheSame, "tokens_rise_however_a_lock_ends", "token 7 after"),
    (Defect::TokenStaysTheSame, "a_busy_hour_has_a_clean_history", "one token twice"),
    (Defect::BelievesTooLong, "belief_ends_before_the_lease", "renewed: false: believed for"),
    (Defect::BelievesTooLong, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::BelievesTooLongAfterRenewal, "belief_ends_before_the_lease", "renewed: true: believed for"),
    (Defect::ForgetsTheRelease, "run_returns_the_value_and_releases", "run has released the lock"),
    (Defect::ForgetsTheRelease, "a_dropped_guard_frees_the_lock", "after a drop"),
    (Defect::SetsWithoutLookingAgain, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::RenewsTheDead, "an_owner_who_is_late_changes_nothing", "a lease that ran out was renewed"),
    (Defect::RenewsTheDead, "a_stolen_lock_is_reported_lost", "the news of the loss"),
    (Defect::OvertakesTheQueue, "a_newcomer_does_not_overtake_a_waiter", "the newcomer's token"),
    (Defect::LowerTokenWhenAskedAgain, "an_acquire_that_is_repeated_is_granted_again", "a lower token"),
    (Defect::IgnoresCase, "odd_names_are_different_locks", "held under another name"),
    (Defect::KeepsThoseWhoGaveUp, "a_wait_that_ended_leaves_no_trace", "in the queue"),
    (Defect::BelongsToOneRuntime, "the_end_of_a_runtime_costs_the_others_nothing", "the runtime has ended"),
    (Defect::BelongsToOneRuntime, "a_runtime_that_is_not_driven_holds_nobody_up", "an answer: not within"),
    (Defect::ReleasesLater, "close_waits_for_the_releases_under_way", "is held after close"),
    (Defect::ForgetsTheRelease, "close_waits_for_the_releases_under_way", "is held after close"),
    (
        Defect::ForgetsTheRelease,
        "a_guard_dropped_in_a_runtime_that_is_not_driven_is_released",
        "after a drop in a runtime",
    ),
    (
        Defect::ExtendsLittle,
        "an_idle_lock_is_renewed_at_most_six_times_in_its_validity",
        "renewals in three times its validity",
    ),
    (Defect::AnswersForAll, "many_leases_are_renewed_in_one_call", "but the answer is Unknown"),
];

pub(crate) fn trials(gate: &Arc<Gate>) -> Vec<Trial> {
    let each = CAUGHT.iter().map(|&(defect, case, words)| {
        let gate = Arc::clone(gate);
        Trial::test(format!("broken::{defect:?}::is_caught_by::{case}"), move || {
            let _pass = gate.enter(Pace::Free);
            caught(defect, case, words)
        })
    });
    each.collect()
}

fn caught(defect: Defect, case: &str, words: &str) -> Result<(), Failed> {
    let case = cases().iter().find(|one| one.name == case).ok_or("there is no such case")?;
    let complaint = must_fail(case, Arc::new(Workshop(Arc::new(Broken::new(defect)))))?;
    if complaint.contains(words) {
        return Ok(());
    }
    Err(format!("{} failed for another reason: {complaint}", case.name).into())
}

#[derive(Debug)]
struct Workshop(Arc<Broken>);

#[async_trait]
impl Harness for Workshop {
    fn offers(&self) -> Vec<Need> {
        super::memory::offers()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.0) as Arc<dyn DistributedLock>)
    }
}
