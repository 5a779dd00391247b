//! Short versions of what `cargo xtask faults postgres` does at length.

use std::path::Path;

use sickbay_faults::postgres::{Defect, Plan, at_once, workers};

#[test]
fn workers_that_are_killed_at_random_lose_nothing_keep_every_order_and_blame_only_the_poisoned() {
    let plan = Plan { workers: 4, messages: 1000, streams: 20, poisoned: 4, kill_every_ms: 400, seed: 4242 };
    let outcome = workers(Path::new(env!("CARGO_BIN_EXE_sickbay-faults")), plan).unwrap();
    assert_eq!((outcome.lost, outcome.unexplained), (Vec::new(), Vec::new()));
    assert_eq!((outcome.handled, outcome.quarantined, outcome.blamed), (1000, 4, 0));
    assert!(outcome.kills > 0 && outcome.deaths >= outcome.kills && outcome.redeliveries > 0);
}

#[test]
fn programs_that_are_stopped_in_the_middle_of_their_calls_leave_everything_in_order() {
    let outcome = at_once(1..4, None).unwrap();
    assert_eq!(outcome.findings, Vec::<String>::new());
    assert!(outcome.schedules == 3 && outcome.stopped > 30 && outcome.waits > 5, "{outcome:?}");
}

/// Defects that show only when two transactions meet, each with the seed of a schedule in which they often do.
const DEFECTS: [(u64, Defect); 7] = [
    (
        130,
        Defect {
            function: "exchange",
            says: "pg_try_advisory_xact_lock_shared('sickbay.lease'::regclass::oid::integer, v_alone)",
            instead: "true",
        },
    ),
    (7, Defect { function: "locks_all_of", says: "RETURN false", instead: "RETURN true" }),
    (
        1,
        Defect {
            function: "choose",
            says: "AND key = w.stream FOR UPDATE SKIP LOCKED",
            instead: "AND key = w.stream FOR UPDATE",
        },
    ),
    (76, Defect { function: "gate_at", says: " FOR KEY SHARE SKIP LOCKED", instead: "" }),
    (
        57,
        Defect {
            function: "begin_act",
            says: "EXIT WHEN sickbay.locks_messages(p_ids, p_targets)",
            instead: "EXIT",
        },
    ),
    (12, Defect { function: "candidates", says: "LIMIT 1 FOR UPDATE SKIP LOCKED", instead: "LIMIT 1" }),
    (
        26,
        Defect {
            function: "settle",
            says: "PERFORM sickbay.lock_stream(s.queue, s.stream)",
            instead: "NULL",
        },
    ),
];

#[test]
fn what_goes_wrong_only_when_two_transactions_meet_is_found_out() {
    for (seed, defect) in DEFECTS {
        let outcome = at_once(std::iter::repeat_n(seed, 30), Some(defect)).unwrap();
        assert_eq!(outcome.findings.len(), 1, "{defect:?}");
    }
}
