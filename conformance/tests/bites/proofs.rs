//! Which defect is found by which case: the self-test runs each pair, and fails when the case passes.

use crate::defect::Defect;

/// Each defect, a case that must catch it, and words of the complaint. Where several cases find one, all are
/// listed: each is shown to be able to fail.
///
/// What [`Broken`](crate::broken_lock::Broken) proves.
pub(crate) const BROKEN: &[(Defect, &str, &str)] = &[
    (Defect::FreesByNameAlone, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::FreesByNameAlone, "a_release_that_is_repeated_is_harmless", "freed the successor"),
    (Defect::FreesByNameAlone, "a_stolen_lock_is_reported_lost", "freed the new one's lock"),
    (Defect::GrantsTwice, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::GrantsTwice, "a_counter_without_synchronisation_loses_nothing", "no task fails"),
    (Defect::TokenStartsAgainAfterRelease, "tokens_rise_over_a_thousand_holders", "token 1 after"),
    (Defect::TokenStartsAgainAfterRelease, "a_busy_hour_has_a_clean_history", "token"),
    (Defect::TokenStaysTheSame, "tokens_rise_however_a_lock_ends", "token 7 after"),
    (Defect::TokenStaysTheSame, "a_busy_hour_has_a_clean_history", "one token twice"),
    (Defect::ValidTooLong, "validity_ends_before_the_lease", "renewed: false: valid for"),
    (Defect::ValidTooLong, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::ValidTooLongAfterRenewal, "validity_ends_before_the_lease", "renewed: true: valid for"),
    (Defect::ReleasesLater, "run_returns_the_value_and_releases", "run has released the lock"),
    (Defect::SetsWithoutLookingAgain, "a_busy_hour_has_a_clean_history", "held at the same time"),
    (Defect::RenewsTheDead, "an_owner_who_is_late_changes_nothing", "a lease that ran out was renewed"),
    (Defect::RenewsTheDead, "a_stolen_lock_is_reported_lost", "the news of the loss"),
    (Defect::OvertakesTheQueue, "a_newcomer_does_not_overtake_a_waiter", "the newcomer's token"),
    (Defect::LowerTokenWhenAskedAgain, "an_acquire_that_is_repeated_is_granted_again", "a lower token"),
    (Defect::IgnoresCase, "odd_names_are_different_locks", "held under another name"),
    (Defect::KeepsWaitersThatLeft, "a_wait_that_ended_leaves_no_trace", "in the queue"),
    (Defect::KeepsWaitersThatLeft, "close_ends_requests_that_wait", "in the queue"),
    (Defect::BelongsToOneRuntime, "the_end_of_a_runtime_costs_the_others_nothing", "the runtime has ended"),
    (Defect::BelongsToOneRuntime, "a_runtime_that_is_not_driven_blocks_no_other", "an answer: not within"),
    (Defect::ReleasesLater, "close_waits_for_the_releases_under_way", "is held after close"),
    (Defect::ForgetsTheRelease, "close_waits_for_the_releases_under_way", "is held after close"),
    (
        Defect::ExtendsLittle,
        "an_idle_lock_is_renewed_at_most_six_times_in_its_validity",
        "renewals in three times its validity",
    ),
    (Defect::GrantsTwice, "opposite_orders_do_not_deadlock", "two hold"),
    (Defect::GrantsTwice, "a_busy_hour_of_hand_overs_has_a_clean_history", "held at the same time"),
    (Defect::OvertakesTheQueue, "waiters_are_served_in_order_across_clients", "served in the order"),
    (Defect::AnswersForAll, "many_leases_are_renewed_in_one_call", "but the answer is Unknown"),
    (Defect::KeepsWaitersThatLeft, "an_acquire_of_a_held_lock_can_be_dropped_anywhere", "in the queue"),
    (Defect::KeepsWaitersThatLeft, "a_waiter_dropped_in_a_runtime_that_is_not_driven_leaves", "in the queue"),
    (Defect::BelongsToOneRuntime, "the_end_of_a_runtime_frees_its_locks", "the runtime has ended"),
    (Defect::ReleasesLater, "run_holds_several_locks", "run has released them"),
    (Defect::ReleasesLater, "run_of_an_owner_shares_its_lock", "the last run has released the lock"),
    (Defect::TokenStaysTheSame, "one_claim_serves_all_tasks", " after "),
    (Defect::TokenStaysTheSame, "a_lock_is_passed_on_within_a_client", " after "),
    (Defect::RenewsTheDead, "a_lost_lock_is_not_passed_on", "the next task"),
    (Defect::LosesAllOrNone, "the_loss_of_one_of_several_is_reported", "the news"),
    (Defect::RenewsTheDead, "an_owner_learns_of_its_loss", "the news"),
    (Defect::RenewsTheDead, "run_stops_the_work_when_the_lock_is_lost", "the end of the work"),
    (Defect::RenewsTheDead, "work_is_restarted_with_each_term", "a term"),
];

/// What [`Flawed`](crate::flawed_lock::Flawed) proves.
pub(crate) const FLAWED: &[(Defect, &str, &str)] = &[
    (Defect::RefusesLate, "try_now_answers_at_once", "it took"),
    (Defect::NeverRenews, "a_lock_is_kept_for_five_leases", "the lock is held"),
    (Defect::NeverRenews, "a_blocked_runtime_keeps_its_locks", "the lock is held"),
    (Defect::NeverRenews, "a_panic_in_a_renewal_costs_nothing", "lost: Lost(Expired)"),
    (Defect::NeverRenews, "one_lease_in_doubt_costs_the_others_nothing", "was lost, too"),
    (Defect::NeverRenews, "a_guard_outlives_its_runtime", "lost without its runtime"),
    (Defect::RenewsOneByOne, "a_thousand_locks_are_kept", "of 1000 locks lost"),
    (Defect::CountsNoWaiters, "inspect_tells_the_truth", "in the queue"),
    (Defect::CutsLabels, "the_bounds_of_what_is_allowed_work", "the label was changed"),
    (Defect::HeldSinceNow, "renewals_show_in_the_time_left_only", "held_for: 0ns"),
    (Defect::WaitsSinceNow, "the_longest_wait_is_shown", ", not "),
    (Defect::NamesThoseWhoLeft, "who_waits_is_shown", "one has left"),
    (Defect::NamesTheLastFirst, "who_waits_is_shown", "first"),
    (Defect::ShowsTheDead, "a_lease_that_ran_out_is_not_shown_as_held", "still shown"),
    (Defect::CountsOneTooMany, "a_forced_release_counts_the_holders", "never used"),
    (Defect::FreesOneReaderOfAll, "a_forced_release_frees_all_readers", "three readers were freed"),
    (Defect::AlwaysReleased, "releases_in_one_request_have_their_own_answers", "round 0"),
    (Defect::AlwaysReleased, "a_release_after_a_theft_says_lost", "the lock was lost"),
    (Defect::ReadersAreWriters, "readers_meet_and_writers_are_alone", "readers meet"),
    (Defect::ReadersAreWriters, "several_locks_are_taken_with_readers", "readers share"),
    (Defect::ReadersAreWriters, "readers_move_up_when_a_writer_leaves", "the reader's turn"),
    (Defect::OnePermitMore, "permits_are_counted", "a fourth permit of 3"),
    (Defect::OnePermitMore, "a_busy_hour_of_permits_has_a_clean_history", "held at the same time"),
    (Defect::OnePermitMore, "a_permit_that_cannot_be_downgraded_stays", "it was released"),
    (Defect::MixesKinds, "a_clash_of_kinds_is_an_error_without_a_wait", "the name is in use"),
    (Defect::MixesKinds, "a_busy_hour_of_kinds_has_a_clean_history", "held at the same time"),
    (Defect::ReservesOneToken, "a_claim_reserves_a_block_of_tokens", "a single token"),
    (Defect::ReadersHaveNoTokens, "tokens_rise_over_modes", "first reader"),
    (
        Defect::ReadersHaveNoTokens,
        "a_busy_hour_of_readers_and_writers_has_a_clean_history",
        "one token twice",
    ),
    (Defect::ShowsItsOwners, "debug_shows_no_owner", "shows its owner"),
    (Defect::PromisesNoOrder, "the_harness_offers_what_the_backend_promises", "Fifo: the harness says true"),
    (Defect::NeverDowngrades, "a_downgraded_lock_is_kept_and_shown", "mode: Exclusive"),
    (
        Defect::DowngradesByName,
        "a_downgrade_of_what_is_not_held_is_an_error",
        "made a reader of the successor",
    ),
    (Defect::NeverDowngrades, "a_downgrade_of_what_is_not_held_is_an_error", "it was taken away"),
    (
        Defect::DowngradesWithAGap,
        "a_writer_becomes_a_reader_without_a_gap",
        "a writer beside the one who was a writer",
    ),
    (Defect::PromisesNews, "a_loss_is_notified_as_soon_as_promised", "promised by loss_push"),
    (Defect::PromisesWakeUps, "waiters_are_woken_as_soon_as_promised", "promised is push"),
    (Defect::PromisesOtherHosts, "what_works_across_hosts_leaves_the_process", "across_hosts is promised"),
    (Defect::WakesAll, "a_release_wakes_one_waiter_as_promised", "promised is herd_free"),
    (Defect::KeepsReaders, "an_upgrade_is_refused", "the readers have gone"),
    (Defect::KeepsReaders, "a_downgrade_can_be_dropped_anywhere", "after a dropped downgrade"),
    (
        Defect::KeepsTheCancelled,
        "an_acquire_of_a_free_lock_can_be_dropped_anywhere",
        "polls: the lock did not become free",
    ),
    (
        Defect::KeepsTheCancelled,
        "an_acquire_can_be_dropped_while_the_lock_changes_hands",
        ": the lock did not become free",
    ),
    (Defect::KeepsTheCancelled, "several_locks_can_be_dropped_anywhere", "after a dropped request"),
    (Defect::ForgetsAtFailover, "a_failover_grants_nothing_twice_as_promised", "was granted twice"),
];

/// What [`Weak`](crate::weak_lock::Weak) proves.
pub(crate) const WEAK: &[(Defect, &str, &str)] = &[
    (
        Defect::PromisesAnewWhenAskedAgain,
        "a_repeated_acquire_keeps_its_promise_before_waiters",
        "granted to another",
    ),
    (
        Defect::PromisesAnewWhenAskedAgain,
        "a_repeated_read_keeps_its_promise_before_writers",
        "granted to another",
    ),
    (
        Defect::PromisesAnewWhenAskedAgain,
        "a_repeated_permit_keeps_its_promise_before_waiters",
        "granted to another",
    ),
    (Defect::EndsWaitsEarly, "timeouts_are_punctual", "ended after"),
    (Defect::EndsWaitsEarly, "a_campaign_ends_with_its_wait", ">= millis(300)"),
    (Defect::BlocksItsThread, "timeouts_are_punctual", "ended: not within"),
    (Defect::LooksSeldom, "a_short_lease_after_a_long_one_ends_in_time", "the turn of the one behind"),
    (Defect::LooksSeldom, "a_permit_of_a_dead_holder_comes_back", "followed by the next: not within"),
    (Defect::ForeverIsNoWait, "waiting_without_a_limit_ends_with_the_lock", "in the queue"),
    (Defect::ListsWritersOnly, "what_is_held_is_listed", "is held, and not among"),
    (Defect::AllowsAnyTtl, "bad_input_is_refused_before_anything_is_sent", "reached the backend"),
    (Defect::ReadersOvertake, "a_writer_is_not_starved_by_readers", "a reader overtook a waiting writer"),
    (Defect::PermitsOvertake, "another_kind_waits_until_the_old_one_has_left", "overtook another one"),
    (
        Defect::ForgetsAnotherKind,
        "another_kind_outwaits_a_dead_holder",
        "the turn of another kind: not within",
    ),
    (
        Defect::KeepsAnotherKind,
        "the_old_kind_goes_on_when_another_one_leaves",
        "the turn of the old kind: not within",
    ),
    (Defect::ReadersHaveOneLease, "a_dead_reader_leaves_the_others", "the lease of another reader ended"),
    (Defect::LeasesTooShort, "a_lost_guard_does_not_end_the_lock_delay", "granted again after"),
    (Defect::LeasesTooShort, "validity_ends_before_the_lease", "valid for"),
    (Defect::ForgetsTheLockDelay, "a_lock_delay_follows_a_crash_only", "granted again after"),
    (Defect::ExcludesNobody, "hand_overs_are_bounded", "nobody else holds it meanwhile"),
    (Defect::ExcludesNobody, "another_process_gets_its_turn", "nobody else holds it meanwhile"),
    (Defect::ExcludesNobody, "a_counter_without_synchronisation_loses_nothing", "no task fails"),
    (Defect::ReservesNothing, "a_configuration_reserves_no_more_tokens_than_the_bound", "none is reserved"),
    (Defect::OneAtATime, "a_future_that_is_not_polled_blocks_no_other", "its turn comes"),
    (Defect::OneAtATime, "a_waiter_that_is_not_polled_lets_others_in", "lock: not within"),
    (Defect::OneAtATime, "a_reader_that_is_not_polled_lets_others_in", "reader: not within"),
    (Defect::OneAtATime, "a_permit_that_is_not_polled_lets_others_in", "permit: not within"),
    (Defect::OneAtATime, "a_runtime_that_is_not_driven_blocks_no_other", "an answer: not within"),
    (Defect::DeniesTheRelease, "a_task_that_watches_a_lock_ends_with_it", "release of"),
    (Defect::PurgeForgetsTokens, "tokens_rise_over_a_purge", "token 1 after"),
    (Defect::PurgeForgetsTokens, "a_record_survives_a_purge", "lost by the purge"),
    (Defect::PurgeFreesAll, "a_purge_spares_what_is_in_use", "the purge freed a held lock"),
];

/// What [`Session`](crate::session_lock::Session) proves.
pub(crate) const SESSION: &[(Defect, &str, &str)] = &[
    (
        Defect::SetsTheLeaseLater,
        "the_end_of_a_runtime_ends_its_waiting",
        "after the end of the waiter's runtime",
    ),
    (Defect::BelongsToItsTask, "a_dropped_guard_frees_the_lock", "after a drop"),
    (Defect::BelongsToItsTask, "run_can_be_dropped", "after the work was dropped"),
    (Defect::BelongsToItsTask, "tasks_may_leave_the_local_queue", "after a dropped hand-over"),
    // It fails at the claim that was dropped or at the last guard: whether the abort or the release comes
    // first is chance.
    (Defect::BelongsToItsTask, "tasks_of_an_owner_share_its_lock", "of the owner's tasks"),
    (
        Defect::BelongsToItsConnection,
        "a_guard_dropped_in_a_runtime_that_is_not_driven_is_released",
        "after a drop in a runtime",
    ),
    (
        Defect::BelongsToItsConnection,
        "a_guard_that_is_dropped_outside_of_a_runtime_frees_the_lock",
        "after a drop outside of the runtime",
    ),
    (Defect::BelongsToItsConnection, "a_hold_ends_with_its_longest_time", "after the longest hold"),
    (Defect::BelongsToItsConnection, "a_lock_without_progress_is_released", "after a stuck worker"),
    (
        Defect::SetsTheLeaseLater,
        "the_end_of_a_runtime_under_an_acquire_leaves_nothing",
        "after the end of the runtime",
    ),
    (Defect::ForgetsWhatMoves, "a_release_can_be_dropped_anywhere", "polls: the lock did not become free"),
    (Defect::HoldsOneLock, "several_locks_are_taken_together", "left: None"),
    (Defect::RemembersTheFirstHolder, "one_leads_and_the_next_follows", "the observer"),
    (Defect::IsReentrant, "an_owner_takes_its_lock_again", "another owner of this process"),
];

/// What [`Remote`](crate::remote_lock::Remote) proves.
pub(crate) const REMOTE: &[(Defect, &str, &str)] = &[
    (Defect::EndsByTheClock, "a_short_wait_covers_the_first_answer", "the first answer"),
    (Defect::AsksThreeTimes, "a_lock_is_kept_over_a_slow_network", "a free lock"),
    (Defect::RenewsBlindly, "a_stopped_server_does_not_delay_the_loss", "no loss after"),
    (Defect::RenewsBlindly, "a_holder_in_a_black_hole_loses_its_lock_in_time", "no loss after"),
    (Defect::RenewsBlindly, "a_holder_without_replies_loses_its_lock_in_time", "no loss after"),
    (Defect::RenewsBlindly, "a_holder_whose_requests_are_lost_loses_its_lock_in_time", "no loss after"),
    (Defect::RenewsBlindly, "a_holder_that_is_cut_off_loses_its_lock_in_time", "no loss after"),
    (Defect::KeepsAsking, "an_acquire_into_a_black_hole_ends_with_its_wait", "did not become free"),
    (Defect::KeepsAsking, "an_acquire_whose_reply_never_comes_leaves_nothing", "did not become free"),
    (Defect::CallsSilenceInternal, "timeouts_are_punctual_in_a_black_hole", "no answer"),
    (Defect::CallsSilenceInternal, "calls_into_a_black_hole_end", "no answer"),
    (Defect::WaitsForEver, "calls_into_a_black_hole_end", "not within"),
    (Defect::CallsResetsLosses, "an_acquire_whose_reply_is_lost_is_cleaned_up", "the connection is lost"),
    (Defect::CallsResetsLosses, "a_release_whose_reply_is_lost_is_repeated", "the connection is lost"),
    (Defect::DeniesWhatItRepeats, "a_release_whose_reply_is_lost_is_repeated", "k = 1"),
    (Defect::DeniesWhatItRepeats, "a_release_whose_reply_is_lost_is_not_called_a_loss", "k = 1"),
    (
        Defect::ConfirmsWhatItRepeats,
        "a_repeated_release_of_a_lost_lock_is_in_doubt",
        "another had taken the lock",
    ),
    (Defect::ForgetsLateCopies, "a_late_copy_of_an_acquire_does_not_block_the_lock", "after a late copy"),
    (Defect::MixesKindsWhenRepeated, "kinds_do_not_meet_after_a_lost_answer", "of one kind is held beside"),
    (Defect::NeverReconnects, "a_client_comes_back_after_a_restart", "no retry can help"),
    (Defect::NeverReconnects, "a_waiter_outlives_a_restart", "the connection has ended"),
    (Defect::ForgetsAtRestart, "tokens_rise_over_a_restart", "token 1 after"),
    (Defect::ForgetsAtRestart, "a_lock_survives_a_restart", "not renewed after the restart"),
    (Defect::GivesUpInSilence, "a_wait_covers_an_outage", "the wait covers it"),
    (Defect::ForgetsAtRestart, "a_record_survives_a_restart", "lost by the restart"),
    (Defect::GivesUpInSilence, "a_short_stop_of_the_server_costs_nothing", "its turn comes"),
];

/// What [`Recording`](crate::recording_lock::Recording) proves.
pub(crate) const RECORDING: &[(Defect, &str, &str)] = &[
    (Defect::KeepsRecordsInTheRow, "a_record_outlives_its_hold", "ended with its hold"),
    (Defect::CutsRecords, "any_bytes_are_a_record", "3 bytes were written"),
    (Defect::MixesRecordKinds, "records_of_names_and_kinds_are_apart", "as its Job"),
    (Defect::WritesByName, "a_late_holder_writes_nothing", "wrote under the next one"),
    (Defect::ComparesRecordedTokens, "a_late_holder_writes_nothing", "wrote under the next one"),
    (Defect::WritesUnlessTaken, "nothing_is_written_after_a_forced_release", "after a forced release"),
    (Defect::LooksThenWrites, "a_late_write_changes_nothing_that_was_read", "had read"),
    (Defect::IgnoresNumbers, "a_late_copy_of_a_write_changes_nothing", "has replaced a later write"),
    (Defect::RefusesRepeats, "a_write_that_is_repeated_is_answered_again", "the same again"),
    (Defect::ReadsOldRecords, "a_counter_in_a_record_loses_nothing", "additions were lost"),
    (Defect::IgnoresTheMode, "only_a_writer_writes", "a reader wrote"),
    (
        Defect::KnowsWritersByTheirClaims,
        "an_earlier_grant_of_a_claim_writes_nothing",
        "wrote under the next one",
    ),
    (Defect::ReadsForWritersOnly, "every_holder_reads", "a reader: "),
    (Defect::AsksForRecords, "who_writes_no_record_pays_nothing", "which nobody writes"),
];

/// What [`Forgetful`](crate::forgetful_lock::Forgetful) proves.
pub(crate) const FORGETFUL: &[(Defect, &str, &str)] = &[
    (Defect::GrantsWithoutMark, "nothing_is_granted_in_a_grace_period", "a free lock was granted"),
    (Defect::GrantsToReadersWithoutMark, "nothing_is_granted_in_a_grace_period", "to read was granted"),
    (Defect::CallsTheUnknownHeld, "nothing_is_granted_in_a_grace_period", "nobody knows"),
    (Defect::WritesInGracePeriods, "nothing_is_written_in_a_grace_period", "it was written"),
    (Defect::ReclaimsNothing, "a_grace_period_takes_no_lock_from_its_holder", "took the lock"),
    (Defect::CallsTheUnknownFree, "who_holds_is_unknown_in_a_grace_period", "called free"),
    (Defect::BeginsNoPeriodAnew, "who_holds_is_unknown_in_a_grace_period", "did not begin anew"),
];

/// What [`Served`](crate::processes::Served) proves.
pub(crate) const SERVED: &[(Defect, &str, &str)] = &[
    (Defect::KeepsTheDead, "a_killed_holder_frees_the_lock_within_its_lease", "after kill -9"),
    (Defect::KeepsTheDead, "a_killed_holder_frees_the_lock_for_a_waiter", "after the kill"),
    (Defect::KeepsTheDead, "a_killed_holder_that_had_waited_frees_the_lock", "after kill -9"),
    (Defect::CountsFromTheQuestion, "a_killed_holder_that_had_waited_frees_the_lock", "expected to say"),
    (Defect::KeepsDeadWaiters, "a_killed_waiter_is_skipped", "for a waiter that is dead"),
    (Defect::ValidForAnHour, "a_holder_that_was_stopped_knows_that_it_lost", "stale"),
];

/// The cases that no defect proves, and why.
pub(crate) const UNPROVEN: &[(&str, &str)] = &[
    ("every_loss_is_counted", LOCKCORE),
    ("a_long_hold_lets_the_next_task_queue", LOCKCORE),
    ("a_place_outlives_its_task", LOCKCORE),
    ("a_place_that_nobody_wants_is_left", LOCKCORE),
    ("a_turn_in_a_runtime_that_is_not_driven_goes_on", LOCKCORE),
    ("tasks_of_a_client_learn_that_the_server_is_away", LOCKCORE),
    ("a_waiter_that_is_not_polled_blocks_none_of_its_name", LOCKCORE),
    ("a_release_after_the_deadline_says_lost", LOCKCORE),
    ("what_is_not_promised_is_refused", LOCKCORE),
    ("run_gives_back_what_was_finished_too_late", LOCKCORE),
    ("close_leaves_nothing_of_requests_under_way", LOCKCORE),
    ("a_closed_client_refuses", LOCKCORE),
];

const LOCKCORE: &str = "it tests lockcore: a backend fails it only if nothing works at all";
