//! A remote store for the suite. Everything travels but handlers' own writes, which cannot: an exchange
//! that carries some goes to the owner directly. These promises are about them, and so about the owner
//! alone: `effect_key_and_acknowledgement_commit_together_or_not_at_all`,
//! `an_effect_of_another_store_is_an_error_and_settles_nothing`, `a_failed_effect_leaves_the_others_of_its_batch_alone`,
//! the lost settlements of `a_settlement_under_a_lost_lease_changes_nothing`, and the script
//! `effects_commit_with_the_acknowledgement_or_not_at_all`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::id::IdPrefix;
use sickbay_core::port::{
    Adoption, Deliveries, Desk, Exchange, Exchanged, Overview, ProcessId, Pushed, Pusher, Renewal, Replay,
    Replayed, Store,
};
use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{ProcessView, QueueStats, StreamDetail, StreamView, TypeGate};
use sickbay_core::{
    Key, LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, StoreError, StreamKey,
};
use sickbay_server::RemoteStore;

pub(crate) struct Travelling {
    pub(crate) remote: Arc<RemoteStore>,
    pub(crate) owner: Arc<dyn Store>,
}

#[async_trait]
impl Pusher for Travelling {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        self.remote.push(messages).await
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        self.remote.adopt(adoptions).await
    }
}

#[async_trait]
impl Deliveries for Travelling {
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, StoreError> {
        let stays = exchange.settlements.iter().any(|settlement| settlement.effect.is_some());
        match stays {
            true => self.owner.exchange(exchange).await,
            false => self.remote.exchange(exchange).await,
        }
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        self.remote.renew(renewal).await
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        self.remote.process_died(process, evidence).await
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.remote.sweep().await
    }

    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        self.remote.policy(queue).await
    }
}

#[async_trait]
impl Desk for Travelling {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        self.remote.define_queue(queue, policy).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        self.remote.set_paused(queue, paused).await
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        kind: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        self.remote.set_type_gate(queue, kind, gate).await
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        self.remote.replay(replays).await
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.remote.dead_letter(ids, why).await
    }

    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.remote.discard(ids, why).await
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.remote.restore(ids).await
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        self.remote.purge(queue, age, rows_max).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.remote.cancel(ids).await
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.remote.hasten(ids).await
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.remote.reset_attempts(ids).await
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        self.remote.release_followers(queue, stream).await
    }
}

#[async_trait]
impl Overview for Travelling {
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        self.remote.queues().await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError> {
        self.remote.stats(queue).await
    }

    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        self.remote.find(prefix).await
    }

    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        self.remote.quarantine(filter, page).await
    }

    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        self.remote.quarantine_count(filter).await
    }

    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError> {
        self.remote.streams(queue, rows_max).await
    }

    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        self.remote.stream(queue, key, rows_max).await
    }

    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError> {
        self.remote.processes().await
    }

    async fn is_done(&self, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        self.remote.is_done(queue, key).await
    }
}
