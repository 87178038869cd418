//! Locks that are broken on purpose: each must be caught, or the suite proves nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use lockwell::backend::{DistributedLock, async_trait};
use lockwell::conformance::{Harness, Link, Need, Pace, Server, Way, cases};
use lockwell::{Locks, Result};

use super::broken_lock::{Broken, Defect};
use super::flawed_lock::{Controls, Flaw, Flawed};
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
    (Defect::ValidTooLong, "validity_ends_before_the_lease", "renewed: false: valid for"),
    (Defect::ValidTooLong, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::ValidTooLongAfterRenewal, "validity_ends_before_the_lease", "renewed: true: valid for"),
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
    (Defect::ForgetsTheRelease, "a_guard_that_is_dropped_outside_of_a_runtime_frees_the_lock", ""),
    (Defect::ForgetsTheRelease, "the_end_of_a_runtime_under_an_acquire_leaves_nothing", ""),
    (Defect::ForgetsTheRelease, "an_acquire_of_a_free_lock_can_be_dropped_anywhere", ""),
    (Defect::ForgetsTheRelease, "an_acquire_can_be_dropped_while_the_lock_changes_hands", ""),
    (Defect::ForgetsTheRelease, "a_release_can_be_dropped_anywhere", ""),
    (Defect::ForgetsTheRelease, "a_downgrade_can_be_dropped_anywhere", ""),
    (Defect::ForgetsTheRelease, "several_locks_can_be_dropped_anywhere", ""),
    (Defect::ForgetsTheRelease, "several_locks_are_taken_together", ""),
    (Defect::ForgetsTheRelease, "run_can_be_dropped", ""),
    (Defect::ForgetsTheRelease, "a_hold_ends_with_its_longest_time", ""),
    (Defect::ForgetsTheRelease, "a_lock_without_progress_is_given_up", ""),
    (Defect::ForgetsTheRelease, "one_leads_and_the_next_follows", ""),
    (Defect::ForgetsTheRelease, "an_owner_takes_its_lock_again", ""),
    (Defect::GrantsTwice, "opposite_orders_do_not_deadlock", ""),
    (Defect::GrantsTwice, "a_busy_hour_of_hand_overs_has_a_clean_history", "held at the same time"),
    (Defect::OvertakesTheQueue, "waiters_are_served_in_order_across_clients", ""),
    (Defect::AnswersForAll, "many_leases_are_renewed_in_one_call", "but the answer is Unknown"),
];

/// The same for the flaws of another lock. Where several cases find one, all are listed: each is shown to be able to fail.
const FOUND: &[(Flaw, &str, &str)] = &[
    (Flaw::RefusesLate, "try_now_answers_at_once", "it took"),
    (Flaw::NeverRenews, "a_lock_is_kept_for_five_leases", ""),
    (Flaw::NeverRenews, "a_blocked_runtime_keeps_its_locks", ""),
    (Flaw::NeverRenews, "a_panic_in_a_renewal_costs_nothing", ""),
    (Flaw::NeverRenews, "one_lease_in_doubt_costs_the_others_nothing", ""),
    (Flaw::NeverRenews, "a_lock_delay_follows_a_crash_only", ""),
    (Flaw::RenewsOneByOne, "two_thousand_locks_are_kept", ""),
    (Flaw::CountsNoWaiters, "inspect_tells_the_truth", "in the queue"),
    (Flaw::CutsLabels, "the_bounds_of_what_is_allowed_work", "the label was changed"),
    (Flaw::HeldSinceNow, "renewals_show_in_the_time_left_only", ""),
    (Flaw::WaitsSinceNow, "the_longest_wait_is_shown", ", not "),
    (Flaw::ShowsTheDead, "a_lease_that_ran_out_is_not_shown_as_held", "still shown"),
    (Flaw::CountsOneTooMany, "a_forced_release_counts_the_holders", "never used"),
    (Flaw::FreesOneReaderOfAll, "a_forced_release_frees_all_readers", ""),
    (Flaw::AlwaysReleased, "releases_that_travel_together_are_told_apart", "round 0"),
    (Flaw::AlwaysReleased, "a_release_after_a_theft_says_lost", "the lock was lost"),
    (Flaw::ReadersAreWriters, "readers_meet_and_writers_are_alone", "readers meet"),
    (Flaw::ReadersAreWriters, "readers_move_up_when_a_writer_gives_up", ""),
    (Flaw::OnePermitMore, "permits_are_counted", "a fourth permit of 3"),
    (Flaw::OnePermitMore, "a_busy_hour_of_permits_has_a_clean_history", ""),
    (Flaw::OnePermitMore, "a_permit_that_cannot_be_downgraded_stays", "it was given up"),
    (Flaw::MixesKinds, "a_clash_of_kinds_is_an_error", "the name is in use"),
    (Flaw::ReservesOneToken, "a_claim_reserves_a_block_of_tokens", ""),
    (Flaw::ReadersHaveNoTokens, "tokens_rise_over_modes", "first reader"),
    (Flaw::ReadersHaveNoTokens, "a_busy_hour_of_readers_and_writers_has_a_clean_history", ""),
    (Flaw::ShowsItsOwners, "debug_shows_no_owner", "shows its owner"),
    (Flaw::PromisesNoOrder, "the_harness_offers_what_the_backend_promises", "Fifo: the harness says true"),
    (Flaw::NeverDowngrades, "a_downgraded_lock_is_kept_and_shown", ""),
    (Flaw::NeverDowngrades, "a_downgrade_of_what_is_not_held_is_an_error", "it was taken away"),
    (Flaw::DowngradesWithAGap, "a_writer_becomes_a_reader_without_a_gap", ""),
    (Flaw::PromisesNews, "a_loss_is_told_as_soon_as_promised", "promised by loss_push"),
    (Flaw::PromisesWakeUps, "waiters_are_woken_as_soon_as_promised", "promised is push"),
    (Flaw::PromisesOtherHosts, "what_works_across_hosts_leaves_the_process", "across_hosts is promised"),
    (Flaw::WakesAll, "a_release_wakes_one_waiter_as_promised", "promised is herd_free"),
    (Flaw::ForgetsAtFailover, "a_failover_grants_nothing_twice_as_promised", "was granted twice"),
];

pub(crate) fn trials(gate: &Arc<Gate>) -> Vec<Trial> {
    let broken = CAUGHT.iter().map(|&(defect, case, words)| {
        let make = move |_: &Controls| Arc::new(Broken::new(defect)) as Arc<dyn DistributedLock>;
        trial(gate, &format!("{defect:?}"), make, case, words)
    });
    let flawed = FOUND.iter().map(|&(flaw, case, words)| {
        let make =
            move |controls: &Controls| Arc::new(Flawed::new(flaw, controls)) as Arc<dyn DistributedLock>;
        trial(gate, &format!("{flaw:?}"), make, case, words)
    });
    broken.chain(flawed).collect()
}

fn trial(
    gate: &Arc<Gate>,
    defect: &str,
    make: impl FnOnce(&Controls) -> Arc<dyn DistributedLock> + Send + 'static,
    case: &'static str,
    words: &'static str,
) -> Trial {
    let gate = Arc::clone(gate);
    Trial::test(format!("broken::{defect}::is_caught_by::{case}"), move || {
        let _pass = gate.enter(Pace::Free);
        let controls = Controls::default();
        caught(Workshop { lock: make(&controls), controls }, case, words)
    })
}

fn caught(workshop: Workshop, case: &str, words: &str) -> Result<(), Failed> {
    let case = cases().iter().find(|one| one.name == case).ok_or("there is no such case")?;
    let complaint = must_fail(case, Arc::new(workshop))?;
    if complaint.contains(words) {
        return Ok(());
    }
    Err(format!("{} failed for another reason: {complaint}", case.name).into())
}

#[derive(Clone, Debug)]
struct Workshop {
    lock: Arc<dyn DistributedLock>,
    controls: Controls,
}

#[async_trait]
impl Harness for Workshop {
    fn offers(&self) -> Vec<Need> {
        super::memory::offers()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.lock))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        Some(Box::new(self.clone()))
    }
}

/// What no case does to a lock that is broken on purpose.
const NOT_HERE: &str = "this server lives in the process, without a network";

#[async_trait]
impl Server for Workshop {
    async fn pause(&self) {
        panic!("{NOT_HERE}");
    }

    async fn resume(&self) {
        self.controls.failed_over.store(false, Ordering::SeqCst);
    }

    async fn restart(&self) {
        panic!("{NOT_HERE}");
    }

    async fn fail_over(&self) {
        self.controls.failed_over.store(true, Ordering::SeqCst);
    }
}

/// It counts requests, and is no network otherwise.
#[async_trait]
impl Link for Workshop {
    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.lock))
    }

    fn blackhole(&self, _: Way) {
        panic!("{NOT_HERE}");
    }

    fn cut(&self) {
        panic!("{NOT_HERE}");
    }

    fn delay(&self, _: Duration) {
        panic!("{NOT_HERE}");
    }

    fn drop_reply(&self, _: u64) {
        panic!("{NOT_HERE}");
    }

    fn requests(&self) -> u64 {
        self.controls.requests.load(Ordering::SeqCst)
    }

    fn dropped_replies(&self) -> u64 {
        panic!("{NOT_HERE}");
    }

    fn hold_back(&self) {
        panic!("{NOT_HERE}");
    }

    async fn deliver(&self) -> u64 {
        panic!("{NOT_HERE}");
    }

    fn heal(&self) {}
}
