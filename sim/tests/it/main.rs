//! The short version of the simulation, for every run of the tests. `cargo xtask sim` is the long one.

use std::path::Path;
use std::time::Duration;

use sickbay_sim::generate::script;
use sickbay_sim::run::{Plan, read, run_folder, run_plan, run_seed};
use sickbay_sim::soak::soak;
use sickbay_sim::stores::Kind;
use sickbay_sim::world::{Looks, run};

fn short(seeds: u64, steps: usize, kind: Kind) -> Plan {
    Plan {
        seed: 1,
        seeds,
        steps,
        sqlite_every: u64::from(kind == Kind::Sqlite),
        memory: kind == Kind::Memory,
        postgres: kind == Kind::Postgres,
        threads: 2,
        shrink_for: Duration::from_secs(20),
    }
}

fn nothing_is_found(plan: &Plan) {
    let report = run_plan(plan);
    let found: Vec<String> = report.findings.iter().map(sickbay_sim::run::Finding::file).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(
        report.schedules.values().sum::<u64>() >= plan.seeds && report.done.deliveries > plan.seeds,
        "{report:?}"
    );
}

#[test]
fn random_schedules_in_memory_break_no_promise() {
    nothing_is_found(&short(60, 800, Kind::Memory));
}

#[test]
fn random_schedules_on_sqlite_break_no_promise() {
    nothing_is_found(&short(16, 300, Kind::Sqlite));
}

mod postgres {
    use super::*;

    #[test]
    fn random_schedules_break_no_promise() {
        nothing_is_found(&short(6, 300, Kind::Postgres));
    }

    #[test]
    fn every_schedule_that_once_failed_passes() {
        what_once_failed_passes(&[Kind::Postgres]);
    }
}

#[test]
fn a_schedule_ends_the_same_each_time_it_is_run() {
    for seed in 1..6 {
        assert_eq!(run_seed(Kind::Memory, seed, 600), run_seed(Kind::Memory, seed, 600), "seed {seed}");
    }
}

fn what_once_failed_passes(kinds: &[Kind]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let results = run_folder(&folder, kinds).unwrap();
    assert!(!results.is_empty());
    for (name, outcome) in results {
        assert_eq!(outcome, Ok(()), "{name}");
    }
}

#[test]
fn every_schedule_that_once_failed_passes() {
    what_once_failed_passes(&[Kind::Memory, Kind::Sqlite]);
}

#[test]
fn a_script_survives_being_written_down_and_read_again() {
    let script = script(11, 400);
    let text: Vec<String> = script.iter().map(ToString::to_string).collect();
    assert_eq!(read(&format!("# a comment\n{}\n", text.join("\n"))).unwrap(), script);
}

#[test]
fn a_step_that_does_not_exist_is_refused_and_not_passed_over() {
    let failed = run(Kind::Memory, Looks::Always, &read("push q\nfly").unwrap()).unwrap_err();
    assert_eq!((failed.at, failed.violation.invariant), (1, "script"));
}

#[test]
fn a_short_soak_loses_nothing_and_stays_flat() {
    let soaked = soak(1, Duration::from_secs(1), u64::MAX, u64::MAX).unwrap();
    assert!(soaked.messages > 100 && soaked.samples.len() >= 6, "{soaked:?}");
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn every_known_defect_is_found() {
    let hunts = sickbay_sim::bugs::hunt_all(None, |_| {});
    let missed: Vec<_> = hunts
        .iter()
        .filter(|hunt| hunt.finder == sickbay_sim::bugs::Finder::Simulator && hunt.shown.is_none())
        .map(|hunt| hunt.name)
        .collect();
    assert!(hunts.len() >= 20 && missed.is_empty(), "not found: {missed:?}");
}
