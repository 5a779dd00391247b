//! Operators' acts.

use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::port::{Desk, Replay, Replayed};
use sickbay_core::stats::TypeGate;
use sickbay_core::{MessageId, MessageType, QueueName, QueuePolicy, StoreError, StreamKey};

use super::RemoteStore;
use crate::wire::act::Act;
use crate::wire::exchange::{Purge, SetGate};
use crate::wire::queue::Queue;

impl RemoteStore {
    async fn act(&self, act: Act) -> Result<Vec<Replayed>, StoreError> {
        Ok(self.client.act(&act).await?.outcomes.into_iter().map(Into::into).collect())
    }
}

#[async_trait]
impl Desk for RemoteStore {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        self.client.define_queue(&Queue { name: queue.clone(), policy: policy.into() }).await?;
        Ok(())
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        match paused {
            true => self.client.pause(queue, None).await?,
            false => self.client.resume(queue, None).await?,
        };
        Ok(())
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let set = SetGate { queue: queue.clone(), message_type: message_type.clone(), gate };
        self.client.set_gate(&set).await?;
        Ok(())
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::Replay { replays: replays.into_iter().map(Into::into).collect() }).await
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::DeadLetter { ids, why }).await
    }

    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::Discard { ids, why }).await
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::Restore { ids }).await
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        Ok(self.client.purge(&Purge { queue: queue.clone(), age: age.into(), rows_max }).await?.count)
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::Cancel { ids }).await
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::Hasten { ids }).await
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.act(Act::ResetAttempts { ids }).await
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        Ok(self.client.release_stream(queue, stream).await?.released)
    }
}
