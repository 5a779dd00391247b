//! The memory store keeps every promise.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, ProcessId, Pusher, Store};
use sickbay_core::verdict::Effect;
use sickbay_core::{Clock, MessageId, NewMessage, QueueName, QueuePolicy, WorkerName};
use sickbay_store::{MemoryEffect, MemoryStore, SystemClock};
use sickbay_testkit::{Fixture, ManualClock};

/// A memory store. Its crash is what a store finds that is opened after one.
pub(crate) struct MemoryFixture {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    written: Arc<Mutex<Vec<String>>>,
}

impl MemoryFixture {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        Self { clock, store, written: Arc::default() }
    }
}

impl Fixture for MemoryFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn process(&self) -> ProcessId {
        self.store.process()
    }

    fn crash(&mut self) {
        self.store.crash();
    }

    fn reopen(&mut self) {}

    fn effect(&self, key: &str) -> Effect {
        let (written, key) = (self.written.clone(), key.to_owned());
        MemoryEffect::effect(move || {
            if key == "fail" {
                return Err("the handler's table is full".to_owned());
            }
            written.lock().unwrap().push(key);
            Ok(())
        })
    }

    fn effects(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }

    fn damage(&self, id: MessageId) {
        assert!(self.store.damage(id));
    }
}

sickbay_testkit::conformance!(MemoryFixture::new());

fn claim(store: &MemoryStore, wait: Duration) -> Exchange {
    Exchange::claim(Claim {
        queue: QueueName::new("q").unwrap(),
        worker: WorkerName::new("w").unwrap(),
        process: store.process(),
        max: 1,
        wait,
        lease: Duration::from_secs(30),
    })
}

#[test]
fn on_the_real_clock_a_claim_waits_for_what_comes_due() {
    let clock = Arc::new(SystemClock::new());
    let store = MemoryStore::new(clock.clone());
    let queue = QueueName::new("q").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        store.define_queue(&queue, QueuePolicy::default()).await.unwrap();
        let delay = Duration::from_millis(30);
        let due_at = clock.now().plus(delay);
        store.push(vec![NewMessage::new(queue, "a").delay(delay)]).await.unwrap();
        let exchanged = store.exchange(claim(&store, Duration::from_secs(60))).await.unwrap();
        assert_eq!(exchanged.deliveries.len(), 1);
        assert!(clock.now() >= due_at);
        let exchanged = store.exchange(claim(&store, Duration::from_millis(20))).await.unwrap();
        assert!(exchanged.deliveries.is_empty(), "it gives up when its time is over");
    });
}

#[test]
fn a_closed_store_refuses_everything_and_lets_nobody_wait() {
    let store = MemoryStore::new(Arc::new(ManualClock::new()));
    let queue = QueueName::new("q").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        store.define_queue(&queue, QueuePolicy::default()).await.unwrap();
        let waiting = store.exchange(claim(&store, Duration::from_secs(60)));
        let (waited, ()) = tokio::join!(waiting, async { store.close() });
        assert_eq!(waited.unwrap_err().code(), "SB0013");
        assert_eq!(store.stats(&queue).await.unwrap_err().code(), "SB0013");
        let refused = store.push(vec![NewMessage::new(queue.clone(), "a")]).await;
        assert_eq!(refused.unwrap_err().code(), "SB0013");
    });
}
