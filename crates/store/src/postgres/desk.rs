//! Operators' acts (contract 24–29).

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sickbay_core::message::Status;
use sickbay_core::policy::{Ordering, WhenHeadQuarantined};
use sickbay_core::port::{Replay, Replayed};
use sickbay_core::stats::TypeGate;
use sickbay_core::{MessageId, MessageType, QueueName, QueuePolicy, StoreError, StreamKey};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::call::Param;
use super::pack::Details;
use super::push::millis;
use super::row::{name, odd};
use super::settle::{TYPES, lower, signature};
use crate::door::{self, Act};

pub(super) const DEFINE: &str = "INSERT INTO sickbay.queue (name, policy, run_max, key_window, keep_completed, defers, holds)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO UPDATE SET policy = excluded.policy,
        run_max = excluded.run_max, key_window = excluded.key_window, keep_completed = excluded.keep_completed,
        defers = excluded.defers, holds = excluded.holds";

/// What was pushed by plain SQL has no checksum.
const BYTES: &str = "SELECT id, (message).payload, (message).checksum FROM sickbay.dead
    WHERE id = ANY ($1) AND discarded_at IS NULL AND (message).checksum IS NOT NULL";

/// Payloads that are read at once.
const READ_AT_ONCE: usize = 100;

/// A policy as the database keeps it.
pub(super) struct Definition {
    policy: String,
    run_max: i32,
    key_window: i64,
    keep_completed: i64,
    defers: bool,
    holds: bool,
}

impl Definition {
    pub(super) fn of(policy: &QueuePolicy) -> Result<Self, StoreError> {
        let defers = policy.ordering == Ordering::Available;
        Ok(Self {
            policy: serde_json::to_string(policy).map_err(|error| odd(&error))?,
            run_max: i32::try_from(policy.run_max).unwrap_or(i32::MAX),
            key_window: millis(policy.key_window),
            keep_completed: keep_millis(policy),
            defers,
            holds: !defers && policy.when_head_quarantined == WhenHeadQuarantined::Hold,
        })
    }

    /// What [`DEFINE`] needs for a queue.
    pub(super) fn params<'p>(&'p self, queue: &'p &str) -> [Param<'p>; 7] {
        [
            (queue, Type::TEXT),
            (&self.policy, Type::TEXT),
            (&self.run_max, Type::INT4),
            (&self.key_window, Type::INT8),
            (&self.keep_completed, Type::INT8),
            (&self.defers, Type::BOOL),
            (&self.holds, Type::BOOL),
        ]
    }
}

fn numbers(ids: &[MessageId]) -> Vec<i64> {
    ids.iter().map(|id| id.number() as i64).collect()
}

/// The words of the database as answers.
fn answers(act: Act, rows: &[Row]) -> Result<Vec<Replayed>, StoreError> {
    let status = |word: &str| {
        let all = [
            Status::Pending,
            Status::Scheduled,
            Status::Failed,
            Status::Active,
            Status::Dead,
            Status::Discarded,
        ];
        all.into_iter().find(|status| status.as_str() == word).ok_or_else(|| odd(&word))
    };
    let answer = |row: &Row| match row.get::<_, &str>(0) {
        "done" => Ok(Replayed::Done),
        "missing" => Ok(Replayed::NotFound),
        word if word.starts_with("untouched ") => {
            Ok(Replayed::Refused { why: door::nothing_to_reset(status(&word[10..])?) })
        }
        word => Ok(Replayed::Refused { why: act.refusal(status(word)?).unwrap_or_default() }),
    };
    rows.iter().map(answer).collect()
}

impl Inner {
    pub(super) async fn define_queue(
        self: Arc<Self>,
        queue: QueueName,
        policy: QueuePolicy,
    ) -> Result<(), StoreError> {
        door::check_policy(&policy)?;
        let definition = Definition::of(&policy)?;
        let queue = queue.as_str();
        self.query(DEFINE, &definition.params(&queue)).await.map(drop)
    }

    /// The policy of a queue as the database has it now.
    pub(super) async fn policy_of(&self, queue: &str) -> Result<Arc<QueuePolicy>, StoreError> {
        let sql = "SELECT policy FROM sickbay.queue WHERE no = sickbay.queue_no($1)";
        let rows = self.query(sql, &[(&queue, Type::TEXT)]).await?;
        let text: &str = rows.first().map_or("{}", |row| row.get(0));
        self.read_policy(queue, text)
    }

    /// What a policy's text means. The same text is read once.
    pub(super) fn read_policy(&self, queue: &str, text: &str) -> Result<Arc<QueuePolicy>, StoreError> {
        let mut known = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, policy)) = known.get(queue).filter(|(before, _)| before == text) {
            return Ok(policy.clone());
        }
        let policy: QueuePolicy = serde_json::from_str(text).map_err(|error| odd(&error))?;
        let policy = Arc::new(policy);
        known.insert(queue.to_owned(), (text.to_owned(), policy.clone()));
        Ok(policy)
    }

    pub(super) async fn set_paused(
        self: Arc<Self>,
        queue: QueueName,
        paused: bool,
    ) -> Result<(), StoreError> {
        let queue = queue.as_str();
        let sql = "UPDATE sickbay.queue SET paused = $2 WHERE no = sickbay.queue_no($1)
            RETURNING sickbay.announce(no)";
        self.query(sql, &[(&queue, Type::TEXT), (&paused, Type::BOOL)]).await?;
        self.bell.ring(Some(queue));
        Ok(())
    }

    pub(super) async fn set_type_gate(
        self: Arc<Self>,
        queue: QueueName,
        message_type: MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let (gate, left) = match gate {
            TypeGate::Open => (0i16, 0i64),
            TypeGate::Paused => (1, 0),
            TypeGate::Tripped => (2, 0),
            TypeGate::Probing { left } => (3, i64::from(left)),
        };
        let (queue, kind) = (queue.as_str(), message_type.as_str());
        let params: [Param<'_>; 4] =
            [(&queue, Type::TEXT), (&kind, Type::TEXT), (&gate, Type::INT2), (&left, Type::INT8)];
        self.query("SELECT sickbay.set_type_gate($1, $2, $3, $4)", &params).await?;
        self.bell.ring(Some(queue));
        Ok(())
    }

    pub(super) async fn replay(self: Arc<Self>, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        for replay in &replays {
            replay.payload.as_ref().map(|payload| self.options.limits.check_payload(payload)).transpose()?;
        }
        let now = self.now();
        let number = |replay: &Replay| replay.id.number() as i64;
        let damaged = self.damaged(&replays.iter().map(number).collect::<Vec<i64>>()).await?;
        let whole: Vec<&Replay> =
            replays.iter().filter(|replay| !damaged.contains(&number(replay))).collect();
        let ids: Vec<i64> = whole.iter().map(|replay| number(replay)).collect();
        let queues: Vec<Option<&str>> =
            whole.iter().map(|replay| replay.queue.as_ref().map(QueueName::as_str)).collect();
        let payloads: Vec<Option<&[u8]>> = whole.iter().map(|replay| replay.payload.as_deref()).collect();
        let checksum = |replay: &&Replay| replay.payload.as_deref().map(|bytes| door::checksum(bytes) as i64);
        let checksums: Vec<Option<i64>> = whole.iter().map(checksum).collect();
        let params: [Param<'_>; 5] = [
            (&now, Type::INT8),
            (&ids, Type::INT8_ARRAY),
            (&queues, Type::TEXT_ARRAY),
            (&payloads, Type::BYTEA_ARRAY),
            (&checksums, Type::INT8_ARRAY),
        ];
        let rows = self.query("SELECT sickbay.replay($1, $2, $3, $4, $5)", &params).await?;
        self.bell.ring(None);
        let mut answered = answers(Act::Replay, &rows)?.into_iter();
        let answer = |replay: &Replay| match damaged.contains(&number(replay)) {
            true => Replayed::Refused { why: door::DAMAGED.to_owned() },
            false => answered.next().unwrap_or(Replayed::NotFound),
        };
        Ok(replays.iter().map(answer).collect())
    }

    /// Which of these are dead letters whose bytes are not those that were pushed. The server cannot tell.
    async fn damaged(&self, ids: &[i64]) -> Result<HashSet<i64>, StoreError> {
        let mut damaged = HashSet::new();
        for some in ids.chunks(READ_AT_ONCE) {
            let rows = self.query(BYTES, &[(&some, Type::INT8_ARRAY)]).await?;
            let changed = |row: &&Row| door::checksum(row.get::<_, &[u8]>(1)) as i64 != row.get::<_, i64>(2);
            damaged.extend(rows.iter().filter(changed).map(|row| row.get::<_, i64>(0)));
        }
        Ok(damaged)
    }

    pub(super) async fn dead_letter(
        self: Arc<Self>,
        ids: Vec<MessageId>,
        why: String,
    ) -> Result<Vec<Replayed>, StoreError> {
        let (now, ids) = (self.now(), numbers(&ids));
        let failure = door::operator(&why);
        let mut signatures: Vec<Option<i64>> = vec![None; ids.len()];
        let mut details: Vec<Option<Vec<u8>>> = vec![None; ids.len()];
        for row in self.query(TYPES, &[(&ids, Type::INT8_ARRAY)]).await? {
            let queue = QueueName::new(row.get::<_, &str>(1)).map_err(|error| odd(&error))?;
            let message_type = name::<MessageType>(row.get(2))?;
            let policy = self.policy_of(queue.as_str()).await?;
            let signature = signature(&queue, message_type.as_ref(), &failure, &policy);
            let packed =
                Details { failure: Some(failure.clone()), signature: Some(signature), ..Details::default() };
            for (at, _) in ids.iter().enumerate().filter(|(_, id)| **id == row.get::<_, i64>(0)) {
                signatures[at] = Some(signature.to_bits() as i64);
                details[at] = packed.pack();
            }
        }
        let lower = lower(&failure.error);
        let params: [Param<'_>; 6] = [
            (&now, Type::INT8),
            (&ids, Type::INT8_ARRAY),
            (&failure.error, Type::TEXT),
            (&lower, Type::TEXT),
            (&details, Type::BYTEA_ARRAY),
            (&signatures, Type::INT8_ARRAY),
        ];
        let rows = self.query("SELECT sickbay.dead_letter($1, $2, $3, $4, $5, $6)", &params).await?;
        self.bell.ring(None);
        answers(Act::DeadLetter, &rows)
    }

    pub(super) async fn discard(
        self: Arc<Self>,
        ids: Vec<MessageId>,
        why: String,
    ) -> Result<Vec<Replayed>, StoreError> {
        let (now, ids, why) = (self.now(), numbers(&ids), sickbay_core::text::clean_error(&why));
        let params: [Param<'_>; 3] = [(&now, Type::INT8), (&ids, Type::INT8_ARRAY), (&why, Type::TEXT)];
        let rows = self.query("SELECT sickbay.discard($1, $2, $3)", &params).await?;
        self.bell.ring(None);
        answers(Act::Discard, &rows)
    }

    /// An act that needs nothing but the messages.
    pub(super) async fn act(
        self: Arc<Self>,
        act: Act,
        function: &'static str,
        ids: Vec<MessageId>,
    ) -> Result<Vec<Replayed>, StoreError> {
        let (now, ids) = (self.now(), numbers(&ids));
        let sql = format!("SELECT sickbay.{function}($1, $2)");
        let rows = self.query(&sql, &[(&now, Type::INT8), (&ids, Type::INT8_ARRAY)]).await?;
        self.bell.ring(None);
        answers(act, &rows)
    }

    pub(super) async fn purge(
        self: Arc<Self>,
        queue: QueueName,
        age: Duration,
        rows_max: u32,
    ) -> Result<u64, StoreError> {
        let (now, queue, age, max) = (self.now(), queue.as_str(), millis(age), i64::from(rows_max));
        let params: [Param<'_>; 4] =
            [(&now, Type::INT8), (&queue, Type::TEXT), (&age, Type::INT8), (&max, Type::INT8)];
        let rows = self.query("SELECT sickbay.purge($1, $2, $3, $4)", &params).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }

    pub(super) async fn release_followers(
        self: Arc<Self>,
        queue: QueueName,
        stream: StreamKey,
    ) -> Result<bool, StoreError> {
        let (now, queue, stream) = (self.now(), queue.as_str(), stream.as_str());
        let params: [Param<'_>; 3] = [(&queue, Type::TEXT), (&stream, Type::TEXT), (&now, Type::INT8)];
        let rows = self.query("SELECT sickbay.release_followers($1, $2, $3)", &params).await?;
        self.bell.ring(Some(queue));
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

/// How long completed messages are kept; what is less than a millisecond is still kept.
fn keep_millis(policy: &QueuePolicy) -> i64 {
    if policy.keep_completed.is_zero() { 0 } else { millis(policy.keep_completed).max(1) }
}
