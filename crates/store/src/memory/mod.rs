//! The store that keeps everything in memory: for tests, for trying things out, and as the contract
//! in its short form. One lock, plain maps, every rule a few lines with its number beside it.
//!
//! Read it in this order: `state` – what is known; `push` – how messages come in; `claim` – who gets
//! what; `settle` – how deliveries end; `stream` – order; `desk` – operators' acts; `overview` – views;
//! `wait` – how a claim waits.

mod claim;
mod desk;
mod overview;
mod push;
mod settle;
mod state;
mod stream;
mod wait;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::clock::{Clock, Timestamp};
use sickbay_core::id::IdPrefix;
use sickbay_core::port::{
    Adoption, Claim, Deliveries, Desk, Exchange, Exchanged, Overview, ProcessId, Pushed, Pusher, Renewal,
    Replay, Replayed,
};
use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{ProcessView, QueueStats, StreamDetail, StreamView, TypeGate};
use sickbay_core::verdict::Effect;
use sickbay_core::{Key, LeaseToken, MessageId, MessageType, QueueName, QueuePolicy, StoreError, StreamKey};

use crate::door::{self, Limits};
use settle::Checked;
use state::State;
use wait::Bell;

/// The handler's own writes, carried out under the store's lock together with the acknowledgement.
/// If they fail, nothing is acknowledged. They must not call the store.
pub struct MemoryEffect(Box<dyn FnOnce() -> Result<(), String> + Send>);

impl MemoryEffect {
    /// Wraps writes for a verdict or settlement.
    pub fn effect(writes: impl FnOnce() -> Result<(), String> + Send + 'static) -> Effect {
        Effect::new(Self(Box::new(writes)))
    }
}

/// A store in memory. What it knows dies with it.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    bell: Bell,
}

impl MemoryStore {
    /// An empty store on this clock, with the default limits.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(clock, Limits::default())
    }

    /// An empty store on this clock with these limits.
    pub fn with_limits(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        let state = State {
            limits,
            process: ProcessId(1),
            epoch: 1,
            closed: false,
            last_now: Timestamp::default(),
            last: 0,
            claims: 0,
            set_asides: 0,
            queues: BTreeMap::new(),
            messages: BTreeMap::new(),
            keys: BTreeMap::new(),
            origins: BTreeMap::new(),
            kept: BTreeMap::new(),
            claimed_from: BTreeMap::new(),
        };
        Self { bell: Bell::new(clock.clone()), clock, state: Mutex::new(state) }
    }

    /// The process that owns the store.
    pub fn process(&self) -> ProcessId {
        self.lock().process
    }

    /// Refuses everything from now on (`SB0013`).
    pub fn close(&self) {
        self.lock().closed = true;
        self.bell.ring();
    }

    /// What a store finds that is opened after its owning process died: a new process, a new epoch,
    /// and suspects (rule 17). What other processes held comes back at once: their tokens are void.
    pub fn crash(&self) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.last_now = now; // a new life may begin at an earlier time
        state.sweep(now);
        let process = state.process;
        state.process_died(process, "the process that held it died", now);
        state.lose_leases(now);
        state.process = ProcessId(process.0 + 1);
        state.epoch += 1;
        state.claimed_from.clear();
        drop(state);
        self.bell.ring();
    }

    /// Changes a byte of a stored payload, to see what comes of it (rule 12). False if there is no
    /// such message or it has no bytes.
    pub fn damage(&self, id: MessageId) -> bool {
        let mut state = self.lock();
        let Some(record) = state.messages.get_mut(&id) else { return false };
        let mut bytes = record.message.payload.to_vec();
        let Some(first) = bytes.first_mut() else { return false };
        *first ^= 1;
        record.message.payload = bytes.into();
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is whole between any two statements that can panic, so a poisoned lock is fine.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One transaction: what time made due, then the act.
    fn with<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> Result<T, StoreError> {
        let mut state = self.lock();
        if state.closed {
            return Err(door::closed());
        }
        let now = self.clock.now().max(state.last_now);
        state.last_now = now;
        state.sweep(now);
        Ok(act(&mut state, now))
    }

    /// One transaction that may change what can be claimed.
    fn change<T>(
        &self,
        act: impl FnOnce(&mut State, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = self.with(act)?;
        self.bell.ring();
        answer
    }

    /// A claim alone: waits for the first delivery (rule 11). A caller that goes away while it waits
    /// has been given nothing, because the claim is made in the same step that returns it.
    async fn claim(&self, claim: &Claim) -> Result<Vec<sickbay_core::Delivery>, StoreError> {
        let give_up_at = self.clock.now().plus(claim.wait);
        let ask = |state: &mut State, now| {
            state.queue(&claim.queue)?;
            let deliveries = state.claim(claim, now);
            if deliveries.is_empty() && now < give_up_at && claim.max > 0 {
                return Ok(Err(state.next_event(now).min(give_up_at)));
            }
            Ok(Ok(deliveries))
        };
        let ready = || match self.with(ask).and_then(|answer| answer) {
            Ok(Err(again_at)) => Err(again_at),
            Ok(Ok(deliveries)) => Ok(Ok(deliveries)),
            Err(error) => Ok(Err(error)),
        };
        self.bell.wait_until(ready).await
    }
}

impl State {
    /// When time alone changes something next.
    fn next_event(&self, now: Timestamp) -> Timestamp {
        let times = self.messages.values().filter(|record| record.is_live());
        let times = times.map(|record| record.held().map_or(record.due_at, |held| held.expires_at));
        times.filter(|time| *time > now).min().unwrap_or(Timestamp::NEVER)
    }
}

#[async_trait]
impl Pusher for MemoryStore {
    async fn push(&self, messages: Vec<sickbay_core::NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        self.change(|state, now| state.push(messages, now))
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        self.change(|state, now| state.adopt(adoptions, now))
    }
}

#[async_trait]
impl Deliveries for MemoryStore {
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, StoreError> {
        if exchange.settlements.is_empty()
            && let Some(claim) = &exchange.claim
        {
            let deliveries = self.claim(claim).await?;
            return Ok(Exchanged { settled: Vec::new(), deliveries });
        }
        let settlements = exchange.settlements.into_iter().map(Checked::new);
        let settlements = settlements.collect::<Result<Vec<_>, _>>()?;
        self.change(|state, now| {
            exchange.claim.as_ref().map(|claim| state.queue(&claim.queue)).transpose()?;
            let settled = settlements.into_iter().map(|one| state.settle(one, now)).collect();
            let deliveries = exchange.claim.map(|claim| state.claim(&claim, now)).unwrap_or_default();
            Ok(Exchanged { settled, deliveries })
        })
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        self.change(|state, now| Ok(state.renew(&renewal, now)))
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        self.change(|state, now| Ok(state.process_died(process, &evidence, now)))
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.change(|_, _| Ok(()))
    }

    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        self.with(|state, _| Ok(state.queue(queue)?.policy.clone()))?
    }
}

#[async_trait]
impl Desk for MemoryStore {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        self.change(|state, _| state.define_queue(queue, policy))
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        self.change(|state, _| {
            state.queue_mut(queue)?.paused = paused;
            Ok(())
        })
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        self.change(|state, _| state.set_type_gate(queue, message_type, gate))
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| state.replay(replays, now))
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| Ok(state.dead_letter(ids, &why, now)))
    }

    async fn discard(&self, ids: Vec<MessageId>, _why: String) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| Ok(state.discard(ids, now)))
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| Ok(state.restore(ids, now)))
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        self.change(|state, now| state.purge(queue, age, rows_max, now))
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| Ok(state.cancel(ids, now)))
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| Ok(state.hasten(ids, now)))
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(|state, now| Ok(state.reset_attempts(ids, now)))
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        self.change(|state, now| state.release_followers(queue, stream, now))
    }
}

#[async_trait]
impl Overview for MemoryStore {
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        self.with(|state, _| overview::queues(state))
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError> {
        self.with(|state, now| state.stats(queue, now))?
    }

    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        self.with(|state, now| state.find(prefix, now))?
    }

    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        self.with(|state, _| state.quarantine(filter, page))
    }

    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        self.with(|state, _| state.matching(filter).count() as u64)
    }

    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError> {
        self.with(|state, now| state.streams(queue, rows_max, now))?
    }

    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        self.with(|state, now| state.stream_detail(queue, key, rows_max, now))?
    }

    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError> {
        self.with(|state, now| state.processes(now))
    }

    async fn is_done(&self, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        self.with(|state, now| state.is_done(queue, key, now))?
    }
}
