//! The table of all cases.

use super::Need::{
    Counted, Downgrade, Durable, Failover, Fencing, Fifo, Link, LongestWait, Permits, Process, Purge, Server,
    Shared, TokenBlocks,
};
use super::{Case, Need, Pace, Run};
use super::{
    cancellation, crash, downgrade, dropping, exclusion, fifo, input, inspection, leading, limits, local,
    loss, many, modes, names, network, outage, ownership, promises, reentrancy, renewal, running, runtimes,
    secrets, tokens, troubled, waiting,
};
use crate::conformance::stage::Stage;

macro_rules! cases {
    ($($file:ident { $($name:ident: $pace:ident [$($need:ident),*];)* })*) => {
        &[$($(case(stringify!($name), Pace::$pace, &[$($need),*], |stage| Box::pin($file::$name(stage))),)*)*]
    };
}

const fn case(name: &'static str, pace: Pace, needs: &'static [Need], run: fn(Stage) -> Run) -> Case {
    Case { name, needs, pace, run }
}

/// All cases, in the order of the files that hold them.
pub fn cases() -> &'static [Case] {
    ALL
}

const ALL: &[Case] = cases! {
    exclusion {
        a_counter_without_synchronisation_loses_nothing: Free [];
        a_busy_hour_has_a_clean_history: Free [];
        a_busy_hour_of_hand_overs_has_a_clean_history: Free [];
        a_busy_hour_of_readers_and_writers_has_a_clean_history: Free [Shared];
        a_busy_hour_of_permits_has_a_clean_history: Free [Permits];
    }
    ownership {
        an_acquire_that_is_repeated_is_granted_again: Free [];
        a_repeated_acquire_keeps_its_promise_before_waiters: Free [Counted];
        a_repeated_read_keeps_its_promise_before_writers: Free [Counted, Shared];
        a_repeated_permit_keeps_its_promise_before_waiters: Free [Counted, Permits];
        a_release_that_is_repeated_is_harmless: Free [];
        an_owner_who_is_late_changes_nothing: Free [];
        releases_in_one_request_have_their_own_answers: Free [Counted];
        validity_ends_before_the_lease: Free [];
    }
    fifo {
        waiters_are_served_in_order_across_clients: Free [Fifo];
        a_newcomer_does_not_overtake_a_waiter: Free [Fifo, Fencing];
    }
    waiting {
        timeouts_are_punctual: Quiet [];
        try_now_answers_at_once: Quiet [];
        a_wait_that_ended_leaves_no_trace: Free [Counted];
        a_short_lease_after_a_long_one_ends_in_time: Free [Counted];
        waiting_without_a_limit_ends_with_the_lock: Free [Counted];
    }
    cancellation {
        an_acquire_of_a_free_lock_can_be_dropped_anywhere: Quiet [];
        an_acquire_of_a_held_lock_can_be_dropped_anywhere: Quiet [];
        an_acquire_can_be_dropped_while_the_lock_changes_hands: Quiet [];
        a_release_can_be_dropped_anywhere: Quiet [];
    }
    dropping {
        a_dropped_guard_frees_the_lock: Free [Counted];
        a_guard_that_is_dropped_outside_of_a_runtime_frees_the_lock: Free [];
        the_end_of_a_runtime_frees_its_locks: Free [];
        a_guard_outlives_its_runtime: Free [];
        the_end_of_a_runtime_ends_its_waiting: Free [Counted];
        the_end_of_a_runtime_under_an_acquire_leaves_nothing: Free [];
    }
    renewal {
        a_lock_is_kept_for_five_leases: Free [];
        a_blocked_runtime_keeps_its_locks: Free [];
        many_leases_are_renewed_in_one_call: Free [];
        two_thousand_locks_are_kept: Free [];
        a_lock_is_kept_over_a_slow_network: Quiet [Link];
    }
    loss {
        a_stolen_lock_is_reported_lost: Free [];
        a_release_after_a_theft_says_lost: Free [];
        a_task_that_watches_a_lock_ends_with_it: Free [];
        every_loss_is_counted: Free [];
        a_stopped_server_does_not_delay_the_loss: Free [Server];
        a_holder_in_a_black_hole_loses_its_lock_in_time: Free [Link];
        a_holder_without_replies_loses_its_lock_in_time: Free [Link];
        a_holder_whose_requests_are_lost_loses_its_lock_in_time: Free [Link];
        a_holder_that_is_cut_off_loses_its_lock_in_time: Free [Link];
    }
    network {
        an_acquire_into_a_black_hole_ends_with_its_wait: Free [Link];
        an_acquire_whose_reply_never_comes_leaves_nothing: Free [Link];
        timeouts_are_punctual_in_a_black_hole: Quiet [Link];
        calls_into_a_black_hole_end: Free [Link];
        an_acquire_whose_reply_is_lost_is_cleaned_up: Free [Link];
        a_release_whose_reply_is_lost_is_repeated: Free [Link];
        a_release_whose_reply_is_lost_is_not_called_a_loss: Free [Link, Counted];
        a_repeated_release_of_a_lost_lock_is_in_doubt: Free [Link];
        a_late_copy_of_an_acquire_does_not_block_the_lock: Free [Link];
    }
    outage {
        a_client_comes_back_after_a_restart: Free [Server];
        tokens_rise_over_a_restart: Free [Server, Fencing, Durable];
        a_lock_survives_a_restart: Free [Server, Durable];
        a_waiter_outlives_a_restart: Free [Server, Durable, Counted];
        a_short_stop_of_the_server_costs_nothing: Free [Server, Counted];
    }
    crash {
        a_killed_holder_frees_the_lock_within_its_lease: Quiet [Process];
        a_killed_holder_frees_the_lock_for_a_waiter: Quiet [Process, Counted];
        a_killed_holder_that_had_waited_frees_the_lock: Quiet [Process, Counted];
        a_killed_waiter_is_skipped: Free [Process, Counted];
        a_holder_that_was_stopped_knows_that_it_lost: Quiet [Process];
    }
    tokens {
        tokens_rise_over_a_thousand_holders: Free [Fencing];
        tokens_rise_however_a_lock_ends: Free [Fencing];
        tokens_rise_over_modes: Free [Fencing, Shared];
        a_claim_reserves_a_block_of_tokens: Free [TokenBlocks];
        tokens_rise_over_a_purge: Free [Fencing, Purge];
        a_purge_spares_what_is_in_use: Free [Purge];
    }
    names {
        odd_names_are_different_locks: Free [];
    }
    inspection {
        what_is_held_is_listed: Free [];
        inspect_tells_the_truth: Free [Counted];
        the_longest_wait_is_shown: Free [Counted, LongestWait];
        renewals_show_in_the_time_left_only: Free [];
        a_lease_that_ran_out_is_not_shown_as_held: Free [];
        a_forced_release_counts_the_holders: Free [Counted];
        a_forced_release_frees_all_readers: Free [Shared];
    }
    input {
        bad_input_is_refused_before_anything_is_sent: Free [];
        the_bounds_of_what_is_allowed_work: Free [];
        what_is_not_promised_is_refused: Free [];
        the_harness_offers_what_the_backend_promises: Free [];
    }
    promises {
        a_loss_is_notified_as_soon_as_promised: Free [];
        waiters_are_woken_as_soon_as_promised: Quiet [];
        a_release_wakes_one_waiter_as_promised: Quiet [Link];
        a_failover_grants_nothing_twice_as_promised: Free [Failover];
        what_works_across_hosts_leaves_the_process: Free [];
    }
    secrets {
        debug_shows_no_owner: Free [];
    }
    modes {
        readers_meet_and_writers_are_alone: Free [Shared];
        a_writer_is_not_starved_by_readers: Free [Shared, Fifo];
        readers_move_up_when_a_writer_leaves: Free [Shared, Fifo];
        permits_are_counted: Free [Permits];
        a_permit_of_a_dead_holder_comes_back: Free [Permits];
        a_clash_of_kinds_is_an_error: Free [Permits];
    }
    downgrade {
        a_writer_becomes_a_reader_without_a_gap: Free [Downgrade];
        a_downgraded_lock_is_kept_and_shown: Free [Downgrade];
        a_downgrade_can_be_dropped_anywhere: Free [Downgrade];
        a_downgrade_of_what_is_not_held_is_an_error: Free [Downgrade];
        a_permit_that_cannot_be_downgraded_stays: Free [Permits];
    }
    limits {
        a_hold_ends_with_its_longest_time: Free [];
        a_lock_without_progress_is_released: Free [];
        a_lock_delay_follows_a_crash_only: Free [];
        a_lost_guard_does_not_end_the_lock_delay: Free [];
    }
    local {
        one_claim_serves_all_tasks: Free [Counted];
        a_lock_is_passed_on_within_a_client: Free [];
        hand_overs_are_bounded: Free [];
        a_configuration_reserves_no_more_tokens_than_the_bound: Free [TokenBlocks];
        tasks_may_leave_the_local_queue: Free [];
        a_lost_lock_is_not_passed_on: Free [];
    }
    many {
        several_locks_are_taken_together: Free [Counted];
        opposite_orders_do_not_deadlock: Free [];
        several_locks_can_be_dropped_anywhere: Free [];
        the_loss_of_one_of_several_is_reported: Free [];
        several_locks_are_taken_with_readers: Free [Counted, Shared];
    }
    reentrancy {
        an_owner_takes_its_lock_again: Free [Counted];
        tasks_of_an_owner_share_its_lock: Free [Counted];
        an_owner_learns_of_its_loss: Free [];
        an_upgrade_is_refused: Free [Shared];
    }
    leading {
        one_leads_and_the_next_follows: Free [Counted];
        work_is_restarted_with_each_term: Free [];
        a_campaign_ends_with_its_wait: Free [];
    }
    running {
        run_returns_the_value_and_releases: Free [];
        run_stops_the_work_when_the_lock_is_lost: Free [];
        run_can_be_dropped: Free [];
        run_gives_back_what_was_finished_too_late: Free [];
        run_holds_several_locks: Free [];
        run_of_an_owner_shares_its_lock: Free [];
    }
    runtimes {
        the_end_of_a_runtime_costs_the_others_nothing: Free [];
        a_runtime_that_is_not_driven_blocks_no_other: Free [];
        a_future_that_is_not_polled_blocks_no_other: Free [];
        a_guard_dropped_in_a_runtime_that_is_not_driven_is_released: Free [];
        a_waiter_dropped_in_a_runtime_that_is_not_driven_leaves: Free [Counted];
        a_turn_in_a_runtime_that_is_not_driven_goes_on: Free [];
        close_waits_for_the_releases_under_way: Free [];
        a_closed_client_refuses: Free [];
    }
    troubled {
        one_lease_in_doubt_costs_the_others_nothing: Free [];
        an_idle_lock_is_renewed_at_most_six_times_in_its_validity: Free [];
        a_panic_in_a_renewal_costs_nothing: Free [];
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
