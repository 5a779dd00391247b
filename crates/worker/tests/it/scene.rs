//! What the tests share: a queue in a memory store, a source that can be made to fail, and waiting
//! without sleeping.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::{Desk, Overview, ProcessId, Pusher, Source, SourceError, Turn};
use sickbay_core::quarantine::{DeadLetter, MessageView, PageRequest, QuarantineFilter};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::{QueueStats, TypeGate};
use sickbay_core::{
    Clock, Delivery, ErrorKind, Key, LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy,
    StoreError, WorkerName,
};
use sickbay_store::MemoryStore;
use sickbay_testkit::ManualClock;
use sickbay_worker::{Handler, StoreSource, Worker};
use tokio::sync::Semaphore;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A queue, its store and its clock.
pub(crate) struct Scene {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) queue: QueueName,
    pub(crate) source: Arc<Faulty>,
}

impl Scene {
    pub(crate) async fn new(policy: QueuePolicy) -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        let queue = QueueName::new("orders").unwrap();
        store.define_queue(&queue, policy).await.unwrap();
        let worker = WorkerName::new("worker-1").unwrap();
        let inner = StoreSource::new(store.clone(), queue.clone(), worker, ProcessId(7));
        let source = Arc::new(Faulty::new(inner));
        Self { clock, store, queue, source }
    }

    /// So many attempts, ten seconds apart.
    pub(crate) async fn with_attempts(attempts: u32) -> Self {
        Self::new(QueuePolicy::with_retry(RetryPolicy::cooldown(attempts, 10 * SECOND))).await
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    pub(crate) fn worker(&self, handler: impl Handler + 'static) -> Worker {
        Worker::new(self.source.clone(), handler, self.clock())
    }

    pub(crate) fn message(&self, payload: &str) -> NewMessage {
        NewMessage::new(self.queue.clone(), payload.to_owned())
    }

    pub(crate) async fn push(&self, payload: &str) -> MessageId {
        self.push_message(self.message(payload)).await
    }

    pub(crate) async fn push_message(&self, message: NewMessage) -> MessageId {
        self.store.push(vec![message]).await.unwrap()[0].id()
    }

    pub(crate) async fn stats(&self) -> QueueStats {
        self.store.stats(&self.queue).await.unwrap()
    }

    pub(crate) async fn view(&self, id: MessageId) -> MessageView {
        self.store.find(id.to_string().parse().unwrap()).await.unwrap().expect("the message")
    }

    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        self.store.quarantine(&QuarantineFilter::default(), PageRequest::default()).await.unwrap().rows
    }

    /// Waits until so many messages are completed.
    pub(crate) async fn completed(&self, count: u64) {
        eventually("messages are completed", async || self.stats().await.completed == count).await;
    }

    /// Waits until so many messages are in quarantine.
    pub(crate) async fn quarantined(&self, count: u64) {
        eventually("messages are quarantined", async || self.stats().await.dead == count).await;
    }

    /// Waits until so many messages have failed and wait for their retry.
    pub(crate) async fn failed(&self, count: u64) {
        eventually("messages wait for their retry", async || self.stats().await.failed == count).await;
    }

    /// Moves the clock in steps, and lets everyone react to each.
    pub(crate) async fn pass(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(SECOND);
            settle_down().await;
        }
    }
}

/// Lets everything run that can run now.
pub(crate) async fn settle_down() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Lets others run until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..100_000 {
        if holds().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came true that {what}");
}

/// A handler's notes: what ran, and how many at once.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    seen: Arc<Mutex<Vec<String>>>,
    now: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl Notes {
    pub(crate) fn add(&self, text: impl Into<String>) {
        self.seen.lock().unwrap().push(text.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub(crate) fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn at_once(&self) -> u32 {
        self.now.load(Ordering::SeqCst)
    }

    pub(crate) fn most_at_once(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) async fn reach(&self, count: usize) {
        eventually("handlers have run", async || self.count() >= count).await;
    }
}

/// A door that handlers wait at until the test lets them through.
pub(crate) fn door() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// A source that can be made to fail.
pub(crate) struct Faulty {
    inner: Arc<dyn Source>,
    /// Turns fail before they reach the store.
    pub(crate) turns_fail: AtomicBool,
    /// The next turn with settlements reaches the store, but its answer is lost.
    pub(crate) answer_is_lost: AtomicBool,
    /// Turns with settlements wait for a permit.
    pub(crate) settling: Semaphore,
    /// The claims that turns under way settle parts of, and whether two of them ever settled parts of one.
    claims: Mutex<Vec<u64>>,
    pub(crate) a_claim_was_split: AtomicBool,
    /// Turns say that the store cannot go on.
    pub(crate) stops: AtomicBool,
    /// Renewals fail.
    pub(crate) renewals_fail: AtomicBool,
    /// How many renewals there were.
    pub(crate) renewals: AtomicU32,
}

impl Faulty {
    fn new(inner: impl Source + 'static) -> Self {
        Self {
            inner: Arc::new(inner),
            turns_fail: AtomicBool::new(false),
            answer_is_lost: AtomicBool::new(false),
            settling: Semaphore::new(Semaphore::MAX_PERMITS),
            claims: Mutex::default(),
            a_claim_was_split: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            renewals_fail: AtomicBool::new(false),
            renewals: AtomicU32::new(0),
        }
    }
}

impl Faulty {
    fn begin(&self, claims: &[u64]) {
        let mut under_way = self.claims.lock().unwrap();
        let split = claims.iter().any(|claim| under_way.contains(claim));
        self.a_claim_was_split.fetch_or(split, Ordering::SeqCst);
        under_way.extend(claims);
    }
}

fn unreachable() -> StoreError {
    StoreError::new(ErrorKind::TryAgain, "SB0000", "the store cannot be reached")
}

#[async_trait]
impl Source for Faulty {
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError> {
        if self.turns_fail.load(Ordering::SeqCst) {
            return Err(unreachable());
        }
        if self.stops.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::Stop, "SB0000", "the disk is gone"));
        }
        let settles = !turn.settlements.is_empty();
        let mut claims: Vec<u64> = turn.settlements.iter().map(|settlement| settlement.token.claim).collect();
        claims.dedup();
        self.begin(&claims);
        if settles {
            self.settling.acquire().await.unwrap().forget();
        }
        let answer = self.inner.turn(turn).await;
        self.claims.lock().unwrap().retain(|claim| !claims.contains(claim));
        if settles && self.answer_is_lost.swap(false, Ordering::SeqCst) { Err(unreachable()) } else { answer }
    }

    async fn renew(&self, tokens: Vec<LeaseToken>, lease: Duration) -> Result<Vec<LeaseToken>, SourceError> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        if self.renewals_fail.load(Ordering::SeqCst) {
            return Err(unreachable());
        }
        self.inner.renew(tokens, lease).await
    }

    async fn policy(&self) -> Result<Arc<QueuePolicy>, SourceError> {
        self.inner.policy().await
    }

    async fn set_type_gate(&self, message_type: &MessageType, gate: TypeGate) -> Result<(), SourceError> {
        self.inner.set_type_gate(message_type, gate).await
    }

    async fn is_done(&self, key: &Key) -> Result<bool, SourceError> {
        self.inner.is_done(key).await
    }
}
