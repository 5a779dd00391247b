//! A durable queue and consumer runtime in which no failing message blocks the others, gets lost or is
//! forgotten. This crate is the front door: it opens a store and wires workers to it.
//!
//! ```
//! use sickbay::{Context, NewMessage, QueuePolicy, RetryPolicy, Sickbay};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("orders.db");
//! let bay = Sickbay::open(path)?;
//! let orders = "orders".try_into()?;
//! let policy = QueuePolicy::with_retry(RetryPolicy::cooldown(3, Duration::from_secs(1)));
//! bay.define_queue(&orders, policy).await?;
//! bay.push([NewMessage::new(orders.clone(), r#"{"order": 7}"#)]).await?;
//!
//! let worker = bay.worker(&orders, async |ctx: Context| {
//!     println!("{} says {:?}", ctx.id(), ctx.payload());
//! })?;
//! let running = worker.concurrency(4).start();
//! bay.drained(&orders).await?;
//! running.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! What a handler returns decides what becomes of the message: `()` or `Ok` is done; an `Err` is
//! classified by the queue's rules; a [`Verdict`] says it outright.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use sickbay_core as core;
pub use sickbay_core::classify::{Classifier, RawError, Rule};
pub use sickbay_core::gate::{Invalid, Validator};
pub use sickbay_core::policy::{
    Backoff, Ordering, QueuePolicy, RetryOverride, RetryPolicy, WhenHeadQuarantined,
};
pub use sickbay_core::port::{
    Deliveries, Desk, Overview, ProcessId, Pushed, Pusher, Replay, Replayed, Store,
};
pub use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
pub use sickbay_core::stats::QueueStats;
pub use sickbay_core::verdict::{Done, Failed};
pub use sickbay_core::{
    Cause, Clock, Counters, Delivery, ErrorKind, Failure, Key, Kind, LeaseToken, Message, MessageId,
    MessageType, NewMessage, Priority, QueueName, Reason, Settlement, Stages, StoreError, StreamKey,
    Timestamp, Verdict, WorkerName,
};
#[cfg(feature = "postgres")]
pub use sickbay_store::postgres::{Examination, Instance, Pin, TableState};
pub use sickbay_store::{
    Copied, CopyState, MemoryEffect, MemoryStore, SqliteAtRest, SqliteEffect, SqliteOptions, SqliteStore,
    SystemClock, copy,
};
#[cfg(feature = "postgres")]
pub use sickbay_store::{PostgresAtRest, PostgresEffect, PostgresOptions, PostgresStore};
pub use sickbay_worker::{
    Answer, Context, Death, Handler, IntoAnswer, Relay, Running, Stopped, StoreSource, Supervised,
    Supervisor, Worker, blocking, last_death, typed,
};

/// How often [`Sickbay::drained`] looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A store and what is needed to work on it. Cloning is cheap.
#[derive(Clone)]
pub struct Sickbay {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    process: ProcessId,
}

impl Sickbay {
    /// Opens a SQLite file, or creates it. This process owns it until the last clone is dropped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut options = SqliteOptions::new(clock);
        if let Some(evidence) = last_death() {
            options = options.evidence(evidence);
        }
        Self::open_with(path, options)
    }

    /// The same with options of your own.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let clock = options.clock();
        let store = SqliteStore::open(path, options)?;
        let process = store.process();
        Ok(Self { store: Arc::new(store), clock, process })
    }

    /// Opens the store in a PostgreSQL database, which other processes have open too. Its schema must have been
    /// made by [`PostgresStore::migrate`] or `sickbay migrate`.
    #[cfg(feature = "postgres")]
    pub async fn connect(address: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        Ok(PostgresStore::connect(address, options).await?.into())
    }

    /// A store in memory, for tests: it is gone when the last clone is dropped.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Self {
        let store = MemoryStore::new(clock.clone());
        let process = store.process();
        Self { store: Arc::new(store), clock, process }
    }

    /// The store itself, with everything that operators can do.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The clock it runs on.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// This process, as its leases name it.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Creates a queue or changes its policy; the change is in force at the next decision.
    pub async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        self.store.define_queue(queue, policy).await
    }

    /// Stores messages, all or none. When it returns they are durable.
    pub async fn push(
        &self,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Result<Vec<Pushed>, StoreError> {
        self.store.push(messages.into_iter().collect()).await
    }

    /// A worker for one queue; start it with [`Worker::start`].
    pub fn worker(&self, queue: &QueueName, handler: impl Handler + 'static) -> Result<Worker, StoreError> {
        let name = format!("{}/{queue}", std::process::id());
        let name = WorkerName::new(name)
            .map_err(|error| StoreError::new(ErrorKind::Invalid, "SB0018", error.to_string()))?;
        let source = StoreSource::new(self.store.clone(), queue.clone(), name, self.process);
        Ok(Worker::new(Arc::new(source), handler, self.clock.clone()))
    }

    /// Returns once nothing in the queue waits or is in anybody's hands.
    pub async fn drained(&self, queue: &QueueName) -> Result<(), StoreError> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            let stats = self.store.stats(queue).await?;
            if stats.pending + stats.scheduled + stats.failed + stats.active == 0 {
                return Ok(());
            }
            look.tick().await;
        }
    }
}

#[cfg(feature = "postgres")]
impl From<PostgresStore> for Sickbay {
    fn from(store: PostgresStore) -> Self {
        let process = store.process();
        Self { store: Arc::new(store), clock: Arc::new(SystemClock::new()), process }
    }
}
