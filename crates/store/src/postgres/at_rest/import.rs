//! Records of another store are taken in.

use sickbay_core::StoreError;
use sickbay_core::port::{CopyStep, Progress};
use sickbay_core::record::{Cursor, DeadRecord, KeyState, QueueRecord, Record, RecordKind};
use sickbay_core::stats::TypeGate;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::PostgresAtRest;
use super::columns::{COLUMNS, Messages, PARAMS, Queues, ROW, State};
use crate::postgres::call::Param;
use crate::postgres::desk::{DEFINE, Definition};
use crate::postgres::row::odd;
use crate::postgres::settle::lower;

/// How many streams are looked at in one transaction.
const STREAMS_AT_ONCE: i64 = 1000;

impl PostgresAtRest {
    /// Takes records in, all of one kind.
    pub(super) async fn take_in(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
    ) -> Result<(), StoreError> {
        let Some(first) = records.first() else { return Ok(()) };
        let queues = self.queues(transaction).await?;
        match first.kind() {
            RecordKind::Queue => {
                for record in records {
                    if let Record::Queue(queue) = record {
                        self.take_queue(transaction, queue).await?;
                    }
                }
                Ok(())
            }
            RecordKind::Gate => self.take_gates(transaction, records, &queues).await,
            RecordKind::Waiting => self.take_waiting(transaction, records, &queues).await,
            RecordKind::Dead => self.take_dead(transaction, records, &queues).await,
            RecordKind::Completed => self.take_completed(transaction, records, &queues).await,
            RecordKind::Key => self.take_keys(transaction, records, &queues).await,
            RecordKind::Origin => self.take_origins(transaction, records, &queues).await,
        }
    }

    async fn queues(&self, transaction: &Transaction<'_>) -> Result<Queues, StoreError> {
        let rows = self.ask(transaction, "SELECT name, no FROM sickbay.queue", &[]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    async fn take_queue(
        &self,
        transaction: &Transaction<'_>,
        record: &QueueRecord,
    ) -> Result<(), StoreError> {
        let definition = Definition::of(&record.policy)?;
        let name = record.name.as_str();
        self.ask(transaction, DEFINE, &definition.params(&name)).await?;
        let sql = "UPDATE sickbay.queue SET paused = $2 WHERE name = $1";
        self.ask(transaction, sql, &[(&name, Type::TEXT), (&record.paused, Type::BOOL)]).await?;
        let figures = record.flow.figures();
        let mut params: Vec<Param<'_>> = vec![(&name, Type::TEXT)];
        params.extend(figures.iter().map(|figure| -> Param<'_> { (figure, Type::INT8) }));
        let sql = "INSERT INTO sickbay.tally (queue, pushed, completed, duplicates, failures, quarantined, replayed, removed)
            SELECT no, $2, $3, $4, $5, $6, $7, $8 FROM sickbay.queue WHERE name = $1";
        self.ask(transaction, sql, &params).await.map(drop)
    }

    async fn take_gates(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
        queues: &Queues,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO sickbay.type_gate VALUES ($1, $2, $3, $4)";
        for record in records {
            let Record::Gate(gate) = record else { continue };
            let queue = number_of(queues, record)?;
            let (code, left) = match gate.gate {
                TypeGate::Open => continue,
                TypeGate::Paused => (1i16, 0i64),
                TypeGate::Tripped => (2, 0),
                TypeGate::Probing { left } => (3, i64::from(left)),
            };
            let name = gate.message_type.as_str();
            let params: [Param<'_>; 4] =
                [(&queue, Type::INT4), (&name, Type::TEXT), (&code, Type::INT2), (&left, Type::INT8)];
            self.ask(transaction, sql, &params).await?;
        }
        Ok(())
    }

    async fn take_waiting(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
        queues: &Queues,
    ) -> Result<(), StoreError> {
        let mut messages = Messages::default();
        for record in records {
            let Record::Waiting(waiting) = record else { continue };
            let (suspect, deferred) = (waiting.suspect, waiting.deferred);
            let state = State { due_at: waiting.due_at.millis(), suspect, deferred, last: None };
            messages.add(&waiting.body, state, queues)?;
        }
        // What is in a stream lies behind until its stream is arranged.
        let sql = format!(
            "INSERT INTO sickbay.waiting SELECT u.queue, CASE WHEN u.stream IS NOT NULL THEN 1 WHEN g.gate IS NOT NULL THEN 2
             WHEN u.suspect THEN 3 ELSE 0 END, {ROW} FROM unnest({PARAMS}) u({COLUMNS})
             LEFT JOIN sickbay.type_gate g ON g.queue = u.queue AND g.type = u.type"
        );
        self.ask(transaction, &sql, &messages.params()).await?;
        self.take_traces(transaction, &messages).await?;
        self.make_streams(transaction, &messages.queues, &messages.streams).await?;
        let counted = messages.queues.iter().map(|queue| (*queue, [1, 0, 0]));
        self.count(transaction, counted).await
    }

    async fn take_dead(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
        queues: &Queues,
    ) -> Result<(), StoreError> {
        let dead: Vec<&DeadRecord> = records
            .iter()
            .filter_map(|record| if let Record::Dead(dead) = record { Some(&**dead) } else { None })
            .collect();
        let mut messages = Messages::default();
        for record in &dead {
            let last = record.last_delivery.map(|token| (token.epoch, token.claim));
            let due_at = record.quarantined_at.millis();
            messages.add(&record.body, State { due_at, last, ..State::default() }, queues)?;
        }
        let errors: Vec<&str> = dead.iter().map(|record| whole_error(record)).collect();
        let lowers: Vec<Option<String>> = errors.iter().map(|error| lower(error)).collect();
        let orders: Vec<i64> = dead.iter().map(|record| record.order as i64).collect();
        let asides: Vec<&str> = dead.iter().map(|record| record.set_aside.as_str()).collect();
        let kinds: Vec<&str> = dead.iter().map(|record| record.kind.as_str()).collect();
        let reasons: Vec<&str> = dead.iter().map(|record| record.reason.as_str()).collect();
        let signatures: Vec<i64> = dead.iter().map(|record| record.signature.to_bits() as i64).collect();
        let quarantined: Vec<i64> = dead.iter().map(|record| record.quarantined_at.millis()).collect();
        let millis = sickbay_core::Timestamp::millis;
        let discarded: Vec<Option<i64>> = dead.iter().map(|record| record.discarded_at.map(millis)).collect();
        let whys: Vec<Option<&str>> = dead.iter().map(|record| record.discarded_why.as_deref()).collect();
        let mut params = messages.params();
        let own: [Param<'_>; 10] = [
            (&orders, Type::INT8_ARRAY),
            (&asides, Type::TEXT_ARRAY),
            (&kinds, Type::TEXT_ARRAY),
            (&reasons, Type::TEXT_ARRAY),
            (&signatures, Type::INT8_ARRAY),
            (&errors, Type::TEXT_ARRAY),
            (&lowers, Type::TEXT_ARRAY),
            (&quarantined, Type::INT8_ARRAY),
            (&discarded, Type::INT8_ARRAY),
            (&whys, Type::TEXT_ARRAY),
        ];
        params.extend(own);
        let sql = format!(
            "INSERT INTO sickbay.dead SELECT u.id, u.no, u.queue, u.type, u.stream, u.set_aside, u.kind, u.reason, u.signature,
             u.error, u.error_lower, u.quarantined_at, u.discarded_at, u.discarded_why, octet_length(u.payload),
             ROW(u.queue, 0, {ROW})::sickbay.waiting
             FROM unnest({PARAMS}, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29) u({COLUMNS}, no, set_aside, kind,
             reason, signature, error, error_lower, quarantined_at, discarded_at, discarded_why)"
        );
        self.ask(transaction, &sql, &params).await?;
        self.take_traces(transaction, &messages).await?;
        self.take_holds(transaction, &dead, &messages).await?;
        let counts =
            dead.iter().map(|record| if record.discarded_at.is_some() { [0, 0, 1] } else { [0, 1, 0] });
        self.count(transaction, messages.queues.iter().copied().zip(counts)).await
    }

    async fn take_holds(
        &self,
        transaction: &Transaction<'_>,
        dead: &[&DeadRecord],
        messages: &Messages<'_>,
    ) -> Result<(), StoreError> {
        let (mut queues, mut streams, mut ids, mut since) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, record) in dead.iter().enumerate() {
            if let Some(held) = record.holds_since {
                queues.push(messages.queues[at]);
                streams.push(messages.streams[at]);
                ids.push(messages.ids[at]);
                since.push(held.millis());
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO sickbay.hold SELECT * FROM unnest($1, $2, $3, $4)";
        let params: [Param<'_>; 4] = [
            (&queues, Type::INT4_ARRAY),
            (&streams, Type::TEXT_ARRAY),
            (&ids, Type::INT8_ARRAY),
            (&since, Type::INT8_ARRAY),
        ];
        self.ask(transaction, sql, &params).await?;
        self.make_streams(transaction, &queues, &streams).await
    }

    async fn take_completed(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
        queues: &Queues,
    ) -> Result<(), StoreError> {
        let mut messages = Messages::default();
        let mut expires = Vec::with_capacity(records.len());
        for record in records {
            let Record::Completed(completed) = record else { continue };
            let due_at = completed.body.message.pushed_at.millis();
            messages.add(&completed.body, State { due_at, ..State::default() }, queues)?;
            expires.push(completed.expires_at.millis());
        }
        let mut params = messages.params();
        params.push((&expires, Type::INT8_ARRAY));
        let sql = format!(
            "INSERT INTO sickbay.completed SELECT u.id, u.expires_at, ROW(u.queue, 0, {ROW})::sickbay.waiting
             FROM unnest({PARAMS}, $20) u({COLUMNS}, expires_at)"
        );
        self.ask(transaction, &sql, &params).await?;
        self.take_traces(transaction, &messages).await
    }

    async fn take_traces(
        &self,
        transaction: &Transaction<'_>,
        messages: &Messages<'_>,
    ) -> Result<(), StoreError> {
        if !messages.attempts.is_empty() {
            let sql =
                "INSERT INTO sickbay.attempt (message, number, started_at, ended_at, worker, ended, details)
                SELECT u.message, u.number, u.started_at, u.ended_at, u.worker, u.ended, u.details
                FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY
                    u(message, number, started_at, ended_at, worker, ended, details, ord) ORDER BY u.ord";
            self.ask(transaction, sql, &messages.attempts.params()).await?;
        }
        let (ids, payloads) = &messages.originals;
        if !ids.is_empty() {
            let sql = "INSERT INTO sickbay.original SELECT * FROM unnest($1, $2)";
            self.ask(transaction, sql, &[(ids, Type::INT8_ARRAY), (payloads, Type::BYTEA_ARRAY)]).await?;
        }
        Ok(())
    }

    async fn make_streams(
        &self,
        transaction: &Transaction<'_>,
        queues: &Vec<i32>,
        streams: &Vec<Option<&str>>,
    ) -> Result<(), StoreError> {
        if streams.iter().all(Option::is_none) {
            return Ok(());
        }
        let sql = "INSERT INTO sickbay.stream (queue, key) SELECT DISTINCT u.queue, u.stream FROM unnest($1, $2) u(queue, stream)
            WHERE u.stream IS NOT NULL ON CONFLICT DO NOTHING";
        let params: [Param<'_>; 2] = [(queues, Type::INT4_ARRAY), (streams, Type::TEXT_ARRAY)];
        self.ask(transaction, sql, &params).await.map(drop)
    }

    /// Adds to what is in queues: live, dead and discarded messages.
    async fn count(
        &self,
        transaction: &Transaction<'_>,
        counted: impl Iterator<Item = (i32, [i64; 3])> + Send,
    ) -> Result<(), StoreError> {
        let mut sums = std::collections::BTreeMap::<i32, [i64; 3]>::new();
        for (queue, counts) in counted {
            let sum = sums.entry(queue).or_default();
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let sql = "INSERT INTO sickbay.tally (queue, live, dead, discarded) VALUES ($1, $2, $3, $4)";
        for (queue, [live, dead, discarded]) in sums {
            let params: [Param<'_>; 4] =
                [(&queue, Type::INT4), (&live, Type::INT8), (&dead, Type::INT8), (&discarded, Type::INT8)];
            self.ask(transaction, sql, &params).await?;
        }
        Ok(())
    }

    async fn take_keys(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
        queues: &Queues,
    ) -> Result<(), StoreError> {
        let (mut of, mut keys, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        let (mut states, mut untils) = (Vec::new(), Vec::new());
        for record in records {
            let Record::Key(key) = record else { continue };
            let (state, until) = match key.state {
                KeyState::Live => (0i16, None),
                KeyState::Done { until } => (1, Some(until.millis())),
                KeyState::Dead => (2, None),
            };
            of.push(number_of(queues, record)?);
            keys.push(key.key.as_str());
            owners.push(key.owner.number() as i64);
            states.push(state);
            untils.push(until);
        }
        let params: [Param<'_>; 5] = [
            (&of, Type::INT4_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&owners, Type::INT8_ARRAY),
            (&states, Type::INT2_ARRAY),
            (&untils, Type::INT8_ARRAY),
        ];
        let sql = "INSERT INTO sickbay.key SELECT * FROM unnest($1, $2, $3, $4, $5)";
        self.ask(transaction, sql, &params).await.map(drop)
    }

    async fn take_origins(
        &self,
        transaction: &Transaction<'_>,
        records: &[Record],
        queues: &Queues,
    ) -> Result<(), StoreError> {
        let (mut of, mut origins) = (Vec::new(), Vec::new());
        let (mut ids, mut adopted) = (Vec::new(), Vec::new());
        for record in records {
            let Record::Origin(origin) = record else { continue };
            of.push(number_of(queues, record)?);
            origins.push(origin.origin.as_bytes());
            ids.push(origin.id.number() as i64);
            adopted.push(origin.adopted_at.millis());
        }
        let params: [Param<'_>; 4] = [
            (&of, Type::INT4_ARRAY),
            (&origins, Type::BYTEA_ARRAY),
            (&ids, Type::INT8_ARRAY),
            (&adopted, Type::INT8_ARRAY),
        ];
        let sql = "INSERT INTO sickbay.origin SELECT * FROM unnest($1, $2, $3, $4)";
        self.ask(transaction, sql, &params).await.map(drop)
    }

    /// Puts what can be claimed of some streams where claims look for it.
    pub(super) async fn arrange_some(
        &self,
        transaction: &Transaction<'_>,
        progress: &Progress,
    ) -> Result<Progress, StoreError> {
        let CopyStep::Streams(after) = &progress.step else { return Ok(progress.clone()) };
        let text = after.text.as_str();
        let params: [Param<'_>; 3] =
            [(&after.number, Type::INT8), (&text, Type::TEXT), (&STREAMS_AT_ONCE, Type::INT8)];
        let sql = "SELECT s.queue::bigint, s.key, sickbay.refresh_stream(s.queue, s.key)::text FROM (
            SELECT queue, key FROM sickbay.stream WHERE (queue, key) > ($1, $2) ORDER BY queue, key LIMIT $3) s
            ORDER BY s.queue, s.key";
        let rows = self.ask(transaction, sql, &params).await?;
        let step = match rows.last() {
            Some(row) => CopyStep::Streams(Cursor {
                kind: RecordKind::Queue,
                number: row.get(0),
                text: row.get::<_, &str>(1).to_owned(),
            }),
            None => CopyStep::Verify,
        };
        let turned = progress.turned(step, 0);
        self.turn(transaction, &turned).await?;
        Ok(turned)
    }
}

fn number_of(queues: &Queues, record: &Record) -> Result<i32, StoreError> {
    let queue = queues.get(record.queue().as_str()).copied();
    queue.ok_or_else(|| odd(&"a record names a queue that was not copied"))
}

/// The error of a dead letter: all of it, where the history has more than what its store kept for lists.
fn whole_error(record: &DeadRecord) -> &str {
    let failures = record.body.history.iter().rev().filter_map(|attempt| attempt.failure.as_ref());
    let mut whole = failures.map(|failure| failure.error.as_str());
    whole.find(|error| error.starts_with(&record.error)).unwrap_or(&record.error)
}
