//! The ports of the store: each call becomes one operation of the writer, or one read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::port::{
    Adoption, Deliveries, Desk, Exchange, Exchanged, ProcessId, Pushed, Pusher, Renewal, Replay, Replayed,
};
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    ErrorKind, LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, StoreError, StreamKey,
};
use tokio::sync::oneshot;

use super::SqliteStore;
use super::failure::nearly_full;
use super::tx::Tx;
use super::writer::{Answer, Op};
use crate::door::closed;

/// True if the error says that nothing was written, so that the transaction can go on.
fn harmless(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
}

impl SqliteStore {
    /// Has the writer carry something out; answers once it is committed.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.policies.check()?;
        let (reply, answered) = oneshot::channel();
        let act = Box::new(move |tx: &mut Tx<'_>| {
            let result = act(tx);
            let fatal = match &result {
                Err(error) if !harmless(error) => Err(error.clone()),
                _ => Ok(()),
            };
            let answer: Answer = Box::new(move |commit: Result<(), StoreError>| {
                drop(reply.send(commit.and(result)));
            });
            (answer, fatal)
        });
        self.inner.operations.send(Op::Act(act)).map_err(|_| closed())?;
        answered.await.map_err(|_| self.inner.policies.check().err().unwrap_or_else(closed))?
    }
}

#[async_trait]
impl Pusher for SqliteStore {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        self.call(|tx| if tx.state.nearly_full { Ok(Err(nearly_full())) } else { tx.push(messages).map(Ok) })
            .await?
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        self.call(
            |tx| if tx.state.nearly_full { Ok(Err(nearly_full())) } else { tx.adopt(adoptions).map(Ok) },
        )
        .await?
    }
}

#[async_trait]
impl Deliveries for SqliteStore {
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, StoreError> {
        self.inner.policies.check()?;
        let (reply, answered) = oneshot::channel();
        self.inner.operations.send(Op::Exchange(exchange, reply)).map_err(|_| closed())?;
        answered.await.map_err(|_| self.inner.policies.check().err().unwrap_or_else(closed))?
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        self.call(move |tx| Ok(tx.renew(&renewal))).await
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        self.call(move |tx| tx.process_died(process, &evidence)).await
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.call(|tx| {
            tx.expire_leases()?;
            tx.forget_old_keys()?;
            tx.forget_completed()
        })
        .await
    }

    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        self.inner.policies.get(queue)
    }
}

impl Tx<'_> {
    /// Prolongs leases, in memory only: after a restart no lease of this epoch counts anyway.
    fn renew(&mut self, renewal: &Renewal) -> Vec<LeaseToken> {
        let until = self.after(renewal.lease);
        let epoch = self.state.epoch;
        let mut lost = Vec::new();
        for token in &renewal.tokens {
            match self.state.leases.get_mut(&token.message.number()) {
                Some(lease)
                    if token.epoch == epoch && lease.claim == token.claim
                        || sickbay_core::bug!(RenewedWithoutToken) =>
                {
                    lease.until = lease.until.max(until);
                }
                _ => lost.push(*token),
            }
        }
        lost
    }
}

#[async_trait]
impl Desk for SqliteStore {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        let queue = queue.clone();
        self.call(move |tx| tx.define_queue(&queue, policy)).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        let queue = queue.clone();
        self.call(move |tx| tx.set_paused(&queue, paused)).await
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let (queue, message_type) = (queue.clone(), message_type.clone());
        self.call(move |tx| tx.set_type_gate(&queue, &message_type, gate)).await
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        self.call(|tx| tx.replay(replays)).await
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.dead_letter(&ids, &why)).await
    }

    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.discard(&ids, &why)).await
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.restore(&ids)).await
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        let queue = queue.clone();
        self.call(move |tx| tx.purge(&queue, age, rows_max)).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.cancel(&ids)).await
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.hasten(&ids)).await
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.reset_attempts(&ids)).await
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        let (queue, stream) = (queue.clone(), stream.clone());
        self.call(move |tx| {
            let no = tx.queue_no(&queue)?;
            tx.release_followers(no, stream.as_str())
        })
        .await
    }
}
