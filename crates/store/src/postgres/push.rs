//! How messages come in (contract 1–7).

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::port::{Adoption, Pushed};
use sickbay_core::{Decision, MessageId, MessageType, NewMessage, StoreError, StreamKey};
use tokio_postgres::types::Type;
use tokio_postgres::{Row, Transaction};

use super::call::Param;
use super::settle::Columns;
use super::{Inner, PostgresStore, failure};
use crate::door;
use crate::pack::pack_headers;

const PUSH: &str =
    "SELECT id, duplicate FROM sickbay.push_all($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const ADOPT: &str = "SELECT id, duplicate FROM sickbay.adopt($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
    $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)";

/// A duration in milliseconds.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Messages as columns. A column in which no message has anything is left out.
struct Batch<'m> {
    queues: Vec<&'m str>,
    payloads: Vec<&'m [u8]>,
    types: Option<Vec<Option<&'m str>>>,
    streams: Option<Vec<Option<&'m str>>>,
    keys: Option<Vec<Option<&'m str>>>,
    ranks: Vec<i16>,
    delays: Option<Vec<i64>>,
    deadlines: Option<Vec<Option<i64>>>,
    headers: Option<Vec<Option<Vec<u8>>>>,
    checksums: Vec<i64>,
    stages: Option<Vec<i32>>,
}

/// The column, unless every message has the same nothing in it.
fn unless_all<T: PartialEq>(column: Vec<T>, nothing: &T) -> Option<Vec<T>> {
    if column.iter().all(|value| value == nothing) { None } else { Some(column) }
}

impl<'m> Batch<'m> {
    fn new<M: Iterator<Item = &'m NewMessage> + Clone>(messages: M) -> Self {
        let types = messages.clone().map(|m| m.message_type.as_ref().map(MessageType::as_str)).collect();
        let streams = messages.clone().map(|m| m.stream.as_ref().map(StreamKey::as_str)).collect();
        let keys = messages.clone().map(|m| m.key.as_ref().map(sickbay_core::Key::as_str)).collect();
        let headers = messages.clone().map(|m| pack_headers(&m.headers)).collect();
        Self {
            queues: messages.clone().map(|m| m.queue.as_str()).collect(),
            payloads: messages.clone().map(|m| m.payload.as_ref()).collect(),
            types: unless_all(types, &None),
            streams: unless_all(streams, &None),
            keys: unless_all(keys, &None),
            ranks: messages.clone().map(|m| 9 - i16::from(m.priority.get())).collect(),
            delays: unless_all(messages.clone().map(|m| millis(m.delay)).collect(), &0),
            deadlines: unless_all(messages.clone().map(|m| m.deadline.map(millis)).collect(), &None),
            headers: unless_all(headers, &None),
            checksums: messages.clone().map(|m| door::checksum(&m.payload) as i64).collect(),
            stages: unless_all(messages.map(|m| i32::from(m.stages.bits())).collect(), &0),
        }
    }

    /// The queues without the same one again and again.
    fn one_queue(mut self) -> Self {
        if self.queues.windows(2).all(|pair| pair[0] == pair[1]) {
            self.queues.truncate(1);
        }
        self
    }

    fn params<'p>(&'p self, now: &'p Option<i64>) -> [Param<'p>; 12] {
        [
            (now, Type::INT8),
            (&self.queues, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.types, Type::TEXT_ARRAY),
            (&self.streams, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.ranks, Type::INT2_ARRAY),
            (&self.delays, Type::INT8_ARRAY),
            (&self.deadlines, Type::INT8_ARRAY),
            (&self.headers, Type::BYTEA_ARRAY),
            (&self.checksums, Type::INT8_ARRAY),
            (&self.stages, Type::INT4_ARRAY),
        ]
    }
}

fn read(rows: &[Row]) -> Result<Vec<Pushed>, StoreError> {
    let one = |row: &Row| {
        let id = u64::try_from(row.get::<_, i64>(0)).ok().and_then(MessageId::from_number);
        let id = id.ok_or_else(door::numbers_spent)?;
        Ok(if row.get(1) { Pushed::Duplicate(id) } else { Pushed::New(id) })
    };
    rows.iter().map(one).collect()
}

impl PostgresStore {
    /// Pushes in a transaction of the caller's own: the messages are there when, and only when, that
    /// commits. An error leaves that transaction broken, as every error of a statement does.
    pub async fn push_in(
        &self,
        transaction: &Transaction<'_>,
        messages: &[NewMessage],
    ) -> Result<Vec<Pushed>, StoreError> {
        messages.iter().try_for_each(|message| self.inner.options.limits.check(message))?;
        let batch = Batch::new(messages.iter()).one_queue();
        let now = self.inner.now();
        let rows = transaction.query_typed(&self.inner.sql(PUSH), &batch.params(&now)).await;
        read(&rows.map_err(|error| failure::translate(&error))?)
    }
}

impl Inner {
    pub(super) async fn push(self: Arc<Self>, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        messages.iter().try_for_each(|message| self.options.limits.check(message))?;
        let batch = Batch::new(messages.iter()).one_queue();
        let now = self.now();
        let rows = self.query(PUSH, &batch.params(&now)).await?;
        let mut queues = batch.queues.clone();
        queues.sort_unstable();
        queues.dedup();
        queues.into_iter().for_each(|queue| self.bell.ring(Some(queue)));
        read(&rows)
    }

    pub(super) async fn adopt(self: Arc<Self>, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        adoptions.iter().try_for_each(|adoption| self.options.limits.check(&adoption.message))?;
        let mut columns = Columns::default();
        for adoption in &adoptions {
            let message = &adoption.message;
            let mut signature = adoption.signature;
            if let (None, Decision::Quarantine { failure, .. }) = (signature, &adoption.decision) {
                let policy = self.policy_of(message.queue.as_str()).await?;
                let message_type = message.message_type.as_ref();
                let failure = door::clean(failure.clone());
                signature = Some(super::settle::signature(&message.queue, message_type, &failure, &policy));
            }
            columns.add_decision(adoption.decision.clone(), signature, adoption.stages);
        }
        let batch = Batch::new(adoptions.iter().map(|adoption| &adoption.message));
        let origins: Vec<&[u8]> = adoptions.iter().map(|adoption| adoption.origin.as_bytes()).collect();
        let facts = |adoption: &Adoption| {
            let c = adoption.counters;
            [c.deliveries, c.failures, c.crashes, c.charges, c.releases, c.expiries, c.replays, c.earlier]
        };
        let facts: Vec<i32> = adoptions.iter().flat_map(facts).map(|count| count as i32).collect();
        let started: Vec<i64> = adoptions.iter().map(|adoption| adoption.started_at.millis()).collect();
        let clean = |adoption: &Adoption| sickbay_core::text::clean_error(&adoption.worker);
        let workers: Vec<String> = adoptions.iter().map(clean).collect();
        let now = self.now();
        let [now, queues, payloads, types, streams, keys, ranks, _, deadlines, headers, checksums, stages] =
            batch.params(&now);
        let [acts, after, decided, _, details, set_aside, kind, reason, error, error_lower, signature] =
            columns.decision_params();
        let params: [Param<'_>; 25] = [
            now,
            queues,
            (&origins, Type::BYTEA_ARRAY),
            payloads,
            types,
            streams,
            keys,
            ranks,
            deadlines,
            headers,
            checksums,
            stages,
            (&facts, Type::INT4_ARRAY),
            (&started, Type::INT8_ARRAY),
            (&workers, Type::TEXT_ARRAY),
            acts,
            after,
            decided,
            details,
            set_aside,
            kind,
            reason,
            error,
            error_lower,
            signature,
        ];
        let rows = self.query(ADOPT, &params).await?;
        self.bell.ring(None);
        read(&rows)
    }
}
