//! What a store's tests bring along so that the suite can drive it.

use std::sync::Arc;

use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;

use crate::clock::ManualClock;

/// A store under test, and what must be possible with it.
pub trait Fixture: Send + Sync {
    /// The store as it is now. It may be another one after a crash.
    fn store(&self) -> Arc<dyn Store>;

    /// The clock the store runs on.
    fn clock(&self) -> &ManualClock;

    /// The process that owns the store now.
    fn process(&self) -> ProcessId;

    /// The owning process dies without a word, and a new one opens the store.
    fn crash(&mut self);

    /// The store is closed cleanly and opened again.
    fn reopen(&mut self);

    /// An effect that writes `key` into the handler's own table; it fails if the key is "fail".
    fn effect(&self, key: &str) -> Effect;

    /// What is in the handler's own table, in order of writing.
    fn effects(&self) -> Vec<String>;

    /// Changes a stored byte of a message's payload behind the store's back.
    fn damage(&self, id: MessageId);
}

/// Drives one promise to its end on a runtime of its own, and then checks that the counts add up.
pub fn keep(mut fixture: impl Fixture, promise: impl AsyncFnOnce(&mut dyn Fixture)) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    runtime.block_on(async {
        promise(&mut fixture).await;
        check_sums(&fixture).await;
    });
}

/// I1: in every queue the counts add up.
pub async fn check_sums(fixture: &dyn Fixture) {
    let store = fixture.store();
    let queues = store.queues().await.unwrap_or_else(|error| panic!("queues: {error}"));
    for (queue, _) in queues {
        let stats = store.stats(&queue).await.unwrap_or_else(|error| panic!("stats: {error}"));
        assert!(stats.adds_up(), "the counts of {queue} do not add up: {stats:#?}");
    }
}
