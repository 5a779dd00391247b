//! Short words for what the promises do all the time. A store that refuses any of it fails the test.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sickbay_core::clock::{Clock, Timestamp};
use sickbay_core::decide::{Decision, Facts, Outcome, decide};
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::{Claim, Exchange, ProcessId, Pushed, Replay, Replayed, Store};
use sickbay_core::quarantine::{DeadLetter, MessageView, PageRequest, QuarantineFilter};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::QueueStats;
use sickbay_core::{
    Delivery, Failure, Key, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, Settlement,
    StoreError, StreamKey, WorkerName,
};

use crate::fixture::Fixture;

/// A store on the bench, with the queue `q`.
pub(super) struct Bench<'f> {
    pub f: &'f mut dyn Fixture,
}

pub(super) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(super) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn kind(name: &str) -> MessageType {
    MessageType::new(name).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn stream(name: &str) -> StreamKey {
    StreamKey::new(name).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn message(payload: impl Into<Bytes>) -> NewMessage {
    NewMessage::new(queue("q"), payload)
}

/// So many attempts with so many seconds between them.
pub(super) fn retrying(attempts: u32, pause: u64) -> QueuePolicy {
    QueuePolicy::with_retry(RetryPolicy::cooldown(attempts, seconds(pause)))
}

pub(super) fn good<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the store refused: {error}"))
}

/// The code of the error that was expected.
pub(super) fn code<T>(answer: Result<T, StoreError>) -> &'static str {
    match answer {
        Ok(_) => "no error",
        Err(error) => error.code(),
    }
}

pub(super) fn retry(after: u64, failure: Failure) -> Decision {
    Decision::Retry { after: seconds(after), failure }
}

impl<'f> Bench<'f> {
    /// A bench whose queue `q` has the default policy.
    pub(super) async fn new(f: &'f mut dyn Fixture) -> Self {
        Self::with(f, QueuePolicy::default()).await
    }

    pub(super) async fn with(f: &'f mut dyn Fixture, policy: QueuePolicy) -> Self {
        let bench = Self { f };
        bench.define("q", policy).await;
        bench
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.f.store()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.f.clock().now()
    }

    pub(super) async fn define(&self, name: &str, policy: QueuePolicy) {
        good(self.store().define_queue(&queue(name), policy).await);
    }

    pub(super) async fn advance(&self, count: u64) {
        self.f.clock().advance(seconds(count));
        good(self.store().sweep().await);
    }

    pub(super) async fn push_all(&self, messages: Vec<NewMessage>) -> Vec<Pushed> {
        good(self.store().push(messages).await)
    }

    pub(super) async fn push(&self, message: NewMessage) -> MessageId {
        match self.push_all(vec![message]).await.as_slice() {
            [Pushed::New(id)] => *id,
            other => panic!("not one new message: {other:?}"),
        }
    }

    pub(super) fn claim(&self, max: u32) -> Claim {
        self.claim_as(self.f.process(), max)
    }

    pub(super) fn claim_as(&self, process: ProcessId, max: u32) -> Claim {
        let worker = WorkerName::new("host/1/worker").unwrap_or_else(|error| panic!("{error}"));
        Claim { queue: queue("q"), worker, process, max, wait: Duration::ZERO, lease: seconds(30) }
    }

    pub(super) async fn take(&self, claim: Claim) -> Vec<Delivery> {
        good(self.store().exchange(Exchange::claim(claim)).await).deliveries
    }

    /// A claim that waits while time passes in steps of so many seconds. A store may notice the claim
    /// only after the first step, so there are as many as it takes.
    pub(super) async fn take_while_time_passes(&self, claim: Claim, step: u64) -> Vec<Delivery> {
        let mut waiting = std::pin::pin!(self.take(claim));
        loop {
            tokio::select! {
                biased;
                deliveries = &mut waiting => return deliveries,
                () = tokio::task::yield_now() => {
                    std::thread::yield_now();
                    self.f.clock().advance(seconds(step));
                }
            }
        }
    }

    pub(super) async fn lease(&self, max: u32) -> Vec<Delivery> {
        self.take(self.claim(max)).await
    }

    /// The ids that a claim gets.
    pub(super) async fn lease_ids(&self, max: u32) -> Vec<MessageId> {
        self.lease(max).await.iter().map(|delivery| delivery.message.id).collect()
    }

    pub(super) async fn lease_one(&self) -> Delivery {
        let mut deliveries = self.lease(1).await;
        deliveries.pop().unwrap_or_else(|| panic!("there was nothing to lease"))
    }

    pub(super) async fn settle(&self, settlement: Settlement) -> Settled {
        let mut exchanged = good(self.store().exchange(Exchange::settle(vec![settlement])).await);
        assert_eq!(exchanged.settled.len(), 1);
        exchanged.settled.remove(0)
    }

    pub(super) async fn done(&self, delivery: &Delivery) {
        assert_eq!(self.settle(Settlement::complete(delivery.token())).await, Settled::Applied);
    }

    pub(super) async fn apply(&self, delivery: &Delivery, decision: Decision) {
        assert_eq!(self.settle(Settlement::new(delivery.token(), decision)).await, Settled::Applied);
    }

    /// What the worker would decide about this failure.
    pub(super) async fn decide(&self, delivery: &Delivery, failure: Failure) -> Decision {
        let message = &delivery.message;
        let policy = good(self.store().policy(&message.queue).await);
        let facts = Facts {
            id: message.id,
            message_type: message.message_type.as_ref(),
            counters: delivery.counters,
        };
        decide(&policy, facts, Outcome::Failed(failure))
    }

    pub(super) async fn fail(&self, delivery: &Delivery, failure: Failure) -> Decision {
        let decision = self.decide(delivery, failure).await;
        self.apply(delivery, decision.clone()).await;
        decision
    }

    /// Pushes a message and sets it aside as poison.
    pub(super) async fn dead(&self, message: NewMessage) -> MessageId {
        let id = self.push(message).await;
        let delivery = self.lease_one().await;
        assert_eq!(delivery.message.id, id);
        self.fail(&delivery, Failure::poison("it will never work")).await;
        id
    }

    pub(super) async fn find(&self, id: MessageId) -> Option<MessageView> {
        let prefix = id.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
        good(self.store().find(prefix).await)
    }

    pub(super) async fn view(&self, id: MessageId) -> MessageView {
        self.find(id).await.unwrap_or_else(|| panic!("{id} is gone"))
    }

    pub(super) async fn stats(&self) -> QueueStats {
        good(self.store().stats(&queue("q")).await)
    }

    pub(super) async fn quarantine(&self, filter: QuarantineFilter) -> Vec<DeadLetter> {
        good(self.store().quarantine(&filter, PageRequest::default()).await).rows
    }

    pub(super) async fn replay(&self, id: MessageId) -> Replayed {
        good(self.store().replay(vec![Replay::raw(id)]).await).remove(0)
    }
}

/// A process that is not the store's own.
pub(super) fn process(number: u64) -> ProcessId {
    ProcessId(1_000_000 + number)
}
