//! Short versions of what `cargo xtask faults postgres` does at length.

use std::path::Path;

use sickbay_faults::postgres::{Plan, workers};

#[test]
fn workers_that_are_killed_at_random_lose_nothing_keep_every_order_and_blame_only_the_poisoned() {
    let plan = Plan { workers: 4, messages: 1000, streams: 20, poisoned: 4, kill_every_ms: 400, seed: 4242 };
    let outcome = workers(Path::new(env!("CARGO_BIN_EXE_sickbay-faults")), plan).unwrap();
    assert_eq!((outcome.lost, outcome.unexplained), (Vec::new(), Vec::new()));
    assert_eq!((outcome.handled, outcome.quarantined, outcome.blamed), (1000, 4, 0));
    assert!(outcome.kills > 0 && outcome.deaths >= outcome.kills && outcome.redeliveries > 0);
}
