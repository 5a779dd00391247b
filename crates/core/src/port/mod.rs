//! The ports: what stores and sources offer, split by who calls them. One method is one transaction,
//! and everything is batched from the first signature.

mod copy;
mod desk;
mod exchange;
mod source;

use std::time::Duration;

use async_trait::async_trait;

pub use copy::{CopyStep, Export, Identity, Import, PageSize, Progress};
pub use desk::{Desk, Overview, Replay, Replayed};
pub use exchange::{Claim, Exchange, Exchanged, ProcessId, Renewal};
pub use source::{Source, SourceError, Turn};

use crate::clock::Timestamp;
use crate::decide::Decision;
use crate::delivery::Counters;
use crate::error::StoreError;
use crate::id::{LeaseToken, MessageId};
use crate::message::NewMessage;
use crate::policy::QueuePolicy;
use crate::signature::Signature;
use crate::stage::Stages;

/// What became of one pushed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is stored and durable.
    New(MessageId),
    /// Its key is known: this is the message that carries it, and nothing was stored.
    Duplicate(MessageId),
}

impl Pushed {
    /// The message that carries what was pushed.
    pub const fn id(self) -> MessageId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }
}

/// How long a store remembers the origin of what it adopted: longer than any broker goes on redelivering.
pub const ORIGIN_WINDOW: Duration = Duration::from_secs(7 * 24 * 3600);

/// A broker's message that failed, taken into the store before the broker is told "done".
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The message.
    pub message: NewMessage,
    /// Where it came from, unique for this message: adopting the same origin twice within
    /// [`ORIGIN_WINDOW`] stores it once.
    pub origin: String,
    /// What was counted on the way here, the failed delivery included.
    pub counters: Counters,
    /// When the failed delivery began.
    pub started_at: Timestamp,
    /// Who held it.
    pub worker: String,
    /// What becomes of it: retry, release or quarantine. `Complete` stores nothing.
    pub decision: Decision,
    /// What failures of this kind have in common.
    pub signature: Option<Signature>,
    /// Stages it finished.
    pub stages: Stages,
}

/// Where messages come in.
#[async_trait]
pub trait Pusher: Send + Sync {
    /// Stores messages, all or none. When it returns they are durable.
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError>;

    /// Takes failed messages of a broker in, all or none.
    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError>;
}

/// What workers call.
#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Settles deliveries and claims the next ones, in one transaction. An exchange that carries
    /// settlements never waits; a claim alone waits inside the store until something can be claimed.
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, StoreError>;

    /// Prolongs leases. Those that are lost are named in the answer.
    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError>;

    /// Says that a worker process is gone: what it held becomes suspect at once.
    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError>;

    /// Does what time has made due: expired leases come back, old keys are forgotten. Stores also do
    /// this by themselves; calling it makes it happen now.
    async fn sweep(&self) -> Result<(), StoreError>;

    /// The policy in force for a queue now.
    async fn policy(&self, queue: &crate::name::QueueName)
    -> Result<std::sync::Arc<QueuePolicy>, StoreError>;
}

/// A whole store.
pub trait Store: Pusher + Deliveries + Desk + Overview {}

impl<T: Pusher + Deliveries + Desk + Overview + ?Sized> Store for T {}
