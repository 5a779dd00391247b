//! What operators call: acts, and views.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::StoreError;
use crate::id::{IdPrefix, MessageId};
use crate::name::{MessageType, QueueName, StreamKey};
use crate::policy::QueuePolicy;
use crate::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use crate::stats::{ProcessView, QueueStats, StreamDetail, StreamView, TypeGate};

/// A wish to send one dead letter back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Which one.
    pub id: MessageId,
    /// To another queue than its own.
    pub queue: Option<QueueName>,
    /// With other bytes. The original ones are kept.
    pub payload: Option<Bytes>,
}

impl Replay {
    /// As it is, to its own queue.
    pub const fn raw(id: MessageId) -> Self {
        Self { id, queue: None, payload: None }
    }
}

/// What became of one act on one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It is done.
    Done,
    /// There is no such message.
    NotFound,
    /// The message is in a state that does not allow it.
    Refused {
        /// Why, in words.
        why: String,
    },
}

/// Operators' acts. Each batch is one transaction; the answers are in the order of the wishes.
#[async_trait]
pub trait Desk: Send + Sync {
    /// Creates a queue or changes its policy.
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError>;

    /// Stops deliveries of a queue, or lets them go on.
    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError>;

    /// Stops deliveries of a message type, or lets them go on.
    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError>;

    /// Sends dead letters back: pending, counters reset, history kept. In a stream, each takes its
    /// old place.
    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError>;

    /// Sets live messages aside by hand. What a worker holds is taken from it.
    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError>;

    /// Discards dead letters; they can be restored until they are purged.
    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError>;

    /// Brings discarded dead letters back into quarantine.
    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError>;

    /// Removes dead letters for good that were discarded at least so long ago, at most so many, the
    /// longest discarded first; answers how many. An age of zero means all discarded ones.
    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError>;

    /// Removes messages that wait and are not in anybody's hands.
    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError>;

    /// Makes scheduled or failed messages due now, with their counters as they are.
    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError>;

    /// Gives messages that wait their attempts back: counters as after a push, schedule and history as
    /// they are, with a row that says so.
    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError>;

    /// Lets a blocked stream go on without its head. False if it was not blocked.
    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError>;
}

/// Views. They never block the writer.
#[async_trait]
pub trait Overview: Send + Sync {
    /// The queues by name, with their policies.
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError>;

    /// Figures of one queue.
    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError>;

    /// Everything about the one message whose id begins like this; an error if there are several.
    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError>;

    /// Dead letters, newest quarantined first.
    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError>;

    /// How many dead letters match.
    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError>;

    /// The streams of a queue, blocked ones first.
    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError>;

    /// One stream with its holds and its entries, at most so many of each, in their order; `None` if
    /// it has neither.
    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError>;

    /// Who works on the store: processes that hold something or have claimed a short while ago, by number.
    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError>;

    /// True if the message with this key is done and the key's window has not passed.
    async fn is_done(&self, queue: &QueueName, key: &crate::name::Key) -> Result<bool, StoreError>;
}
