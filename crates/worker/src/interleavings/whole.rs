//! Many orders of all that goes on in a worker: its lanes, its runners, the keeper of its leases, the buffer, the clock
//! and a stop, on a real store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use shuttle::current::TaskId;
use shuttle::future::{block_on, spawn};
use shuttle::scheduler::RandomScheduler;
use shuttle::thread;
use sickbay_core::message::Status;
use sickbay_core::port::{Desk, Overview, Pusher, Source, SourceError, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Clock, Delivery, Key, LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, Timestamp,
    Verdict, WorkerName,
};
use sickbay_store::MemoryStore;
use sickbay_testkit::ManualClock;

use crate::flag::Flag;
use crate::{Context, Handler, StoreSource, Worker};

/// Orders tried for each test.
const ORDERS: usize = 1_000;
const STACK_BYTES: usize = 256 << 10;
const LEASE: Duration = Duration::from_secs(30);

fn in_many_orders<F: Future<Output = ()>>(test: impl Fn() -> F + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    shuttle::Runner::new(RandomScheduler::new(ORDERS), config).run(move || block_on(test()));
}

/// Lets others go on, perhaps.
async fn yield_now() {
    thread::yield_now();
    tokio::task::yield_now().await;
}

fn some(most: u32) -> u32 {
    shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 0..=most)
}

/// What a source saw of a worker.
#[derive(Default)]
struct Seen {
    /// Until when each delivery that is not settled is leased.
    leases: BTreeMap<LeaseToken, Timestamp>,
    /// Settled, and the lane that handed the settlement in has not come back yet.
    answered: Vec<(TaskId, LeaseToken)>,
    /// Settled, and the worker knows it.
    known: BTreeSet<LeaseToken>,
    /// Those of them when the keeper last looked at the clock, as it does before it looks for what to renew.
    known_then: BTreeSet<LeaseToken>,
    renewals: u32,
    /// What must never happen.
    wrong: Vec<String>,
}

/// A source that watches what a worker does to its leases. It may be dropped only where the store's own calls may:
/// what it was handed would be lost.
struct Watched {
    inner: StoreSource,
    clock: ManualClock,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

#[async_trait]
impl Source for Watched {
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError> {
        let lane = shuttle::current::me();
        {
            let mut seen = self.seen();
            let (known, rest) =
                std::mem::take(&mut seen.answered).into_iter().partition(|(by, _)| *by == lane);
            seen.answered = rest;
            let known: Vec<(TaskId, LeaseToken)> = known;
            seen.known.extend(known.into_iter().map(|(_, token)| token));
        }
        thread::yield_now();
        let tokens: Vec<LeaseToken> = turn.settlements.iter().map(|settlement| settlement.token).collect();
        let (settled, deliveries) = self.inner.turn(turn).await?;
        {
            let mut seen = self.seen();
            for token in tokens {
                seen.leases.remove(&token);
                seen.answered.push((lane, token));
            }
            let until = self.clock.now().plus(LEASE);
            seen.leases.extend(deliveries.iter().map(|delivery| (delivery.token(), until)));
        }
        thread::yield_now();
        Ok((settled, deliveries))
    }

    async fn renew(&self, tokens: Vec<LeaseToken>, lease: Duration) -> Result<Vec<LeaseToken>, SourceError> {
        {
            let mut seen = self.seen();
            let again = tokens.iter().find(|token| seen.known_then.contains(token)).copied();
            seen.wrong.extend(again.map(|token| format!("{token:?} was renewed although it was settled")));
            seen.renewals += 1;
        }
        thread::yield_now();
        let lost = self.inner.renew(tokens.clone(), lease).await?;
        let mut seen = self.seen();
        let until = self.clock.now().plus(lease);
        for token in tokens {
            if let Some(lease) = seen.leases.get_mut(&token) {
                if lost.contains(&token) {
                    seen.wrong.push(format!("the lease of {token:?} ran out"));
                } else {
                    *lease = until;
                }
            }
        }
        Ok(lost)
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

/// When the keeper last looked at the clock before it went to sleep, and who it is.
#[derive(Default)]
struct Kept {
    at: Timestamp,
    by: Option<TaskId>,
}

/// A manual clock that knows the keeper: nobody else sleeps for so short a time.
struct KeepersClock {
    clock: ManualClock,
    kept: Arc<Mutex<Kept>>,
    seen: Arc<Mutex<Seen>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clock for KeepersClock {
    fn now(&self) -> Timestamp {
        thread::yield_now();
        if lock(&self.kept).by == Some(shuttle::current::me()) {
            let mut seen = lock(&self.seen);
            seen.known_then = seen.known.clone();
        }
        self.clock.now()
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        let now = self.clock.now();
        if until.since(now) <= LEASE / 3 {
            *lock(&self.kept) = Kept { at: now, by: Some(shuttle::current::me()) };
        }
        self.clock.wait_for(until)
    }

    fn on_tick(&self, tick: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.clock.on_tick(tick);
    }
}

/// A store with messages in it, and somebody who watches.
struct Scene {
    clock: ManualClock,
    kept: Arc<Mutex<Kept>>,
    store: Arc<MemoryStore>,
    seen: Arc<Mutex<Seen>>,
    messages: u64,
}

impl Scene {
    async fn new(messages: u64) -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        let ages = Duration::from_secs(24 * 3600);
        let policy =
            QueuePolicy { lease: LEASE, time_budget: ages, keep_completed: ages, ..QueuePolicy::default() };
        store.define_queue(&queue(), policy).await.unwrap();
        let all = (0..messages).map(|number| NewMessage::new(queue(), number.to_string()));
        store.push(all.collect()).await.unwrap();
        Self { clock, kept: Arc::default(), store, seen: Arc::default(), messages }
    }

    fn worker(&self, handler: impl Handler + 'static) -> Worker {
        let process = self.store.process();
        let inner = StoreSource::new(self.store.clone(), queue(), WorkerName::new("w").unwrap(), process);
        let source = Watched { inner, clock: self.clock.clone(), seen: self.seen.clone() };
        let (kept, seen) = (self.kept.clone(), self.seen.clone());
        let clock = KeepersClock { clock: self.clock.clone(), kept, seen };
        Worker::new(Arc::new(source), handler, Arc::new(clock))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Moves time on by a sixth of a lease, and waits until the keeper has noticed: it may be late by any number of steps
    /// of others, but not by more than that.
    async fn tick(&self) {
        self.clock.advance(LEASE / 6);
        let now = self.clock.now();
        while lock(&self.kept).at < now {
            yield_now().await;
        }
        let seen = self.seen();
        assert!(seen.leases.values().all(|until| *until > now), "a live lease ran out: {:?}", seen.leases);
    }

    async fn completed(&self) -> u64 {
        self.store.stats(&queue()).await.unwrap().completed
    }

    /// Nothing is held, nobody is blamed, and every delivery but the one that was completed was a release.
    async fn all_is_well(&self) {
        assert_eq!(self.seen().wrong, Vec::<String>::new());
        let stats = self.store.stats(&queue()).await.unwrap();
        assert_eq!((stats.active, stats.failed, stats.dead), (0, 0, 0), "{stats:?}");
        let mut completed = 0;
        for number in 1..=self.messages {
            let id = MessageId::from_number(number).unwrap();
            let view = self.store.find(id.to_string().parse().unwrap()).await.unwrap().unwrap();
            let counters = view.counters;
            let done = u32::from(view.status == Status::Completed);
            completed += u64::from(done);
            assert_eq!((counters.failures, counters.crashes, counters.expiries), (0, 0, 0), "{view:?}");
            assert_eq!(counters.deliveries, counters.releases + done, "{view:?}");
        }
        assert_eq!(completed, stats.completed);
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

/// A handler that takes some steps.
fn busy() -> impl Handler + 'static {
    |_: Context| async {
        for _ in 0..some(4) {
            yield_now().await;
        }
        Verdict::done()
    }
}

/// A handler that ends when it may.
fn patient(may_end: &Arc<Flag>) -> impl Handler + 'static {
    let may_end = may_end.clone();
    move |_: Context| {
        let may_end = may_end.clone();
        async move {
            may_end.up().await;
            Verdict::done()
        }
    }
}

#[test]
fn interleavings_of_a_worker_and_its_stop_settle_every_delivery_and_hold_nothing_afterwards() {
    in_many_orders(async || {
        let scene = Scene::new(4).await;
        let running = scene.worker(busy()).concurrency(2).prefetch(2).start();
        for _ in 0..some(30) {
            yield_now().await;
        }
        let stopped = running.stop().await;
        assert_eq!(stopped.abandoned, 0);
        scene.all_is_well().await;
        assert!(scene.seen().leases.is_empty(), "{:?}", scene.seen().leases);
    });
}

#[test]
fn interleavings_of_handlers_that_never_end_and_a_stop_give_everything_back() {
    in_many_orders(async || {
        let scene = Arc::new(Scene::new(4).await);
        let limit = Duration::from_secs(1);
        let running =
            scene.worker(patient(&Arc::default())).concurrency(2).prefetch(2).stop_limit(limit).start();
        for _ in 0..some(30) {
            yield_now().await;
        }
        // The stop looks at the clock first; then time passes beside it.
        let time_passes = async {
            let scene = scene.clone();
            let passing = async move {
                for _ in 0..3 {
                    scene.clock.advance(limit / 2);
                    yield_now().await;
                }
            };
            spawn(passing).await.unwrap();
        };
        futures::join!(running.stop(), time_passes);
        scene.all_is_well().await;
        assert_eq!(scene.completed().await, 0);
        assert!(scene.seen().leases.is_empty(), "{:?}", scene.seen().leases);
    });
}

#[test]
fn interleavings_of_the_keeper_and_settlements_keep_every_live_lease_and_renew_no_settled_one() {
    in_many_orders(async || {
        let scene = Scene::new(3).await;
        let flags: [Arc<Flag>; 3] = std::array::from_fn(|_| Arc::default());
        let may_end = flags.clone();
        let handler = move |context: Context| {
            let number: usize = String::from_utf8_lossy(context.payload()).parse().unwrap();
            let may_end = may_end[number].clone();
            async move {
                may_end.up().await;
                Verdict::done()
            }
        };
        let running = scene.worker(handler).concurrency(3).prefetch(0).start();
        while scene.seen().leases.len() < 3 {
            yield_now().await;
        }
        for step in 0..12 {
            // One ends early, one in the middle, and one not before the clock has stopped.
            match step {
                2 => flags[0].raise(),
                6 => flags[1].raise(),
                _ => {}
            }
            scene.tick().await;
        }
        assert!(scene.seen().renewals >= 2, "two leases have passed");
        flags.iter().for_each(|flag| flag.raise());
        while scene.completed().await < 3 {
            yield_now().await;
        }
        assert_eq!(running.stats().lost, 0);
        running.stop().await;
        scene.all_is_well().await;
    });
}

#[test]
fn interleavings_of_a_buffer_that_expires_and_claims_that_wait_lose_no_delivery() {
    in_many_orders(async || {
        let scene = Scene::new(4).await;
        let may_end = Arc::new(Flag::default());
        let running = scene.worker(patient(&may_end)).concurrency(1).prefetch(3).start();
        for step in 0..8 {
            scene.tick().await;
            if step == 5 {
                may_end.raise();
            }
        }
        let mut ticks = 0;
        while scene.completed().await < 4 {
            yield_now().await;
            ticks += 1;
            if ticks % 50 == 0 {
                scene.tick().await;
            }
        }
        running.stop().await;
        scene.all_is_well().await;
    });
}
