//! Views, read from one consistent state of the file.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use sickbay_core::id::IdPrefix;
use sickbay_core::port::Overview;
use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{ProcessView, QueueStats, StreamDetail, StreamView, TypeGate};
use sickbay_core::{Key, MessageType, QueueName, QueuePolicy, StoreError, StreamKey, Timestamp};

use super::SqliteStore;
use super::failure::Translate;
use super::place::{Place, queue_range, unpack};
use super::waiting::is_held;
use super::{list, stream_view, view};

#[async_trait]
impl Overview for SqliteStore {
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        let policies = self.inner.policies.by_name.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut queues: Vec<_> =
            policies.iter().map(|(name, policy)| (name.clone(), (**policy).clone())).collect();
        queues.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(queues)
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError> {
        let policy = self.inner.policies.get(queue)?;
        let (queue, now) = (queue.clone(), self.inner.clock.now().millis());
        self.inner.readers.read(move |connection| stats(connection, &queue, &policy, now)).await
    }

    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        let now = self.inner.clock.now().millis();
        self.inner.readers.read(move |connection| view::find(connection, prefix, now)).await
    }

    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        let filter = filter.clone();
        self.inner.readers.read(move |connection| list::page(connection, &filter, page)).await
    }

    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.inner.readers.read(move |connection| list::count(connection, &filter)).await
    }

    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError> {
        self.inner.policies.get(queue)?;
        let (queue, now) = (queue.clone(), self.inner.clock.now().millis());
        self.inner.readers.read(move |connection| stream_view::list(connection, &queue, rows_max, now)).await
    }

    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        self.inner.policies.get(queue)?;
        let (queue, key, now) = (queue.clone(), key.clone(), self.inner.clock.now().millis());
        self.inner
            .readers
            .read(move |connection| stream_view::detail(connection, &queue, &key, rows_max, now))
            .await
    }

    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError> {
        // Only the writer knows: who holds what is in its memory.
        self.call(|tx| Ok(tx.processes())).await
    }

    async fn is_done(&self, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        self.inner.policies.get(queue)?;
        let (queue, key, now) = (queue.clone(), key.clone(), self.inner.clock.now().millis());
        self.inner
            .readers
            .read(move |connection| {
                let sql = "SELECT 1 FROM key WHERE queue = ?1 AND key = ?2 AND state = 1 AND done_until > ?3";
                let no = queue_no(connection, &queue)?;
                connection
                    .prepare_cached(sql)
                    .translated()?
                    .exists(params![no, key.as_str(), now])
                    .translated()
            })
            .await
    }
}

pub(super) fn queue_no(connection: &Connection, queue: &QueueName) -> Result<i64, StoreError> {
    connection
        .prepare_cached("SELECT no FROM queue WHERE name = ?1")
        .translated()?
        .query_row([queue.as_str()], |row| row.get(0))
        .translated()
}

fn stats(
    connection: &Connection,
    name: &QueueName,
    policy: &QueuePolicy,
    now: i64,
) -> Result<QueueStats, StoreError> {
    let no = queue_no(connection, name)?;
    let mut live = 0u64;
    let mut stats = connection
        .prepare_cached(
            "SELECT t.live, t.active, t.dead, t.discarded, t.pushed, t.completed, t.duplicates, t.failures, t.quarantined,
             t.replayed, t.removed, q.paused FROM tally t JOIN queue q ON q.no = t.queue WHERE t.queue = ?1",
        )
        .translated()?
        .query_row([no], |row| {
            live = row.get(0)?;
            Ok(QueueStats {
                active: row.get(1)?,
                dead: row.get(2)?,
                discarded: row.get(3)?,
                pushed: row.get(4)?,
                completed: row.get(5)?,
                duplicates: row.get(6)?,
                failures: row.get(7)?,
                quarantined: row.get(8)?,
                replayed: row.get(9)?,
                removed: row.get(10)?,
                paused: row.get(11)?,
                ..QueueStats::default()
            })
        })
        .translated()?;
    add_waiting(connection, no, policy, now, &mut stats)?;
    stats.pending = live.saturating_sub(stats.active + stats.scheduled + stats.failed);
    add_reasons(connection, no, &mut stats)?;
    add_gates(connection, no, &mut stats)?;
    Ok(stats)
}

fn add_waiting(
    connection: &Connection,
    no: i64,
    policy: &QueuePolicy,
    now: i64,
    stats: &mut QueueStats,
) -> Result<(), StoreError> {
    let (low, high) = queue_range(no);
    let mut statement = connection
        .prepare_cached(
            "SELECT w.failures, w.due_at > ?3, t.name, count(*), min(w.due_at), max(w.due_at) FROM waiting w
             LEFT JOIN type t ON t.no = w.type
             WHERE w.place BETWEEN ?1 AND ?2 AND w.state <> 1 GROUP BY w.failures, w.due_at > ?3, w.type",
        )
        .translated()?;
    let mut rows = statement.query(params![low, high, now]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let group = Waiting::read(row).translated()?;
        count_waiting(stats, policy, &group, row.get(3).translated()?);
        if group.later {
            let (first, last) = (row.get::<_, i64>(4).translated()?, row.get::<_, i64>(5).translated()?);
            let first = Timestamp::from_millis(first);
            stats.next_due_at = Some(stats.next_due_at.map_or(first, |next| next.min(first)));
            stats.latest_due_at = stats.latest_due_at.max(Some(Timestamp::from_millis(last)));
        }
    }
    for group in held_again(connection, (low, high), now)? {
        count_waiting(stats, policy, &group, -1);
    }
    Ok(())
}

/// What decides how a waiting message is counted.
struct Waiting {
    failures: u32,
    later: bool,
    message_type: Option<MessageType>,
}

impl Waiting {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let message_type = row.get::<_, Option<String>>(2)?.and_then(|name| MessageType::new(name).ok());
        Ok(Self { failures: row.get(0)?, later: row.get(1)?, message_type })
    }
}

fn count_waiting(stats: &mut QueueStats, policy: &QueuePolicy, group: &Waiting, change: i64) {
    let count = |figure: &mut u64| *figure = figure.saturating_add_signed(change);
    if group.later {
        count(if group.failures == 0 { &mut stats.scheduled } else { &mut stats.failed });
    }
    if group.failures > 0 {
        let retries = stats.retry_counts.entry(group.failures).or_default();
        count(retries);
        if *retries == 0 {
            stats.retry_counts.remove(&group.failures);
        }
        if group.failures + 1 >= policy.deliveries_max(group.message_type.as_ref()) {
            count(&mut stats.poison_candidates);
        }
    }
}

/// Messages in hand whose rows look as if they waited.
fn held_again(connection: &Connection, places: (i64, i64), now: i64) -> Result<Vec<Waiting>, StoreError> {
    let mut known = connection
        .prepare_cached(
            "SELECT w.failures, w.due_at > ?2, t.name, w.state, w.claim FROM waiting w
             LEFT JOIN type t ON t.no = w.type WHERE w.place = ?1",
        )
        .translated()?;
    let mut statement =
        connection.prepare_cached("SELECT no, again FROM claim WHERE again IS NOT NULL").translated()?;
    let mut rows = statement.query([]).translated()?;
    let mut held = Vec::new();
    while let Some(row) = rows.next().translated()? {
        let claim: i64 = row.get(0).translated()?;
        let again = unpack(row.get_ref(1).translated()?.as_blob().unwrap_or_default());
        for place in again.into_iter().filter(|place| (places.0..=places.1).contains(place)) {
            let found = known
                .query_row(params![place, now], |row| {
                    Ok((Waiting::read(row)?, row.get::<_, i64>(3)?, row.get(4)?))
                })
                .optional()
                .translated()?;
            held.extend(found.filter(|(_, state, by)| is_held(*state, *by, claim)).map(|found| found.0));
        }
    }
    Ok(held)
}

fn add_reasons(connection: &Connection, no: i64, stats: &mut QueueStats) -> Result<(), StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT reason, dead FROM reason_tally WHERE queue = ?1 AND dead > 0")
        .translated()?;
    let rows = statement.query_map([no], |row| Ok((row.get(0)?, row.get(1)?))).translated()?;
    stats.reasons = rows.collect::<rusqlite::Result<_>>().translated()?;
    Ok(())
}

fn add_gates(connection: &Connection, no: i64, stats: &mut QueueStats) -> Result<(), StoreError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT t.name, g.gate, g.probes_left FROM type_gate g JOIN type t ON t.no = g.type WHERE g.queue = ?1
             ORDER BY t.name",
        )
        .translated()?;
    let mut rows = statement.query([no]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let Ok(name) = MessageType::new(row.get::<_, String>(0).translated()?) else { continue };
        let gate = match row.get::<_, i64>(1).translated()? {
            1 => TypeGate::Paused,
            2 => TypeGate::Tripped,
            _ => TypeGate::Probing { left: row.get(2).translated()? },
        };
        stats.paused_types.push((name, gate));
    }
    Ok(())
}

/// Numbers of a journal row, for the views.
pub(super) fn journal_numbers(packed: &[u8]) -> impl Iterator<Item = Place> {
    unpack(packed).into_iter().map(Place)
}
