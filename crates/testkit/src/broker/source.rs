//! A guarded queue: healthy messages stay in the broker, failed ones are adopted into the store and
//! follow its road from then on (C4).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::policy::Ordering;
use sickbay_core::port::{Adoption, Claim, Exchange, ProcessId, Renewal, Source, SourceError, Store, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Clock, Decision, Delivery, Key, Lease, LeaseToken, Message, MessageId, MessageType, QueueName,
    QueuePolicy, Settlement, Stages, StreamKey, Timestamp, WorkerName,
};

use super::{Broker, BrokerStreams, Unacknowledged};

/// Tokens of this epoch belong to the broker, all others to the store.
const BROKER_EPOCH: u64 = u64::MAX;
/// Deliveries of the broker have ids above every id of the store.
const BROKER_IDS: u64 = 1 << 59;

/// A queue whose messages come from the broker, and from the store once they have failed.
pub struct BrokerSource {
    /// The broker.
    pub broker: Broker,
    /// Where failed messages go.
    pub store: Arc<dyn Store>,
    /// The queue they go to, whose policy applies to all of them.
    pub queue: QueueName,
    /// Who asks.
    pub worker: WorkerName,
    /// The process that would die with it.
    pub process: ProcessId,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What it knows of the streams in hand. Begins empty.
    pub streams: BrokerStreams,
}

impl BrokerSource {
    fn claim(&self, want: u32, wait: Duration, lease: Duration) -> Option<Claim> {
        let (queue, worker) = (self.queue.clone(), self.worker.clone());
        (want > 0).then_some(Claim { queue, worker, process: self.process, max: want, wait, lease })
    }

    async fn receive(&self, want: usize, policy: &QueuePolicy) -> Result<Vec<Delivery>, SourceError> {
        let now = self.clock.now();
        let mut deliveries = Vec::new();
        while deliveries.len() < want {
            let freed = self.streams.lock().next();
            let freed = freed.and_then(|number| Some((number, self.broker.held(number)?)));
            let Some((number, held)) = freed.or_else(|| self.broker.receive(1, now).pop()) else { break };
            if self.has_its_turn(number, &held, policy).await? {
                deliveries.extend(self.delivery(number, &held, now, policy.lease));
            }
        }
        Ok(deliveries)
    }

    /// In a strict queue a message waits for the earlier ones of its stream, here or in the store.
    async fn has_its_turn(
        &self,
        number: u64,
        held: &Unacknowledged,
        policy: &QueuePolicy,
    ) -> Result<bool, SourceError> {
        let stream = held.stored.message.stream.as_ref().filter(|_| policy.ordering == Ordering::Strict);
        let Some(stream) = stream else { return Ok(true) };
        let is_held = |number| self.broker.held(number).is_some();
        if !self.streams.lock().take_turn(stream, number, is_held) {
            return Ok(false);
        }
        if self.store.stream(&self.queue, stream, 0).await?.is_none() {
            return Ok(true);
        }
        self.follow(stream, Some(number)).await?;
        Ok(false)
    }

    /// The store has the stream: this message and those behind it follow it there.
    async fn follow(&self, stream: &StreamKey, first: Option<u64>) -> Result<(), SourceError> {
        let mut numbers = self.streams.lock().take_behind(stream);
        if let Some(first) = first {
            numbers.push_front(first);
        }
        let untried = Decision::Release { after: Duration::ZERO };
        let adoptions: Vec<_> = numbers
            .iter()
            .filter_map(|number| Some(self.taken_in(self.broker.held(*number)?, untried.clone())))
            .collect();
        if !adoptions.is_empty() {
            self.store.adopt(adoptions).await?;
        }
        for number in numbers {
            self.broker.acknowledge(number);
        }
        Ok(())
    }

    /// The streams of a strict queue of which a message is settled.
    fn moved_streams(&self, told: &[Settlement], policy: &QueuePolicy) -> Vec<(StreamKey, Decision)> {
        if policy.ordering != Ordering::Strict {
            return Vec::new();
        }
        let told = told.iter().filter(|settlement| settlement.effect.is_none());
        told.filter_map(|settlement| {
            let stream = self.broker.held(settlement.token.claim)?.stored.message.stream?;
            Some((stream, settlement.decision.clone()))
        })
        .collect()
    }

    /// What becomes of those behind a message that is settled.
    async fn move_stream(&self, stream: &StreamKey, decision: &Decision) -> Result<(), SourceError> {
        match decision {
            Decision::Complete => self.streams.lock().go_on(stream),
            Decision::Release { after } if after.is_zero() => self.give_back_behind(stream),
            Decision::Redeliver => self.give_back_behind(stream),
            _ if self.store.stream(&self.queue, stream, 0).await?.is_some() => {
                self.follow(stream, None).await?;
            }
            _ => self.streams.lock().go_on(stream),
        }
        Ok(())
    }

    fn give_back_behind(&self, stream: &StreamKey) {
        for number in self.streams.lock().take_behind(stream).into_iter().rev() {
            self.broker.give_back(number);
        }
    }

    fn delivery(
        &self,
        number: u64,
        held: &Unacknowledged,
        now: Timestamp,
        lease: Duration,
    ) -> Option<Delivery> {
        let (new, pushed_at) = (&held.stored.message, held.stored.published_at);
        let id = MessageId::from_number(BROKER_IDS + number)?;
        let message = Message {
            id,
            queue: self.queue.clone(),
            message_type: new.message_type.clone(),
            stream: new.stream.clone(),
            key: new.key.clone(),
            priority: new.priority,
            pushed_at,
            deadline_at: new.deadline.map(|deadline| pushed_at.plus(deadline)),
            headers: new.headers.clone(),
            payload: new.payload.clone(),
        };
        let token = LeaseToken { epoch: BROKER_EPOCH, claim: number, message: id };
        let lease = Lease { token, granted_at: now, expires_at: now.plus(lease) };
        let counters = held.stored.counters;
        Some(Delivery { message, lease, counters, stages: Stages::NONE, cause: None, suspect: false })
    }

    /// What becomes of a failed message: taken in first, acknowledged second.
    fn adoption(&self, settlement: &Settlement) -> Option<Adoption> {
        let adopts = match settlement.decision {
            Decision::Retry { .. } | Decision::Quarantine { .. } => true,
            // A broker cannot wait with a message; the store can.
            Decision::Release { after } => !after.is_zero(),
            Decision::Complete | Decision::Redeliver => false,
        };
        let held = self.broker.held(settlement.token.claim).filter(|_| adopts)?;
        Some(Adoption {
            signature: settlement.signature,
            stages: settlement.stages,
            ..self.taken_in(held, settlement.decision.clone())
        })
    }

    fn taken_in(&self, held: Unacknowledged, decision: Decision) -> Adoption {
        let mut message = held.stored.message;
        message.queue = self.queue.clone();
        Adoption {
            message,
            origin: held.stored.origin,
            counters: held.stored.counters,
            started_at: held.received_at,
            worker: self.worker.to_string(),
            decision,
            signature: None,
            stages: Stages::NONE,
        }
    }

    /// Tells the broker what became of a message.
    fn tell(&self, settlement: &Settlement) -> Settled {
        if settlement.effect.is_some() {
            let error = "a broker's acknowledgement cannot be part of a transaction".to_owned();
            return Settled::EffectFailed { error };
        }
        let number = settlement.token.claim;
        let known = match settlement.decision {
            Decision::Release { after } if after.is_zero() => self.broker.give_back(number),
            Decision::Redeliver => self.broker.give_back(number),
            _ => self.broker.acknowledge(number),
        };
        if known { Settled::Applied } else { Settled::LeaseLost }
    }

    /// Waits until either side has something.
    async fn wait(
        &self,
        want: u32,
        wait: Duration,
        policy: &QueuePolicy,
    ) -> Result<Vec<Delivery>, SourceError> {
        loop {
            let arrived = self.broker.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let received = self.receive(want as usize, policy).await?;
            if !received.is_empty() {
                return Ok(received);
            }
            let Some(claim) = self.claim(want, wait, policy.lease) else { return Ok(received) };
            tokio::select! {
                biased;
                exchanged = self.store.exchange(Exchange::claim(claim)) => return Ok(exchanged?.deliveries),
                () = arrived => {}
            }
        }
    }
}

#[async_trait]
impl Source for BrokerSource {
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError> {
        let policy = self.policy().await?;
        if turn.settlements.is_empty() && turn.want > 0 && !turn.wait.is_zero() {
            return Ok((Vec::new(), self.wait(turn.want, turn.wait, &policy).await?));
        }
        let is_brokers = |settlement: &Settlement| settlement.token.epoch == BROKER_EPOCH;
        let brokers: Vec<bool> = turn.settlements.iter().map(is_brokers).collect();
        let (told, stored): (Vec<_>, Vec<_>) = turn.settlements.into_iter().partition(is_brokers);
        let adoptions: Vec<_> = told.iter().filter_map(|settlement| self.adoption(settlement)).collect();
        if !adoptions.is_empty() {
            self.store.adopt(adoptions).await?;
        }
        for (stream, decision) in self.moved_streams(&told, &policy) {
            self.move_stream(&stream, &decision).await?;
        }
        let claim = self.claim(turn.want, Duration::ZERO, policy.lease);
        let mut deliveries = Vec::new();
        let mut stored_answers = Vec::new().into_iter();
        if claim.is_some() || !stored.is_empty() {
            let exchanged = self.store.exchange(Exchange { settlements: stored, claim }).await?;
            deliveries = exchanged.deliveries;
            stored_answers = exchanged.settled.into_iter();
        }
        let mut told = told.into_iter();
        let answer = |brokers: bool| match brokers {
            true => told.next().map_or(Settled::LeaseLost, |settlement| self.tell(&settlement)),
            false => stored_answers.next().unwrap_or(Settled::LeaseLost),
        };
        let settled = brokers.into_iter().map(answer).collect();
        deliveries.extend(self.receive(turn.want as usize - deliveries.len(), &policy).await?);
        Ok((settled, deliveries))
    }

    async fn renew(&self, tokens: Vec<LeaseToken>, lease: Duration) -> Result<Vec<LeaseToken>, SourceError> {
        let (brokers, stored): (Vec<_>, Vec<_>) =
            tokens.into_iter().partition(|token| token.epoch == BROKER_EPOCH);
        let mut lost: Vec<_> =
            brokers.into_iter().filter(|token| self.broker.held(token.claim).is_none()).collect();
        if !stored.is_empty() {
            lost.extend(self.store.renew(Renewal { tokens: stored, lease }).await?);
        }
        Ok(lost)
    }

    async fn policy(&self) -> Result<Arc<QueuePolicy>, SourceError> {
        self.store.policy(&self.queue).await
    }

    async fn set_type_gate(&self, message_type: &MessageType, gate: TypeGate) -> Result<(), SourceError> {
        self.store.set_type_gate(&self.queue, message_type, gate).await
    }

    async fn is_done(&self, key: &Key) -> Result<bool, SourceError> {
        self.store.is_done(&self.queue, key).await
    }
}
