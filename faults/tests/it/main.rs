//! Short versions of what `cargo xtask faults` does at length, and the proof that it would find something.

mod by_itself;
#[cfg(unix)]
mod postgres;

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sickbay_faults::disk::Lie;
use sickbay_faults::power::Plan;
use sickbay_faults::vfs::Drive;
use sickbay_faults::{broken, flips, group, migration, power};

/// One drive for all tests of this program; a test has it for itself.
static DRIVE: LazyLock<Mutex<Arc<Drive>>> = LazyLock::new(|| Mutex::new(Arc::new(Drive::new("faults-test"))));

fn with_drive<T>(act: impl FnOnce(&Arc<Drive>) -> T) -> T {
    act(&DRIVE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn plan() -> Plan {
    Plan { steps: 12, variants: 1, ..Plan::default() }
}

#[test]
fn after_a_power_cut_the_store_is_what_it_was_before_or_after_the_command_under_way() {
    let outcome = with_drive(|drive| power::run(drive, 4242, plan()));
    assert!(outcome.cuts > 100, "{} cuts", outcome.cuts);
    assert_eq!(outcome.findings, Vec::<String>::new());
}

#[test]
fn after_a_power_cut_with_several_callers_the_store_holds_all_that_was_answered_and_the_rest_in_order() {
    let mut outcomes = (4242..4245).map(|seed| with_drive(|drive| power::run_group(drive, seed, plan())));
    assert!(outcomes.all(|outcome| {
        assert_eq!(outcome.findings, Vec::<String>::new());
        outcome.cuts > 50
    }));
}

#[test]
fn several_callers_at_once_are_answered_as_if_they_came_one_by_one() {
    // What it records is compared with the model on the way.
    (100..140).for_each(|seed| drop(with_drive(|drive| group::record(drive, seed, 7))));
}

#[test]
fn a_delivery_that_was_lost_and_claimed_again_at_once_comes_back_when_the_store_is_closed() {
    let outcome =
        with_drive(|drive| power::run_group(drive, 1_000_008, Plan { variants: 1, ..Plan::default() }));
    assert_eq!(outcome.findings, Vec::<String>::new());
}

#[test]
fn a_store_that_answers_one_of_several_callers_before_it_commits_is_found_out() {
    let early = Plan { answers_early: true, findings_max: 1, ..plan() };
    assert_eq!(with_drive(|drive| power::run_group(drive, 4242, early)).findings.len(), 1);
}

#[test]
fn a_disk_that_lies_about_syncing_is_found_out() {
    let outcome =
        with_drive(|drive| power::run(drive, 4242, Plan { lies: Lie::Always, findings_max: 1, ..plan() }));
    assert_eq!(outcome.findings.len(), 1);
}

#[test]
fn a_power_cut_during_a_migration_leaves_every_message_to_the_old_or_the_new_program() {
    for seed in [4242, 4243] {
        let outcome = with_drive(|drive| migration::run(drive, seed, plan()));
        assert!(outcome.cuts > 20, "{} cuts", outcome.cuts);
        assert_eq!(outcome.findings, Vec::<String>::new());
    }
}

#[test]
fn a_disk_that_lies_during_a_migration_is_found_out() {
    let lying = Plan { lies: Lie::Always, findings_max: 1, ..plan() };
    assert_eq!(with_drive(|drive| migration::run(drive, 4242, lying)).findings.len(), 1);
}

#[test]
fn a_store_that_answers_before_it_commits_is_found_out() {
    let early = Plan { answers_early: true, findings_max: 1, ..plan() };
    assert_eq!(with_drive(|drive| power::run(drive, 4242, early)).findings.len(), 1);
}

#[test]
fn when_the_disk_fails_nothing_acknowledged_is_lost_and_nothing_half_done_stays() {
    let outcome = with_drive(|drive| broken::run(drive, 4242, 40));
    assert!(outcome.faults > 10 && outcome.went_on > 0 && outcome.cuts > 10, "{outcome:?}");
    assert_eq!(outcome.findings, Vec::<String>::new());
}

#[test]
fn damage_is_noticed_or_harmless() {
    let outcome = with_drive(|drive| flips::run(drive, 4242, 150, flips::Guard::There));
    assert!(outcome.noticed > 20 && outcome.harmless > 20, "{outcome:?}");
    assert_eq!(outcome.findings, Vec::<String>::new());
}

#[test]
fn without_sums_and_mark_damage_would_go_unnoticed() {
    let outcome = with_drive(|drive| flips::run(drive, 4242, 300, flips::Guard::Removed));
    assert_ne!(outcome.findings, Vec::<String>::new());
}
