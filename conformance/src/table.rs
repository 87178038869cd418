//! The table of all cases.

use super::Need::{
    Counted, Downgrade, Durable, Failover, Fencing, Fifo, Grace, Link, LongestWait, NamedWaiters, Permits,
    Process, Purge, Records, Server, Shared, TokenBlocks,
};
use super::{Case, Need, Run};
use super::{
    cancellation, closing, crash, downgrade, dropping, exclusion, fifo, grace, input, inspection, leading,
    limits, local, loss, many, modes, names, network, outage, ownership, promises, records, reentrancy,
    renewal, running, runtimes, secrets, tokens, troubled, waiting,
};
use crate::stage::Stage;

macro_rules! cases {
    ($($file:ident { $($name:ident: [$($need:ident),*];)* })*) => {
        &[$($(case(stringify!($file), stringify!($name), &[$($need),*], |stage| Box::pin($file::$name(stage))),)*)*]
    };
}

const fn case(
    subject: &'static str,
    name: &'static str,
    needs: &'static [Need],
    run: fn(Stage) -> Run,
) -> Case {
    Case { name, needs, subject, run }
}

/// All cases, in the order of the files that hold them.
pub fn cases() -> &'static [Case] {
    ALL
}

const ALL: &[Case] = cases! {
    exclusion {
        a_counter_without_synchronisation_loses_nothing: [];
        a_busy_hour_has_a_clean_history: [];
        a_busy_hour_of_hand_overs_has_a_clean_history: [];
        a_busy_hour_of_readers_and_writers_has_a_clean_history: [Shared];
        a_busy_hour_of_permits_has_a_clean_history: [Permits];
        a_busy_hour_of_kinds_has_a_clean_history: [Permits];
    }
    ownership {
        an_acquire_that_is_repeated_is_granted_again: [];
        a_repeated_acquire_keeps_its_promise_before_waiters: [Counted];
        a_repeated_read_keeps_its_promise_before_writers: [Counted, Shared];
        a_repeated_permit_keeps_its_promise_before_waiters: [Counted, Permits];
        a_release_that_is_repeated_is_harmless: [];
        an_owner_who_is_late_changes_nothing: [];
        releases_in_one_request_have_their_own_answers: [Counted];
        validity_ends_before_the_lease: [];
    }
    fifo {
        waiters_are_served_in_order_across_clients: [Fifo, Counted];
        a_newcomer_does_not_overtake_a_waiter: [Fifo, Fencing, Counted];
    }
    waiting {
        timeouts_are_punctual: [];
        a_short_wait_covers_the_first_answer: [Link];
        try_now_answers_at_once: [];
        a_wait_that_ended_leaves_no_trace: [Counted];
        a_short_lease_after_a_long_one_ends_in_time: [Counted];
        waiting_without_a_limit_ends_with_the_lock: [Counted];
    }
    cancellation {
        an_acquire_of_a_free_lock_can_be_dropped_anywhere: [];
        an_acquire_of_a_held_lock_can_be_dropped_anywhere: [];
        an_acquire_can_be_dropped_while_the_lock_changes_hands: [];
        a_release_can_be_dropped_anywhere: [];
    }
    dropping {
        a_dropped_guard_frees_the_lock: [Counted];
        a_guard_that_is_dropped_outside_of_a_runtime_frees_the_lock: [];
        the_end_of_a_runtime_frees_its_locks: [];
        a_guard_outlives_its_runtime: [];
        the_end_of_a_runtime_ends_its_waiting: [Counted];
        the_end_of_a_runtime_under_an_acquire_leaves_nothing: [];
    }
    renewal {
        a_lock_is_kept_for_five_leases: [];
        a_blocked_runtime_keeps_its_locks: [];
        many_leases_are_renewed_in_one_call: [];
        a_thousand_locks_are_kept: [];
        a_lock_is_kept_over_a_slow_network: [Link];
    }
    loss {
        a_stolen_lock_is_reported_lost: [];
        a_release_after_a_theft_says_lost: [];
        a_release_after_the_deadline_says_lost: [];
        a_task_that_watches_a_lock_ends_with_it: [];
        every_loss_is_counted: [];
        a_stopped_server_does_not_delay_the_loss: [Server];
        a_holder_in_a_black_hole_loses_its_lock_in_time: [Link];
        a_holder_without_replies_loses_its_lock_in_time: [Link];
        a_holder_whose_requests_are_lost_loses_its_lock_in_time: [Link];
        a_holder_that_is_cut_off_loses_its_lock_in_time: [Link];
    }
    network {
        an_acquire_into_a_black_hole_ends_with_its_wait: [Link];
        an_acquire_whose_reply_never_comes_leaves_nothing: [Link];
        timeouts_are_punctual_in_a_black_hole: [Link];
        calls_into_a_black_hole_end: [Link];
        an_acquire_whose_reply_is_lost_is_cleaned_up: [Link];
        a_release_whose_reply_is_lost_is_repeated: [Link];
        a_release_whose_reply_is_lost_is_not_called_a_loss: [Link, Counted];
        a_repeated_release_of_a_lost_lock_is_in_doubt: [Link];
        a_late_copy_of_an_acquire_does_not_block_the_lock: [Link];
    }
    outage {
        a_client_comes_back_after_a_restart: [Server];
        tokens_rise_over_a_restart: [Server, Fencing, Durable];
        a_lock_survives_a_restart: [Server, Durable];
        a_waiter_outlives_a_restart: [Server, Durable, Counted];
        a_wait_covers_an_outage: [Server, Counted];
        a_short_stop_of_the_server_costs_nothing: [Server, Counted];
    }
    grace {
        nothing_is_granted_in_a_grace_period: [Grace];
        a_grace_period_takes_no_lock_from_its_holder: [Grace];
        who_holds_is_unknown_in_a_grace_period: [Grace];
    }
    crash {
        a_killed_holder_frees_the_lock_within_its_lease: [Process];
        a_killed_holder_frees_the_lock_for_a_waiter: [Process, Counted];
        a_killed_holder_that_had_waited_frees_the_lock: [Process, Counted];
        a_killed_waiter_is_skipped: [Process, Counted];
        a_holder_that_was_stopped_knows_that_it_lost: [Process];
    }
    tokens {
        tokens_rise_over_a_thousand_holders: [Fencing];
        tokens_rise_however_a_lock_ends: [Fencing];
        tokens_rise_over_modes: [Fencing, Shared];
        a_claim_reserves_a_block_of_tokens: [TokenBlocks, Counted];
        tokens_rise_over_a_purge: [Fencing, Purge];
        a_purge_spares_what_is_in_use: [Purge, Counted];
    }
    names {
        odd_names_are_different_locks: [];
    }
    inspection {
        what_is_held_is_listed: [];
        inspect_tells_the_truth: [Counted];
        the_longest_wait_is_shown: [Counted, LongestWait];
        who_waits_is_shown: [Counted, NamedWaiters];
        renewals_show_in_the_time_left_only: [];
        a_lease_that_ran_out_is_not_shown_as_held: [];
        a_forced_release_counts_the_holders: [Counted];
        a_forced_release_frees_all_readers: [Shared];
    }
    input {
        bad_input_is_refused_before_anything_is_sent: [];
        the_bounds_of_what_is_allowed_work: [];
        what_is_not_promised_is_refused: [];
    }
    promises {
        a_loss_is_notified_as_soon_as_promised: [];
        waiters_are_woken_as_soon_as_promised: [];
        a_release_wakes_one_waiter_as_promised: [Link];
        a_failover_grants_nothing_twice_as_promised: [Failover];
        what_works_across_hosts_leaves_the_process: [];
        the_harness_offers_what_the_backend_promises: [];
    }
    records {
        a_record_outlives_its_hold: [Records];
        any_bytes_are_a_record: [Records];
        records_of_names_and_kinds_are_apart: [Records];
        a_late_holder_writes_nothing: [Records];
        nothing_is_written_after_a_forced_release: [Records];
        a_late_write_changes_nothing_that_was_read: [Records];
        a_late_copy_of_a_write_changes_nothing: [Records];
        a_write_that_is_repeated_is_answered_again: [Records];
        a_counter_in_a_record_loses_nothing: [Records];
        only_a_writer_writes: [Records];
        an_earlier_grant_of_a_claim_writes_nothing: [Records];
        every_holder_reads: [Records];
        a_record_survives_a_restart: [Records, Server, Durable];
        a_record_survives_a_purge: [Records, Purge];
        nothing_is_written_in_a_grace_period: [Records, Grace];
        who_writes_no_record_pays_nothing: [Records, Link];
    }
    secrets {
        debug_shows_no_owner: [];
    }
    modes {
        readers_meet_and_writers_are_alone: [Shared, Counted];
        a_writer_is_not_starved_by_readers: [Shared, Counted];
        readers_move_up_when_a_writer_leaves: [Shared, Fifo, Counted];
        a_dead_reader_leaves_the_others: [Shared];
        permits_are_counted: [Permits, Counted];
        a_permit_of_a_dead_holder_comes_back: [Permits];
        a_clash_of_kinds_is_an_error_without_a_wait: [Permits, Counted];
        another_kind_waits_until_the_old_one_has_left: [Permits, Counted];
        the_old_kind_goes_on_when_another_one_leaves: [Permits, Fifo, Counted];
        another_kind_outwaits_a_dead_holder: [Permits, Counted];
        kinds_do_not_meet_after_a_lost_answer: [Permits, Link];
    }
    downgrade {
        a_writer_becomes_a_reader_without_a_gap: [Downgrade, Counted];
        a_downgraded_lock_is_kept_and_shown: [Downgrade];
        a_downgrade_can_be_dropped_anywhere: [Downgrade];
        a_downgrade_of_what_is_not_held_is_an_error: [Downgrade];
        a_permit_that_cannot_be_downgraded_stays: [Permits];
    }
    limits {
        a_hold_ends_with_its_longest_time: [];
        a_lock_without_progress_is_released: [];
        a_lock_delay_follows_a_crash_only: [];
        a_lost_guard_does_not_end_the_lock_delay: [];
    }
    local {
        one_claim_serves_all_tasks: [Counted];
        a_place_outlives_its_task: [Counted, Fifo];
        a_place_that_nobody_wants_is_left: [Counted];
        a_long_hold_lets_the_next_task_queue: [Counted, Fifo];
        tasks_of_a_client_learn_that_the_server_is_away: [Link];
        another_process_gets_its_turn: [];
        a_lock_is_passed_on_within_a_client: [];
        hand_overs_are_bounded: [];
        a_configuration_reserves_no_more_tokens_than_the_bound: [TokenBlocks];
        tasks_may_leave_the_local_queue: [];
        a_lost_lock_is_not_passed_on: [];
    }
    many {
        several_locks_are_taken_together: [Counted];
        opposite_orders_do_not_deadlock: [];
        several_locks_can_be_dropped_anywhere: [];
        the_loss_of_one_of_several_is_reported: [];
        several_locks_are_taken_with_readers: [Counted, Shared];
    }
    reentrancy {
        an_owner_takes_its_lock_again: [Counted];
        tasks_of_an_owner_share_its_lock: [Counted];
        an_owner_learns_of_its_loss: [];
        an_upgrade_is_refused: [Shared];
    }
    leading {
        one_leads_and_the_next_follows: [Counted];
        work_is_restarted_with_each_term: [];
        a_campaign_ends_with_its_wait: [];
    }
    running {
        run_returns_the_value_and_releases: [];
        run_stops_the_work_when_the_lock_is_lost: [];
        run_can_be_dropped: [];
        run_gives_back_what_was_finished_too_late: [];
        run_holds_several_locks: [];
        run_of_an_owner_shares_its_lock: [];
    }
    runtimes {
        the_end_of_a_runtime_costs_the_others_nothing: [];
        a_runtime_that_is_not_driven_blocks_no_other: [];
        a_future_that_is_not_polled_blocks_no_other: [];
        a_guard_dropped_in_a_runtime_that_is_not_driven_is_released: [];
        a_waiter_dropped_in_a_runtime_that_is_not_driven_leaves: [Counted];
        a_turn_in_a_runtime_that_is_not_driven_goes_on: [];
        a_waiter_that_is_not_polled_blocks_none_of_its_name: [];
        a_waiter_that_is_not_polled_lets_others_in: [Counted];
        a_reader_that_is_not_polled_lets_others_in: [Counted, Shared];
        a_permit_that_is_not_polled_lets_others_in: [Counted, Permits];
    }
    closing {
        close_waits_for_the_releases_under_way: [];
        close_ends_requests_that_wait: [Counted];
        close_leaves_nothing_of_requests_under_way: [];
        a_closed_client_refuses: [];
    }
    troubled {
        one_lease_in_doubt_costs_the_others_nothing: [];
        an_idle_lock_is_renewed_at_most_six_times_in_its_validity: [];
        a_panic_in_a_renewal_costs_nothing: [];
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases().len());
    }
}
