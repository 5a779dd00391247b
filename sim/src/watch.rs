//! A store that is watched: every call goes to the real one and then, with its answer, to the oracle.
//!
//! Calls are carried out one at a time, on the caller's thread and to their end, so that a run depends
//! on nothing but its script. A claim that waits is asked again after every change and every tick.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::id::IdPrefix;
use sickbay_core::port::{
    Adoption, Deliveries, Desk, Exchange, Exchanged, Overview, ProcessId, Pushed, Pusher, Renewal, Replay,
    Replayed, Store,
};
use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{ProcessView, QueueStats, StreamDetail, StreamView, TypeGate};
use sickbay_core::{
    Clock, Key, LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, StoreError, StreamKey,
};
use sickbay_testkit::ManualClock;
use tokio::sync::Notify;

use crate::oracle::{Act, Oracle, Told};
use crate::wait::wait;

/// The store under test and the oracle beside it.
pub struct Watched {
    inner: Mutex<Arc<dyn Store>>,
    clock: ManualClock,
    oracle: Mutex<Oracle>,
    changed: Arc<Notify>,
}

impl Watched {
    /// Watches this store.
    pub fn new(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        let changed = Arc::new(Notify::new());
        let weak = Arc::downgrade(&changed);
        clock.on_tick(Arc::new(move || weak.upgrade().inspect(|changed| changed.notify_waiters()).is_some()));
        Self { inner: Mutex::new(store), clock, oracle: Mutex::default(), changed }
    }

    /// The oracle.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on another store is watched: the same file, opened again.
    pub fn replace(&self, store: Arc<dyn Store>) {
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = store;
        self.changed.notify_waiters();
    }

    pub(crate) fn manual_clock(&self) -> &ManualClock {
        &self.clock
    }

    fn store(&self) -> Arc<dyn Store> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn now(&self) -> i64 {
        self.clock.now().millis()
    }

    /// One call that changes something: time, the store, the oracle, and then whoever waits.
    fn call<T>(
        &self,
        call: impl AsyncFnOnce(&dyn Store) -> Result<T, StoreError>,
        tell: impl FnOnce(&mut Oracle, &T),
    ) -> Result<T, StoreError> {
        let answer = self.quietly(call, tell);
        self.changed.notify_waiters();
        answer
    }

    fn quietly<T>(
        &self,
        call: impl AsyncFnOnce(&dyn Store) -> Result<T, StoreError>,
        tell: impl FnOnce(&mut Oracle, &T),
    ) -> Result<T, StoreError> {
        self.oracle().call(self.now());
        let store = self.store();
        let answer = wait(call(store.as_ref()));
        match &answer {
            Ok(answer) => tell(&mut self.oracle(), answer),
            Err(error) => self.oracle().accuse("I11", format!("the store failed: {error}")),
        }
        answer
    }

    fn ask<T>(&self, call: impl AsyncFnOnce(&dyn Store) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let store = self.store();
        wait(call(store.as_ref()))
    }

    fn exchange_now(&self, exchange: Exchange) -> Result<Exchanged, StoreError> {
        let told: Vec<Told> = exchange.settlements.iter().map(Told::from).collect();
        let claim = exchange.claim.clone();
        let settles = !told.is_empty();
        let answer = self.quietly(
            async |store| store.exchange(exchange).await,
            |oracle, answer| {
                oracle.settled(&told, &answer.settled);
                if let Some(claim) = &claim {
                    oracle.claimed(claim, &answer.deliveries);
                }
            },
        )?;
        if settles {
            self.changed.notify_waiters();
        }
        Ok(answer)
    }
}

#[async_trait]
impl Pusher for Watched {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        let told = messages.clone();
        self.call(async |store| store.push(messages).await, |oracle, answers| oracle.pushed(&told, answers))
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        let told: Vec<_> = adoptions.iter().map(crate::oracle::adoption).collect();
        self.call(
            async |store| store.adopt(adoptions).await,
            |oracle, answers| oracle.adopted(&told, answers),
        )
    }
}

#[async_trait]
impl Deliveries for Watched {
    async fn exchange(&self, mut exchange: Exchange) -> Result<Exchanged, StoreError> {
        let claim = match &mut exchange.claim {
            Some(claim) if exchange.settlements.is_empty() && !claim.wait.is_zero() => {
                let until = self.clock.now().plus(claim.wait);
                claim.wait = Duration::ZERO;
                Some((claim.clone(), until))
            }
            _ => None,
        };
        let Some((claim, until)) = claim else { return self.exchange_now(exchange) };
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let answer = self.exchange_now(Exchange::claim(claim.clone()))?;
            if !answer.deliveries.is_empty() || self.clock.now() >= until {
                return Ok(answer);
            }
            changed.await;
        }
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        let told = renewal.clone();
        self.quietly(async |store| store.renew(renewal).await, |oracle, lost| oracle.renewed(&told, lost))
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        let call = async |store: &dyn Store| store.process_died(process, evidence).await;
        self.call(call, |oracle, count| oracle.died(process, *count))
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.call(async |store| store.sweep().await, |_, ()| {})
    }

    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        self.ask(async |store| store.policy(queue).await)
    }
}

#[async_trait]
impl Desk for Watched {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        let told = policy.clone();
        let call = async |store: &dyn Store| store.define_queue(queue, policy).await;
        self.call(call, |oracle, ()| oracle.defined(queue.as_str(), told))
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        let call = async |store: &dyn Store| store.set_paused(queue, paused).await;
        self.call(call, |oracle, ()| oracle.paused(queue.as_str(), paused))
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let call = async |store: &dyn Store| store.set_type_gate(queue, message_type, gate).await;
        self.call(call, |oracle, ()| oracle.gated(queue.as_str(), message_type.as_str(), gate))
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        let told = replays.clone();
        self.call(
            async |store| store.replay(replays).await,
            |oracle, answers| oracle.replayed(&told, answers),
        )
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        let told = numbers(&ids);
        let call = async |store: &dyn Store| store.dead_letter(ids, why).await;
        self.call(call, |oracle, answers| oracle.acted(Act::DeadLetter, &told, answers))
    }

    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        let told = numbers(&ids);
        let call = async |store: &dyn Store| store.discard(ids, why).await;
        self.call(call, |oracle, answers| oracle.acted(Act::Discard, &told, answers))
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        let told = numbers(&ids);
        let call = async |store: &dyn Store| store.restore(ids).await;
        self.call(call, |oracle, answers| oracle.acted(Act::Restore, &told, answers))
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        let call = async |store: &dyn Store| store.purge(queue, age, rows_max).await;
        self.call(call, |oracle, count| oracle.purged(queue.as_str(), age, rows_max, *count))
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        let told = numbers(&ids);
        let call = async |store: &dyn Store| store.reset_attempts(ids).await;
        self.call(call, |oracle, answers| oracle.acted(Act::Reset, &told, answers))
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        let told = numbers(&ids);
        let call = async |store: &dyn Store| store.cancel(ids).await;
        self.call(call, |oracle, answers| oracle.acted(Act::Cancel, &told, answers))
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        let told = numbers(&ids);
        let call = async |store: &dyn Store| store.hasten(ids).await;
        self.call(call, |oracle, answers| oracle.acted(Act::Hasten, &told, answers))
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        let call = async |store: &dyn Store| store.release_followers(queue, stream).await;
        self.call(call, |oracle, done| oracle.released_followers(queue.as_str(), stream.as_str(), *done))
    }
}

#[async_trait]
impl Overview for Watched {
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        self.ask(async |store| store.queues().await)
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError> {
        let call = async |store: &dyn Store| store.stats(queue).await;
        self.quietly(call, |oracle, stats| oracle.saw_stats(queue.as_str(), stats))
    }

    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        let last = self.oracle().acknowledged();
        let id = prefix.numbers(last.max(1)).next().map_or(1, MessageId::number);
        let call = async |store: &dyn Store| store.find(prefix).await;
        self.quietly(call, |oracle, view| oracle.saw_message(id, view.as_ref()))
    }

    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        self.ask(async |store| store.quarantine(filter, page).await)
    }

    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        self.ask(async |store| store.quarantine_count(filter).await)
    }

    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError> {
        self.ask(async |store| store.streams(queue, rows_max).await)
    }

    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        let call = async |store: &dyn Store| store.stream(queue, key, rows_max).await;
        self.quietly(call, |oracle, detail| oracle.saw_stream(queue.as_str(), key.as_str(), detail.as_ref()))
    }

    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError> {
        self.ask(async |store| store.processes().await)
    }

    async fn is_done(&self, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        self.ask(async |store| store.is_done(queue, key).await)
    }
}

fn numbers(ids: &[MessageId]) -> Vec<u64> {
    ids.iter().map(|id| id.number()).collect()
}
