//! Random scripts on the memory store: the same script always ends the same, and what must always
//! hold does.

use sickbay_testkit::model::{compare, random_script, run};

use crate::memory::MemoryFixture;

#[test]
fn two_memory_stores_never_differ() {
    for seed in 0..40 {
        compare(MemoryFixture::new, MemoryFixture::new, seed, 60);
    }
}

#[test]
fn after_every_random_command_the_counts_add_up() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in 0..150 {
        let script = random_script(seed, 80);
        let transcript = runtime.block_on(run(&mut MemoryFixture::new(), &script));
        let wrong = transcript.iter().find(|step| step.contains("DOES NOT ADD UP"));
        assert_eq!(wrong, None, "seed {seed}");
    }
}

#[test]
fn random_scripts_go_down_every_road() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut all = String::new();
    for seed in 0..100 {
        let script = random_script(seed, 80);
        all += &runtime.block_on(run(&mut MemoryFixture::new(), &script)).join("\n");
    }
    let roads = [
        "alone",
        "CrashBudgetSpent",
        "MaxDeliveryCountExceeded",
        "NonRetryableError",
        "Operator",
        "Held",
        "duplicate of",
        "lease lost",
        "effect failed",
        "LeaseExpired",
        "Replayed",
        "Probing",
        "refused",
        "not found",
        "-> yes",
        "discarded 1",
        "removed 1",
        "candidates 1",
        "Scheduled",
    ];
    for road in roads {
        assert!(all.contains(road), "no random script ever met {road:?}");
    }
}
