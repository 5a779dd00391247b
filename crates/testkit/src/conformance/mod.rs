//! What every store promises, one function per promise, grouped by subject. `docs/store-contract.md`
//! is what they follow; the numbers in comments are its rules.

pub mod adoption;
pub mod bad_input;
mod bench;
pub mod claims;
pub mod crashes;
pub mod desk;
pub mod keys;
pub mod leases;
pub mod processes;
pub mod push;
pub mod quarantine;
pub mod settle;
pub mod stats;
pub mod streams;
pub mod text;

/// Expands into one test per promise and one per script, each on a fixture of its own.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::promises! { $fixture;
            push {
                numbers_go_up_across_queues_and_are_never_used_again
                a_duplicate_uses_no_number
                a_batch_is_stored_as_a_whole_in_its_order
                one_bad_message_keeps_the_whole_batch_out
                what_was_pushed_is_there_after_a_crash_and_after_a_clean_stop
                everything_about_a_message_arrives_as_it_was_pushed
                any_bytes_come_out_as_they_went_in
                a_delayed_message_is_scheduled_and_due_to_the_millisecond
                an_endless_delay_never_comes_due
                nothing_pushed_is_nothing_stored
            }
            keys {
                two_of_one_key_in_one_batch_are_one_message
                a_key_stands_while_its_owner_waits_for_a_retry
                a_window_of_zero_forgets_a_key_at_once
                a_key_is_done_from_completion_until_its_window_has_passed
                of_many_settled_at_once_the_keys_of_those_that_took_effect_are_done
                a_batch_may_mix_new_keys_with_known_ones
                a_done_key_survives_a_crash
                a_replayed_message_whose_key_is_done_is_completed_unrun
                what_a_claim_makes_the_first_of_its_stream_comes_in_its_turn
                a_message_that_waits_for_its_key_costs_the_claim_nothing
                a_key_whose_owner_died_goes_back_to_the_replayed_message
                effect_key_and_acknowledgement_commit_together_or_not_at_all
                a_key_is_left_behind_by_a_message_that_is_sent_to_another_queue
            }
            claims {
                claims_take_the_highest_priority_first
                of_one_priority_the_longest_due_comes_first
                a_delivery_is_counted_when_it_is_claimed
                tokens_of_later_claims_are_larger
                a_claim_never_gets_more_than_it_asked_for
                a_paused_queue_hands_nothing_out_but_takes_everything_in
                probes_count_down_and_the_gate_is_closed_at_zero
                a_paused_type_does_not_hold_others_up
                a_probe_lets_through_what_can_be_claimed
                an_exchange_with_settlements_never_waits
                one_exchange_settles_a_batch_and_claims_the_next
                a_waiting_claim_is_served_by_a_push
                a_waiting_claim_is_served_when_something_comes_due
                a_waiting_claim_is_served_when_a_lease_runs_out
                a_waiting_claim_gives_up_when_its_time_is_over
                a_claim_whose_caller_has_gone_takes_nothing
                a_claim_that_was_answered_when_its_caller_went_takes_nothing
                a_claim_that_does_not_wait_gets_what_one_that_waits_cannot_have
                a_message_whose_bytes_changed_is_set_aside_and_never_delivered
                a_claim_on_an_unknown_queue_is_refused
            }
            settle {
                a_completed_message_is_gone
                a_settlement_under_a_lost_lease_changes_nothing
                an_invented_token_settles_nothing
                of_many_settlements_of_one_delivery_one_wins
                a_retry_waits_for_its_time_and_says_why_it_comes
                a_release_counts_no_attempt_and_keeps_the_place
                stages_are_added_and_a_failure_marks_them
                poison_comes_after_exactly_so_many_failures
                poison_said_by_the_handler_needs_no_count
                the_history_tells_every_attempt_that_did_not_simply_succeed
                every_delivery_after_the_first_has_a_recorded_cause
                an_effect_of_another_store_is_an_error_and_settles_nothing
                a_failed_effect_leaves_the_others_of_its_batch_alone
            }
            leases {
                a_lease_that_ran_out_brings_the_message_back_counted
                a_settlement_after_the_time_is_refused_even_if_nobody_swept
                a_claim_finds_what_ran_out_without_a_sweep
                a_renewed_lease_holds_from_now
                a_renewal_names_exactly_the_leases_that_are_lost
                leases_of_one_claim_run_out_each_at_its_own_time
                a_renewal_that_names_a_token_twice_renews_it_alone
                a_renewal_never_shortens_a_lease
            }
            crashes {
                a_suspect_that_a_claim_makes_the_first_of_its_stream_is_handed_out_by_it
                a_suspect_that_a_claim_makes_the_first_of_its_stream_ends_the_claim
                a_probe_lets_the_next_suspect_through_though_another_queue_has_one
                a_suspect_whose_stream_comes_free_is_seen_behind_more_urgent_entries
                what_a_dead_process_held_is_suspect_at_once
                the_evidence_of_a_death_is_kept
                a_store_whose_process_died_finds_it_out_when_it_is_opened
                a_retry_in_hand_when_the_process_dies_comes_back_once
                a_lone_killer_is_quarantined_after_exactly_its_budget
                a_killer_that_is_found_at_the_next_start_names_its_last_delivery
                an_innocent_that_was_there_every_time_is_never_quarantined
                a_process_with_a_suspect_in_hand_gets_nothing_else
                a_failure_or_a_quarantine_clears_the_suspicion
                a_suspect_that_cannot_be_claimed_holds_nobody_up
                a_suspect_keeps_its_place_in_its_stream
                what_other_processes_held_comes_back_when_the_owner_died
            }
            streams {
                a_stream_has_one_holder_at_a_time
                streams_of_one_name_in_two_queues_are_two
                a_run_is_no_longer_than_the_queue_allows
                the_order_of_a_stream_beats_priority_and_due_time
                a_scheduled_retry_blocks_the_later_ones_until_its_time
                a_cascade_releases_the_followers_in_the_same_exchange
                a_deferred_entry_is_taken_alone_and_never_beside_another
                a_quarantined_head_holds_a_strict_stream
                a_quarantined_head_does_not_hold_a_stream_that_passes
                a_replayed_head_takes_its_old_place
                releasing_followers_says_whether_there_was_anything_to_release
                a_released_run_comes_back_in_its_order
                blocked_streams_are_listed_first_and_say_by_what
                a_stream_shows_its_holds_and_its_entries_in_order
            }
            desk {
                a_replayed_message_begins_a_new_life_with_its_old_history
                only_dead_letters_can_be_replayed
                a_dead_letter_whose_bytes_changed_is_not_sent_back
                a_replay_with_other_bytes_keeps_the_original_ones
                a_replay_to_another_queue_leaves_both_queues_adding_up
                a_replay_to_an_unknown_queue_changes_nothing
                a_batch_of_acts_answers_each_wish_in_order
                dead_lettering_by_hand_takes_the_message_from_its_holder
                a_dead_letter_names_its_last_delivery
                discarding_hides_restoring_brings_back_purging_is_for_good
                a_purge_takes_the_oldest_first_and_no_more_than_asked
                a_purge_spares_what_was_discarded_too_recently
                only_what_waits_can_be_cancelled
                hastening_makes_due_what_waits_for_its_time
                resetting_gives_a_waiting_message_its_attempts_back
                a_message_that_is_due_again_keeps_its_turn_when_it_is_reset
                a_reset_suspect_is_still_a_suspect
                a_changed_policy_is_in_force_at_once_and_after_a_crash
            }
            quarantine {
                a_dead_letter_keeps_everything
                the_signature_of_a_settlement_is_kept_and_none_is_made_up_for
                every_filter_finds_exactly_its_own
                pages_show_every_dead_letter_exactly_once
                a_page_that_holds_all_says_that_it_is_the_last
                a_dead_letter_is_never_delivered
                a_message_is_found_by_the_beginning_of_its_id
                a_prefix_of_messages_that_are_gone_finds_the_one_that_is_left
                the_history_survives_replays_and_crashes
            }
            stats {
                a_completed_message_is_shown_for_as_long_as_its_queue_keeps_it
                each_message_is_counted_in_exactly_one_place
                waiting_messages_change_their_name_when_they_come_due
                the_backlog_says_when_it_is_due_and_how_often_it_failed
                dead_letters_are_counted_by_reason
                counts_outlive_crashes_and_clean_stops
                figures_of_an_unknown_queue_are_refused
            }
            processes {
                a_process_is_listed_with_its_workers_its_queues_and_what_it_holds
                a_process_that_is_silent_for_a_minute_and_holds_nothing_is_not_listed
                a_process_that_died_is_not_listed
            }
            text {
                control_characters_in_an_error_are_escaped
                a_huge_error_is_cut_and_says_so
                code_path_and_output_are_cleaned_too
                words_of_operators_and_evidence_are_cleaned
                text_of_any_language_is_kept_as_it_is
            }
            bad_input {
                a_push_to_an_unknown_queue_names_the_nearest
                a_payload_above_the_limit_is_refused_and_one_at_it_is_not
                headers_above_the_limit_are_refused
                a_policy_that_cannot_work_is_refused_and_the_old_one_stays
                hostile_keys_and_headers_are_only_text
            }
            adoption {
                an_origin_is_adopted_once_also_after_a_crash_and_when_it_is_done
                an_origin_is_forgotten_after_its_window_and_not_before
                an_adopted_failure_goes_on_where_the_broker_stopped
                adoptions_are_stored_all_or_none
                an_adopted_poison_is_a_dead_letter_that_can_be_replayed
            }
        }
        $crate::lives! { $fixture;
            a_cancelled_or_purged_owner_forgets_its_key
            a_cascade_lets_the_followers_go_on
            a_dead_owner_gives_its_key_up
            a_deferred_entry_leaves_no_hold_and_is_replayed_into_its_place
            a_held_stream_goes_on_when_its_head_is_discarded
            a_held_stream_goes_on_when_its_head_is_replayed
            a_key_stands_until_its_window_has_passed
            a_killer_is_alone_until_it_is_quarantined
            a_plain_life
            a_release_keeps_its_place_before_what_came_later
            a_release_or_an_expiry_does_not_clear_a_suspect
            a_replay_with_other_bytes_to_another_queue
            a_replayed_message_owns_its_key_again
            a_replayed_message_that_poisons_again
            a_run_ends_before_a_suspect
            a_run_ends_where_it_must
            a_scheduled_retry_blocks_its_stream_until_it_is_through
            a_stream_that_passes_goes_on_without_its_head
            a_suspect_behind_a_leased_one_holds_nobody_up
            a_suspect_in_one_queue_holds_the_process_up_in_another
            a_suspect_waits_for_empty_hands
            attempts_are_given_back
            an_adopted_message_takes_the_same_road
            an_available_stream_goes_on_without_the_failed_one
            an_operator_sets_aside_what_a_worker_holds
            bystanders_are_never_blamed
            deferred_and_released_messages_are_not_failures
            effects_commit_with_the_acknowledgement_or_not_at_all
            followers_can_be_released
            hastening_and_cancelling
            leases_run_out_and_can_be_renewed
            pausing_a_queue_or_a_type
            poisoned_while_others_of_its_stream_are_out
            retries_then_dead_then_replayed
            stages_only_ever_add
            the_most_urgent_and_longest_due_comes_first
            the_policy_in_force_now_decides
            without_retries_the_first_failure_is_the_last
        }
    };
}

/// One test per promise.
#[doc(hidden)]
#[macro_export]
macro_rules! promises {
    ($fixture:expr; $($group:ident { $($name:ident)* })*) => { $(
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $name() {
                    $crate::fixture::keep($fixture, $crate::conformance::$group::$name);
                }
            )*
        }
    )* };
}

/// One test per script.
#[doc(hidden)]
#[macro_export]
macro_rules! lives {
    ($fixture:expr; $($name:ident)*) => {
        mod lives {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $name() {
                    $crate::fixture::keep($fixture, async |fixture: &mut dyn $crate::Fixture| {
                        $crate::script::check(fixture, &$crate::script::life(stringify!($name))).await;
                    });
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The words between the braces of the list in `conformance!`.
    fn listed() -> BTreeSet<String> {
        let source = include_str!("mod.rs");
        let list = source.split("macro_rules! conformance").nth(1).unwrap_or_default();
        let list = list.split("/// One test per promise.").next().unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn no_promise_and_no_script_is_forgotten() {
        let (listed, here) = (listed(), Path::new(env!("CARGO_MANIFEST_DIR")));
        let mut names: Vec<String> = Vec::new();
        for file in std::fs::read_dir(here.join("src/conformance")).unwrap() {
            let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let functions = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            names.extend(functions.map(|line| line.split('(').next().unwrap_or_default().to_owned()));
        }
        for file in std::fs::read_dir(here.join("scripts")).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            names.extend(name.strip_suffix(".txt").map(str::to_owned));
        }
        assert!(names.len() >= 100, "only {} promises", names.len());
        let forgotten: Vec<_> = names.iter().filter(|name| !listed.contains(*name)).collect();
        assert!(forgotten.is_empty(), "not in the list: {forgotten:?}");
    }
}
