//! Random scripts on the memory store: the same script always ends the same, and what must always
//! hold does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_testkit::model::{compare, random_script, run};
use sickbay_testkit::{Fixture, ManualClock, fixture, script};

use crate::memory::MemoryFixture;

/// A store that does not notice that its process died.
struct Forgetful(MemoryFixture);

impl Fixture for Forgetful {
    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    fn clock(&self) -> &ManualClock {
        self.0.clock()
    }

    fn process(&self) -> ProcessId {
        self.0.process()
    }

    fn crash(&mut self) {}

    fn reopen(&mut self) {}

    fn effect(&self, key: &str) -> Effect {
        self.0.effect(key)
    }

    fn effects(&self) -> Vec<String> {
        self.0.effects()
    }

    fn damage(&self, id: MessageId) {
        self.0.damage(id);
    }
}

/// What a test that must fail says.
fn complaint(test: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(test)).expect_err("it should have failed");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn stores_that_differ_are_shown_by_the_shortest_script() {
    let said = complaint(|| {
        for seed in 0..20 {
            compare(MemoryFixture::new, || Forgetful(MemoryFixture::new()), seed, 80);
        }
    });
    let script: Vec<&str> = said.lines().skip(2).take_while(|line| !line.is_empty()).collect();
    assert_eq!(script.len(), 3, "a push, a lease and the crash are enough:\n{said}");
    assert_eq!(script[2], "crash");
}

#[test]
fn a_script_with_a_wrong_answer_is_shown_with_all_its_answers() {
    let said = complaint(|| {
        fixture::keep(MemoryFixture::new(), async |fixture: &mut dyn Fixture| {
            script::check(fixture, "push 42 -> m0\nlease -> m0 attempt 2\ndone m0\nfly").await;
        });
    });
    for part in [
        "2 answers differ",
        "push 42",
        "! lease",
        "-> m0 attempt 1",
        "m0 attempt 2   was expected",
        "\"fly\"",
    ] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
}

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
