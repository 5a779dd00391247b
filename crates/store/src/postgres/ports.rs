//! The ports of the store: each call is carried out where the connections live.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::port::{
    Adoption, Deliveries, Desk, Exchange, Exchanged, ProcessId, Pushed, Pusher, Renewal, Replay, Replayed,
};
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, StoreError, StreamKey,
};
use tokio::sync::oneshot;

use super::{Inner, PostgresStore};
use crate::door::{self, Act};

#[async_trait]
impl Pusher for PostgresStore {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        self.run(self.inner.clone().push(messages)).await
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        self.change(self.inner.clone().adopt(adoptions)).await
    }
}

impl Inner {
    /// Carries an exchange out for a caller who may go away: what it would have got is given back then.
    async fn serve(
        self: Arc<Self>,
        exchange: Exchange,
        mut reply: oneshot::Sender<Result<Exchanged, StoreError>>,
    ) {
        let answer = match exchange {
            Exchange { settlements, claim: Some(claim) } if settlements.is_empty() => {
                let claimed = self.claim_waiting(&claim, &mut reply).await;
                claimed.map(|deliveries| Exchanged { settled: Vec::new(), deliveries })
            }
            exchange => self.clone().exchange(exchange).await,
        };
        if let Err(Ok(unwanted)) = reply.send(answer) {
            // The lease would run out anyway.
            drop(self.give_back(&unwanted.deliveries).await);
        }
    }
}

/// Waits for what comes of an exchange. Who gives up waiting may have been answered in that very moment: what was
/// handed out with the answer is given back.
struct Answered<'s> {
    answered: oneshot::Receiver<Result<Exchanged, StoreError>>,
    inner: &'s Arc<Inner>,
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.answered.close();
        let Ok(Ok(unwanted)) = self.answered.try_recv() else { return };
        if !unwanted.deliveries.is_empty() {
            let inner = self.inner.clone();
            let give_back = async move { drop(inner.give_back(&unwanted.deliveries).await) };
            self.inner.tasks.spawn_on(give_back, &self.inner.runtime);
        }
    }
}

#[async_trait]
impl Deliveries for PostgresStore {
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, StoreError> {
        self.inner.bell.check()?;
        let (reply, answered) = oneshot::channel();
        self.inner.tasks.spawn_on(self.inner.clone().serve(exchange, reply), &self.inner.runtime);
        let mut answered = Answered { answered, inner: &self.inner };
        let answer = (&mut answered.answered).await;
        answer.unwrap_or_else(|_| Err(door::closed()))
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        let inner = self.inner.clone();
        self.run(async move { inner.renew(renewal).await }).await
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        self.change(self.inner.clone().process_died(process, evidence)).await
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        let inner = self.inner.clone();
        self.change(async move { inner.sweep().await }).await
    }

    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        let (inner, queue) = (self.inner.clone(), queue.clone());
        self.run(async move { inner.policy_of(queue.as_str()).await }).await
    }
}

#[async_trait]
impl Desk for PostgresStore {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        self.change(self.inner.clone().define_queue(queue.clone(), policy)).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        self.change(self.inner.clone().set_paused(queue.clone(), paused)).await
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        self.change(self.inner.clone().set_type_gate(queue.clone(), message_type.clone(), gate)).await
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().replay(replays)).await
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().dead_letter(ids, why)).await
    }

    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().discard(ids, why)).await
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().act(Act::Restore, "restore", ids)).await
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        self.change(self.inner.clone().purge(queue.clone(), age, rows_max)).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().act(Act::Cancel, "cancel", ids)).await
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().act(Act::Hasten, "hasten", ids)).await
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.change(self.inner.clone().act(Act::Reset, "reset_attempts", ids)).await
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        self.change(self.inner.clone().release_followers(queue.clone(), stream.clone())).await
    }
}
