//! Views (contract 30).

use std::sync::Arc;

use async_trait::async_trait;
use sickbay_core::id::IdPrefix;
use sickbay_core::port::Overview;
use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{ProcessView, QueueStats, StreamDetail, StreamView, TypeGate};
use sickbay_core::{Key, MessageType, QueueName, QueuePolicy, StoreError, StreamKey, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::call::{Param, column};
use super::row::odd;
use super::{Inner, PostgresStore};

const STATS: &str = "SELECT q.paused, q.policy, s.* FROM sickbay.queue q, sickbay.stats($1, q.no) s
    WHERE q.no = sickbay.queue_no($2)";

#[async_trait]
impl Overview for PostgresStore {
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        let inner = self.inner.clone();
        self.run(async move { inner.queues().await }).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError> {
        let (inner, queue) = (self.inner.clone(), queue.clone());
        self.run(async move { inner.stats(&queue).await }).await
    }

    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        let inner = self.inner.clone();
        self.run(async move { inner.find(prefix).await }).await
    }

    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        let (inner, filter) = (self.inner.clone(), filter.clone());
        self.run(async move { inner.quarantine(&filter, page).await }).await
    }

    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        let (inner, filter) = (self.inner.clone(), filter.clone());
        self.run(async move { inner.quarantine_count(&filter).await }).await
    }

    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError> {
        let (inner, queue) = (self.inner.clone(), queue.clone());
        self.run(async move { inner.streams(&queue, None, rows_max).await }).await
    }

    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        let (inner, queue, key) = (self.inner.clone(), queue.clone(), key.clone());
        self.run(async move { inner.stream(&queue, &key, rows_max).await }).await
    }

    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError> {
        self.run(self.inner.clone().processes()).await
    }

    async fn is_done(&self, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        let (inner, queue, key) = (self.inner.clone(), queue.clone(), key.clone());
        self.run(async move { inner.is_done(&queue, &key).await }).await
    }
}

/// A list that the database wrote as JSON; nothing is an empty one.
fn list<T: serde::de::DeserializeOwned>(row: &Row, name: &str) -> Result<Vec<T>, StoreError> {
    let text: Option<&str> = column(row, name)?;
    text.map_or_else(|| Ok(Vec::new()), |text| serde_json::from_str(text).map_err(|error| odd(&error)))
}

impl Inner {
    async fn queues(self: Arc<Self>) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        let rows = self.query("SELECT name, policy FROM sickbay.queue ORDER BY name", &[]).await?;
        let queue = |row: &Row| {
            let name: &str = row.get(0);
            let policy = self.read_policy(name, row.get(1))?;
            Ok((QueueName::new(name).map_err(|error| odd(&error))?, policy.as_ref().clone()))
        };
        rows.iter().map(queue).collect()
    }

    async fn stats(self: Arc<Self>, queue: &QueueName) -> Result<QueueStats, StoreError> {
        let (now, name) = (self.now(), queue.as_str());
        let params: [Param<'_>; 2] = [(&now, Type::INT8), (&name, Type::TEXT)];
        let rows = self.query(STATS, &params).await?;
        let row = rows.first().ok_or_else(|| odd(&"no figures"))?;
        let count = |name: &str| Ok::<_, StoreError>(u64::try_from(column::<i64>(row, name)?).unwrap_or(0));
        let time =
            |name: &str| Ok::<_, StoreError>(column::<Option<i64>>(row, name)?.map(Timestamp::from_millis));
        let (scheduled, failed, active) = (count("scheduled")?, count("failed")?, count("active")?);
        let mut stats = QueueStats {
            pending: count("live")?.saturating_sub(active).saturating_sub(scheduled).saturating_sub(failed),
            scheduled,
            failed,
            active,
            dead: count("dead")?,
            discarded: count("discarded")?,
            pushed: count("pushed")?,
            completed: count("completed")?,
            duplicates: count("duplicates")?,
            failures: count("failures")?,
            quarantined: count("quarantined")?,
            replayed: count("replayed")?,
            removed: count("removed")?,
            next_due_at: time("next_due_at")?,
            latest_due_at: time("latest_due_at")?,
            paused: column(row, "paused")?,
            paused_types: gates(row)?,
            reasons: list::<(String, u64)>(row, "reasons")?.into_iter().collect(),
            ..QueueStats::default()
        };
        let policy = self.read_policy(name, column(row, "policy")?)?;
        for (failures, message_type, count) in list::<(u32, Option<MessageType>, u64)>(row, "retries")? {
            *stats.retry_counts.entry(failures).or_default() += count;
            if failures + 1 >= policy.deliveries_max(message_type.as_ref()) {
                stats.poison_candidates += count;
            }
        }
        Ok(stats)
    }

    async fn is_done(self: Arc<Self>, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        let (now, queue, key) = (self.now(), queue.as_str(), key.as_str());
        let sql = "SELECT EXISTS (SELECT 1 FROM sickbay.key WHERE queue = sickbay.queue_no($2) AND key = $3
            AND state = 1 AND done_until > sickbay.time_now($1)), sickbay.queue_no($2)";
        let params: [Param<'_>; 3] = [(&now, Type::INT8), (&queue, Type::TEXT), (&key, Type::TEXT)];
        let rows = self.query(sql, &params).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

fn gates(row: &Row) -> Result<Vec<(MessageType, TypeGate)>, StoreError> {
    let gate = |(name, gate, left): (MessageType, i16, u32)| {
        let gate = match gate {
            1 => TypeGate::Paused,
            2 => TypeGate::Tripped,
            _ => TypeGate::Probing { left },
        };
        (name, gate)
    };
    Ok(list(row, "gates")?.into_iter().map(gate).collect())
}
