//! What the file holds, record by record.

use bytes::Bytes;
use rusqlite::{Row, params};
use sickbay_core::decide::SetAside;
use sickbay_core::port::PageSize;
use sickbay_core::record::{
    Body, CompletedRecord, Cursor, DeadRecord, Flow, GateRecord, KeyRecord, KeyState, OriginRecord,
    QueueRecord, Record, RecordKind, RecordPage, WaitingRecord,
};
use sickbay_core::signature::Signature;
use sickbay_core::stats::TypeGate;
use sickbay_core::text::cleaned_error;
use sickbay_core::{ErrorKind, Key, Message, MessageId, QueueName, StoreError, StreamKey, Timestamp};

use super::Inner;
use crate::pack::unpack_headers;
use crate::sqlite::failure::Translate;
use crate::sqlite::pack::unpack_facts;
use crate::sqlite::place::Place;
use crate::sqlite::row::{MESSAGE_COLUMNS, MessageRow};
use crate::sqlite::state::Leased;
use crate::sqlite::view::history;
use crate::sqlite::waiting::{WAITING_COLUMNS, WAITING_WIDTH, read_waiting};

/// How many columns [`MESSAGE_COLUMNS`] are.
const MESSAGE_WIDTH: usize = 9;
/// The number in a place.
const NUMBER: &str = "(m.place & 1099511627775)";

/// A record, where the reading goes on after it, and how large it is.
type Found = (Record, (i64, String), u64);

impl Inner {
    pub(super) fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError> {
        match after.kind {
            RecordKind::Queue => self.page(after, size, QUEUES, Self::queue_record),
            RecordKind::Gate => self.page(after, size, GATES, Self::gate_record),
            RecordKind::Waiting => self.page(after, size, &waiting_sql(), Self::waiting_record),
            RecordKind::Dead => self.page(after, size, &dead_sql(), Self::dead_record),
            RecordKind::Completed => self.page(after, size, COMPLETED, Self::completed_record),
            RecordKind::Key => self.page(after, size, KEYS, Self::key_record),
            RecordKind::Origin => self.page(after, size, ORIGINS, Self::origin_record),
        }
    }

    /// Reads rows until there are enough of them.
    fn page(
        &self,
        after: &Cursor,
        size: PageSize,
        sql: &str,
        read: impl Fn(&Self, &Row<'_>) -> Result<Found, StoreError>,
    ) -> Result<RecordPage, StoreError> {
        let mut statement = self.file.connection.prepare_cached(sql).translated()?;
        let mut rows = statement.query(params![after.number, after.text]).translated()?;
        let mut records = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.next().translated()? {
            let (record, (number, text), size_of_it) = read(self, row)?;
            records.push(record);
            bytes += size_of_it;
            if records.len() >= size.rows_max as usize || bytes >= size.bytes_max {
                return Ok(RecordPage { records, next: Some(Cursor { kind: after.kind, number, text }) });
            }
        }
        Ok(RecordPage { records, next: after.kind.next().map(Cursor::start) })
    }

    fn name(&self, queue: i64) -> Result<QueueName, StoreError> {
        let queue = self.state.queues.get(&queue).map(|queue| queue.name.clone());
        queue.ok_or_else(|| odd("a queue", &"it is not known"))
    }

    fn queue_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let number = |at: usize| row.get::<_, i64>(at).translated();
        let no = number(0)?;
        let (name, policy): (String, String) = (row.get(8).translated()?, row.get(9).translated()?);
        let flow = Flow {
            pushed: number(1)?,
            completed: number(2)?,
            duplicates: number(3)?,
            failures: number(4)?,
            quarantined: number(5)?,
            replayed: number(6)?,
            removed: number(7)?,
        };
        let record = QueueRecord {
            policy: serde_json::from_str(&policy).map_err(|error| odd(&format!("queue {name}"), &error))?,
            name: name.parse().map_err(|error| odd("a queue", &error))?,
            paused: row.get(10).translated()?,
            flow,
        };
        Ok((Record::Queue(Box::new(record)), (no, String::new()), 0))
    }

    fn gate_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let (queue, name): (i64, String) = (row.get(0).translated()?, row.get(1).translated()?);
        let gate = match row.get::<_, i64>(2).translated()? {
            1 => TypeGate::Paused,
            2 => TypeGate::Tripped,
            _ => TypeGate::Probing { left: row.get(3).translated()? },
        };
        let message_type = name.parse().map_err(|error| odd("a paused type", &error))?;
        let record = GateRecord { queue: self.name(queue)?, message_type, gate };
        Ok((Record::Gate(record), (queue, name), 0))
    }

    fn waiting_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let body = MessageRow::read(row, WAITING_WIDTH).translated()?;
        let waits = row.get::<_, Option<i64>>(0).translated()?.is_some();
        let known = match waits {
            true => read_waiting(row).translated()?,
            false => Leased::fresh(Place(body.place), body.pushed_at, body.type_no),
        };
        let at = WAITING_WIDTH + MESSAGE_WIDTH;
        let (stream, original) = (row.get(at).translated()?, row.get(at + 1).translated()?);
        let damaged = body.expected_checksum(Place(body.place).number()) != body.checksum;
        let place = body.place;
        let body = self.body(&body, &known, stream, original, damaged)?;
        let (due_at, suspect) = (Timestamp::from_millis(known.due_at), known.suspect);
        let deferred = row.get(at + 2).translated()?;
        let size = size(&body);
        let record = WaitingRecord { body, due_at, suspect, deferred };
        Ok((Record::Waiting(Box::new(record)), (place, String::new()), size))
    }

    fn dead_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let row_of = MessageRow::read(row, 0).translated()?;
        let mut at = MESSAGE_WIDTH..;
        let mut next = || at.next().unwrap_or_default();
        let (stream, original) = (row.get(next()).translated()?, row.get(next()).translated()?);
        let mut known = Leased::fresh(Place(row_of.place), 0, row_of.type_no);
        known.counters.deliveries = row.get(next()).translated()?;
        known.counters.failures = row.get(next()).translated()?;
        facts(row, next(), &mut known)?;
        known.history = row.get::<_, Option<Vec<u8>>>(next()).translated()?.unwrap_or_default();
        let mut text = || row.get::<_, String>(next()).translated();
        let (set_aside, kind, reason, error) = (text()?, text()?, text()?, text()?);
        let damaged = row_of.expected_checksum(Place(row_of.place).number()) != row_of.checksum;
        let body = self.body(&row_of, &known, stream, original, damaged)?;
        let what = || format!("the dead letter {}", body.message.id);
        let last_delivery: Option<String> = row.get(next()).translated()?;
        let last_delivery = last_delivery.map(|token| token.parse()).transpose();
        let order: i64 = row.get(next()).translated()?;
        let mut number = || row.get::<_, Option<i64>>(next()).translated();
        let (signature, quarantined_at) = (number()?.unwrap_or(0), number()?.unwrap_or(0));
        let (discarded_at, holds_since) = (number()?, number()?);
        let why: Option<String> = row.get(next()).translated()?;
        let size = size(&body);
        let record = DeadRecord {
            order: order as u64,
            set_aside: SetAside::from_word(&set_aside).ok_or_else(|| odd(&what(), &set_aside))?,
            kind: kind.parse().map_err(|error| odd(&what(), &error))?,
            reason: reason.parse().map_err(|error| odd(&what(), &error))?,
            signature: Signature::from_bits(signature as u64),
            error,
            last_delivery: last_delivery.map_err(|error| odd(&what(), &error))?,
            quarantined_at: Timestamp::from_millis(quarantined_at),
            discarded_at: discarded_at.map(Timestamp::from_millis),
            discarded_why: why.map(|why| cleaned_error(&why).into_owned()),
            holds_since: holds_since.map(Timestamp::from_millis),
            body,
        };
        Ok((Record::Dead(Box::new(record)), (order, String::new()), size))
    }

    fn completed_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let row_of = MessageRow::read(row, 0).translated()?;
        let at = MESSAGE_WIDTH;
        let (stream, original): (Option<String>, _) =
            (row.get(at).translated()?, row.get(at + 1).translated()?);
        let mut known = Leased::fresh(Place(row_of.place), 0, row_of.type_no);
        known.counters.deliveries = row.get(at + 2).translated()?;
        known.counters.failures = row.get(at + 3).translated()?;
        facts(row, at + 4, &mut known)?;
        known.history = row.get::<_, Option<Vec<u8>>>(at + 5).translated()?.unwrap_or_default();
        // The number of its stream, which the checksum covers, is forgotten by now.
        let number = Place(row_of.place).number();
        let damaged = stream.is_none() && row_of.expected_checksum(number) != row_of.checksum;
        let body = self.body(&row_of, &known, stream, original, damaged)?;
        let expires_at = Timestamp::from_millis(row.get(at + 6).translated()?);
        let size = size(&body);
        Ok((
            Record::Completed(Box::new(CompletedRecord { body, expires_at })),
            (number as i64, String::new()),
            size,
        ))
    }

    fn key_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let (queue, text): (i64, String) = (row.get(0).translated()?, row.get(1).translated()?);
        let until: Option<i64> = row.get(4).translated()?;
        let record = KeyRecord {
            queue: self.name(queue)?,
            key: Key::new(&text).map_err(|error| odd("a key", &error))?,
            owner: id(row.get(2).translated()?)?,
            state: match (row.get::<_, i64>(3).translated()?, until) {
                (0, _) => KeyState::Live,
                (1, Some(until)) => KeyState::Done { until: Timestamp::from_millis(until) },
                _ => KeyState::Dead,
            },
        };
        Ok((Record::Key(record), (queue, text), 0))
    }

    fn origin_record(&self, row: &Row<'_>) -> Result<Found, StoreError> {
        let (queue, origin): (i64, String) = (row.get(0).translated()?, row.get(1).translated()?);
        let adopted_at = Timestamp::from_millis(row.get(3).translated()?);
        let (queue_name, id) = (self.name(queue)?, id(row.get(2).translated()?)?);
        let record = OriginRecord { queue: queue_name, origin: origin.clone(), id, adopted_at };
        Ok((Record::Origin(record), (queue, origin), 0))
    }

    fn body(
        &self,
        row: &MessageRow,
        known: &Leased,
        stream: Option<String>,
        original: Option<Vec<u8>>,
        damaged: bool,
    ) -> Result<Body, StoreError> {
        let place = Place(row.place);
        let id = id(place.number() as i64)?;
        let what = || format!("the message {id}");
        let stream = stream.map(|key| StreamKey::new(key).map_err(|error| odd(&what(), &error)));
        let key = row.key.as_ref().map(|key| Key::new(key).map_err(|error| odd(&what(), &error)));
        let mut attempts = history(&self.file.connection, &known.history)?;
        for attempt in &mut attempts {
            if let std::borrow::Cow::Owned(clean) = cleaned_error(&attempt.worker) {
                attempt.worker = clean;
            }
        }
        Ok(Body {
            message: Message {
                id,
                queue: self.name(place.queue())?,
                message_type: row.type_no.and_then(|no| self.state.type_names.get(&no).cloned()),
                stream: stream.transpose()?,
                key: key.transpose()?,
                priority: place.priority(),
                pushed_at: Timestamp::from_millis(row.pushed_at),
                deadline_at: row.deadline_at.map(Timestamp::from_millis),
                headers: unpack_headers(row.headers.as_deref()),
                payload: row.payload.clone(),
            },
            damaged,
            original_payload: original.map(Bytes::from),
            counters: known.counters,
            stages: known.stages,
            cause: known.cause,
            first_failed_at: known.first_failed_at.map(Timestamp::from_millis),
            history: attempts,
        })
    }
}

const QUEUES: &str = "SELECT q.no, t.pushed, t.completed, t.duplicates, t.failures, t.quarantined, t.replayed, t.removed,
    q.name, q.policy, q.paused FROM queue q JOIN tally t ON t.queue = q.no WHERE (q.no, '') > (?1, ?2) ORDER BY q.no";

const GATES: &str =
    "SELECT g.queue, t.name, g.gate, g.probes_left FROM type_gate g JOIN type t ON t.no = g.type
    WHERE (g.queue, t.name) > (?1, ?2) ORDER BY g.queue, t.name";

const COMPLETED: &str = "SELECT m.place, m.type, m.pushed_at, m.deadline_at, NULL, m.key, m.headers, m.checksum, m.payload,
    m.stream_key, (SELECT payload FROM original o WHERE o.message = m.number), m.deliveries, m.failures, m.facts,
    m.history, m.expires_at FROM completed m WHERE m.number > ?1 AND ?2 = '' ORDER BY m.number";

const KEYS: &str = "SELECT queue, key, owner, state, done_until FROM key
    WHERE (queue, key) > (?1, ?2) AND owner > 0 ORDER BY queue, key";

const ORIGINS: &str = "SELECT queue, origin, number, adopted_at FROM origin
    WHERE (queue, origin) > (?1, ?2) ORDER BY queue, origin";

fn waiting_sql() -> String {
    format!(
        "SELECT {WAITING_COLUMNS}, {MESSAGE_COLUMNS}, (SELECT s.key FROM stream s WHERE s.no = m.stream),
         (SELECT o.payload FROM original o WHERE o.message = {NUMBER}),
         EXISTS (SELECT 1 FROM entry e WHERE e.stream = m.stream AND e.deferred = 1 AND e.number = {NUMBER})
         FROM message m LEFT JOIN waiting w ON w.place = m.place
         WHERE m.place > ?1 AND ?2 = '' AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.place = m.place) ORDER BY m.place"
    )
}

fn dead_sql() -> String {
    format!(
        "SELECT {MESSAGE_COLUMNS}, d.stream_key, (SELECT o.payload FROM original o WHERE o.message = {NUMBER}),
         d.deliveries, d.failures, d.facts, d.history, d.set_aside, d.kind, d.reason, d.error, d.last_delivery, d.no,
         d.signature, d.quarantined_at, d.discarded_at,
         (SELECT h.since FROM hold h WHERE h.stream = m.stream AND h.number = {NUMBER}), d.discarded_why
         FROM dead d JOIN message m ON m.place = d.place WHERE d.no > ?1 AND ?2 = '' ORDER BY d.no"
    )
}

fn facts(row: &Row<'_>, at: usize, known: &mut Leased) -> Result<(), StoreError> {
    let packed = row.get_ref(at).translated()?;
    unpack_facts(packed.as_blob().map_err(|error| odd("the facts of a message", &error))?, known);
    Ok(())
}

/// About how large a record is.
fn size(body: &Body) -> u64 {
    let attempt = |attempt: &sickbay_core::quarantine::Attempt| {
        let failure = attempt.failure.as_ref().map_or(0, |failure| failure.error.len());
        100 + failure + attempt.output.as_ref().map_or(0, String::len)
    };
    body.bytes() + body.history.iter().map(attempt).sum::<usize>() as u64
}

fn id(number: i64) -> Result<MessageId, StoreError> {
    let id = u64::try_from(number).ok().and_then(MessageId::from_number);
    id.ok_or_else(|| odd("a message", &format!("its number is {number}")))
}

fn odd(what: &str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "SB0012",
        format!("{what} makes no sense in the store's file: {error}"),
    )
}
