//! Which defect is found by which case: the self-test runs each pair, and fails when the case passes.

use crate::broken_lock::Defect;
use crate::flawed_lock::Flaw;
use crate::processes::Slip;
use crate::remote_lock::Mistake;
use crate::weak_lock::Weakness;

/// Each defect, a case that must catch it, and words of the complaint. Where several cases find one, all are listed: each
/// is shown to be able to fail.
///
/// What [`Broken`](crate::broken_lock::Broken) proves.
pub(crate) const BROKEN: &[(Defect, &str, &str)] = &[
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
    (Defect::KeepsThoseWhoGaveUp, "an_acquire_of_a_held_lock_can_be_dropped_anywhere", "in the queue"),
    (Defect::KeepsThoseWhoGaveUp, "a_waiter_dropped_in_a_runtime_that_is_not_driven_leaves", "in the queue"),
    (Defect::BelongsToOneRuntime, "the_end_of_a_runtime_frees_its_locks", "the runtime has ended"),
    (
        Defect::ForgetsTheRelease,
        "the_end_of_a_runtime_ends_its_waiting",
        "after the end of the waiter's runtime",
    ),
    (Defect::ForgetsTheRelease, "tasks_may_leave_the_local_queue", ""),
    (Defect::ForgetsTheRelease, "tasks_of_an_owner_share_its_lock", "a task's turn"),
    (Defect::ForgetsTheRelease, "an_upgrade_is_refused", "the readers have gone"),
    (Defect::ForgetsTheRelease, "run_holds_several_locks", "run has released them"),
    (Defect::ForgetsTheRelease, "run_of_an_owner_shares_its_lock", "the last run has released the lock"),
    (Defect::TokenStaysTheSame, "one_claim_stands_for_all_tasks", "token 7 after"),
    (Defect::TokenStaysTheSame, "a_lock_is_passed_on_within_a_client", " after "),
    (Defect::RenewsTheDead, "a_lost_lock_is_not_passed_on", "the next task"),
    (Defect::RenewsTheDead, "the_loss_of_one_of_several_is_told", "the news"),
    (Defect::RenewsTheDead, "an_owner_is_told_of_its_loss", "the news"),
    (Defect::RenewsTheDead, "run_stops_the_work_when_the_lock_is_lost", "the end of the work"),
    (Defect::RenewsTheDead, "work_is_restarted_with_each_term", "a term"),
];

/// What [`Flawed`](crate::flawed_lock::Flawed) proves.
pub(crate) const FLAWED: &[(Flaw, &str, &str)] = &[
    (Flaw::RefusesLate, "try_now_answers_at_once", "it took"),
    (Flaw::NeverRenews, "a_lock_is_kept_for_five_leases", ""),
    (Flaw::NeverRenews, "a_blocked_runtime_keeps_its_locks", ""),
    (Flaw::NeverRenews, "a_panic_in_a_renewal_costs_nothing", ""),
    (Flaw::NeverRenews, "one_lease_in_doubt_costs_the_others_nothing", ""),
    (Flaw::NeverRenews, "a_lock_delay_follows_a_crash_only", ""),
    (Flaw::NeverRenews, "a_guard_outlives_its_runtime", ""),
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
    (Flaw::ReadersAreWriters, "several_locks_are_taken_with_readers", "readers share"),
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

/// What [`Weak`](crate::weak_lock::Weak) proves.
pub(crate) const WEAK: &[(Weakness, &str, &str)] = &[
    (
        Weakness::PromisesAnewWhenAskedAgain,
        "a_repeated_acquire_keeps_its_promise_before_waiters",
        "granted to another",
    ),
    (
        Weakness::PromisesAnewWhenAskedAgain,
        "a_repeated_read_keeps_its_promise_before_writers",
        "granted to another",
    ),
    (
        Weakness::PromisesAnewWhenAskedAgain,
        "a_repeated_permit_keeps_its_promise_before_waiters",
        "granted to another",
    ),
    (Weakness::EndsWaitsEarly, "timeouts_are_punctual", "ended after"),
    (Weakness::EndsWaitsEarly, "a_campaign_ends_with_its_wait", ">= millis(300)"),
    (Weakness::BlocksItsThread, "timeouts_are_punctual", "ended after"),
    (Weakness::LooksSeldom, "a_short_lease_after_a_long_one_ends_in_time", ""),
    (Weakness::LooksSeldom, "a_permit_of_a_dead_holder_comes_back", "followed by the next after"),
    (Weakness::ForeverIsNoWait, "waiting_without_a_limit_gets_there", "in the queue"),
    (Weakness::ListsWritersOnly, "what_is_held_is_listed", "is held, and not among"),
    (Weakness::AllowsAnyTtl, "bad_input_is_refused_before_anything_is_sent", "reached the backend"),
    (Weakness::ReadersOvertake, "a_writer_is_not_starved_by_readers", "a reader overtook a waiting writer"),
    (Weakness::LeasesTooShort, "a_lost_guard_does_not_end_the_lock_delay", "granted again after"),
    (Weakness::LeasesTooShort, "validity_ends_before_the_lease", "valid for"),
    (Weakness::ExcludesNobody, "hand_overs_are_bounded", "nobody else holds it meanwhile"),
    (Weakness::ExcludesNobody, "a_counter_without_synchronisation_loses_nothing", "no task fails"),
    (Weakness::ReservesNothing, "a_configuration_reserves_no_more_tokens_than_the_bound", "none is reserved"),
    (Weakness::OneAtATime, "a_future_that_is_not_polled_holds_nobody_up", "its turn comes"),
    (Weakness::OneAtATime, "a_turn_in_a_runtime_that_is_not_driven_goes_on", "its turn comes"),
    (Weakness::OneAtATime, "a_runtime_that_is_not_driven_holds_nobody_up", "an answer: not within"),
    (Weakness::DeniesTheRelease, "a_task_that_watches_a_lock_ends_with_it", "release of"),
    (Weakness::PurgeForgetsTokens, "tokens_rise_over_a_purge", "token 1 after"),
    (Weakness::PurgeFreesAll, "a_purge_spares_what_is_in_use", "the purge freed a held lock"),
];

/// What [`Remote`](crate::remote_lock::Remote) proves.
pub(crate) const REMOTE: &[(Mistake, &str, &str)] = &[
    (Mistake::AsksThreeTimes, "a_lock_is_kept_over_a_slow_network", "a free lock"),
    (Mistake::RenewsBlindly, "a_stopped_server_does_not_delay_the_news", "not told after"),
    (Mistake::RenewsBlindly, "a_holder_in_a_black_hole_is_told_in_time", "not told after"),
    (Mistake::RenewsBlindly, "a_holder_that_hears_nothing_is_told_in_time", "not told after"),
    (Mistake::RenewsBlindly, "a_holder_that_is_not_heard_is_told_in_time", "not told after"),
    (Mistake::RenewsBlindly, "a_holder_that_is_cut_off_is_told_in_time", "not told after"),
    (Mistake::KeepsAsking, "an_acquire_into_a_black_hole_ends_with_its_wait", "did not become free"),
    (Mistake::KeepsAsking, "an_acquire_whose_reply_never_comes_leaves_nothing", "did not become free"),
    (Mistake::CallsSilenceInternal, "timeouts_are_punctual_in_a_black_hole", "no answer"),
    (Mistake::CallsSilenceInternal, "calls_into_a_black_hole_end", "no answer"),
    (Mistake::WaitsForEver, "calls_into_a_black_hole_end", "not within"),
    (Mistake::CallsResetsLosses, "an_acquire_whose_reply_is_lost_is_cleaned_up", "the connection is lost"),
    (Mistake::CallsResetsLosses, "a_release_whose_reply_is_lost_is_repeated", "the connection is lost"),
    (Mistake::DeniesWhatItRepeats, "a_release_whose_reply_is_lost_is_repeated", "k = 1"),
    (Mistake::DeniesWhatItRepeats, "a_release_whose_reply_is_lost_is_not_called_a_loss", "k = 1"),
    (Mistake::ForgetsLateCopies, "a_late_copy_of_an_acquire_keeps_nobody_out", "after a late copy"),
    (Mistake::NeverReconnects, "a_client_comes_back_after_a_restart", "no retry can help"),
    (Mistake::NeverReconnects, "a_waiter_outlives_a_restart", "the connection has ended"),
    (Mistake::ForgetsAtRestart, "tokens_rise_over_a_restart", "token 1 after"),
    (Mistake::ForgetsAtRestart, "a_lock_survives_a_restart", ""),
    (Mistake::GivesUpInSilence, "a_short_stop_of_the_server_costs_nothing", "its turn comes"),
];

/// What [`Served`](crate::processes::Served) proves.
pub(crate) const SERVED: &[(Slip, &str, &str)] = &[
    (Slip::KeepsTheDead, "a_killed_holder_frees_the_lock_within_its_lease", "after kill -9"),
    (Slip::KeepsTheDead, "a_killed_holder_frees_the_lock_for_a_waiter", "after the kill"),
    (Slip::KeepsTheDead, "a_killed_holder_that_had_waited_frees_the_lock", "after kill -9"),
    (Slip::CountsFromTheQuestion, "a_killed_holder_that_had_waited_frees_the_lock", "expected to say"),
    (Slip::KeepsDeadWaiters, "a_killed_waiter_is_passed_over", "for a waiter that is dead"),
    (Slip::ValidForAnHour, "a_holder_that_was_stopped_knows_that_it_lost", "stale"),
];

/// The cases that no defect proves, and why.
pub(crate) const UNPROVEN: &[(&str, &str)] = &[
    ("every_loss_is_counted", LOCKCORE),
    ("what_is_not_promised_is_refused", LOCKCORE),
    ("run_gives_back_what_was_finished_too_late", LOCKCORE),
    ("a_closed_client_refuses", LOCKCORE),
];

const LOCKCORE: &str = "it tests lockcore: a backend fails it only if nothing works at all";
