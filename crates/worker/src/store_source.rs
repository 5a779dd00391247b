//! Our own queues as a source.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::port::{Claim, Exchange, ProcessId, Renewal, Source, SourceError, Store, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Delivery, Key, LeaseToken, MessageType, QueueName, QueuePolicy, WorkerName};

/// One queue of a store. A turn is one exchange: one transaction.
pub struct StoreSource {
    store: Arc<dyn Store>,
    queue: QueueName,
    worker: WorkerName,
    process: ProcessId,
}

impl StoreSource {
    /// The queue, for a worker of this name in this process. What one process holds dies together.
    pub fn new(store: Arc<dyn Store>, queue: QueueName, worker: WorkerName, process: ProcessId) -> Self {
        Self { store, queue, worker, process }
    }
}

#[async_trait]
impl Source for StoreSource {
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError> {
        let claim = if turn.want == 0 {
            None
        } else {
            Some(Claim {
                queue: self.queue.clone(),
                worker: self.worker.clone(),
                process: self.process,
                max: turn.want,
                wait: turn.wait,
                lease: self.store.policy(&self.queue).await?.lease,
            })
        };
        let exchange = Exchange { settlements: turn.settlements, claim };
        let exchanged = self.store.exchange(exchange).await?;
        Ok((exchanged.settled, exchanged.deliveries))
    }

    async fn renew(&self, tokens: Vec<LeaseToken>, lease: Duration) -> Result<Vec<LeaseToken>, SourceError> {
        self.store.renew(Renewal { tokens, lease }).await
    }

    async fn policy(&self) -> Result<Arc<QueuePolicy>, SourceError> {
        self.store.policy(&self.queue).await
    }

    async fn set_type_gate(&self, message_type: &MessageType, gate: TypeGate) -> Result<(), SourceError> {
        self.store.set_type_gate(&self.queue, message_type, gate).await
    }

    /// The store has looked already when it handed the message out.
    async fn is_done(&self, _key: &Key) -> Result<bool, SourceError> {
        Ok(false)
    }
}
