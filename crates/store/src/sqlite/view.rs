//! All that is known of one message.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use sickbay_core::id::IdPrefix;
use sickbay_core::message::Status;
use sickbay_core::quarantine::{Attempt, AttemptEnd, MessageView};
use sickbay_core::signature::Signature;
use sickbay_core::{
    Failure, Key, Message, MessageId, MessageType, Priority, QueueName, Stages, StoreError, StreamKey,
    Timestamp,
};

use super::failure::Translate;
use super::overview::journal_numbers;
use super::place::Place;
use super::row::{MESSAGE_COLUMNS, MessageRow, cause_from, unpack_headers};
use super::tx::locate;
use super::waiting::{WAITING_COLUMNS, WAITING_WIDTH, read_waiting};
use super::{list, state::Leased};
use crate::door;

/// Who holds which messages, by their numbers: worker and since when.
pub(super) struct LeasedPlaces(HashMap<u64, (i64, String, i64)>);

impl LeasedPlaces {
    /// The first leased entry of a stream and since when it is leased.
    pub(super) fn first_of(
        &self,
        connection: &Connection,
        stream: i64,
    ) -> Result<Option<(i64, i64)>, StoreError> {
        let mut statement = connection
            .prepare_cached("SELECT 1 FROM message WHERE place = ?1 AND stream = ?2")
            .translated()?;
        let mut found: Option<(i64, i64)> = None;
        for (number, (place, _, since)) in &self.0 {
            if found.is_none_or(|(first, _)| (*number as i64) < first)
                && statement.exists(params![place, stream]).translated()?
            {
                found = Some((*number as i64, *since));
            }
        }
        Ok(found)
    }
}

/// Reads who holds what.
pub(super) fn leased_places(connection: &Connection) -> Result<LeasedPlaces, StoreError> {
    let mut leased = HashMap::new();
    let mut known =
        connection.prepare_cached("SELECT state, claim FROM waiting WHERE place = ?1").translated()?;
    let mut statement =
        connection.prepare_cached("SELECT no, worker, claimed_at, places FROM claim").translated()?;
    let mut rows = statement.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let (claim, worker, since): (i64, String, i64) =
            (row.get(0).translated()?, row.get(1).translated()?, row.get(2).translated()?);
        for place in journal_numbers(row.get_ref(3).translated()?.as_blob().unwrap_or_default()) {
            let holder: Option<(i64, Option<i64>)> =
                known.query_row([place.0], |row| Ok((row.get(0)?, row.get(1)?))).optional().translated()?;
            if holder.is_none_or(|(state, by)| state == 1 && by == Some(claim)) {
                leased.insert(place.number(), (place.0, worker.clone(), since));
            }
        }
    }
    Ok(LeasedPlaces(leased))
}

/// The one message whose id begins like this.
pub(super) fn find(
    connection: &Connection,
    prefix: IdPrefix,
    now: i64,
) -> Result<Option<MessageView>, StoreError> {
    let last: i64 =
        connection.query_row("SELECT last_number FROM mark", [], |row| row.get(0)).translated()?;
    door::check_prefix(prefix, last as u64)?;
    let mut statement = connection.prepare_cached("SELECT no FROM queue").translated()?;
    let queues: Vec<i64> = statement
        .query_map([], |row| row.get(0))
        .translated()?
        .collect::<rusqlite::Result<_>>()
        .translated()?;
    let mut found: Option<(MessageId, Option<Place>)> = None;
    for id in prefix.numbers(last as u64) {
        let place = locate(connection, queues.iter().copied(), id.number())?;
        let mut dead = connection.prepare_cached("SELECT 1 FROM dead WHERE number = ?1").translated()?;
        if place.is_none() && !dead.exists([id.number() as i64]).translated()? {
            continue;
        }
        if let Some((first, _)) = found {
            return Err(door::ambiguous_prefix(first, id));
        }
        found = Some((id, place));
    }
    match found {
        None => Ok(None),
        Some((id, Some(place))) => live(connection, id, place, now).map(Some),
        Some((id, None)) => dead(connection, id).map(Some),
    }
}

/// A message that waits or is leased.
fn live(connection: &Connection, id: MessageId, place: Place, now: i64) -> Result<MessageView, StoreError> {
    let sql = format!(
        "SELECT {WAITING_COLUMNS}, {MESSAGE_COLUMNS} FROM message m LEFT JOIN waiting w ON w.place = m.place
         WHERE m.place = ?1"
    );
    let (mut known, row) = connection
        .prepare_cached(&sql)
        .translated()?
        .query_row([place.0], |row| {
            let message = MessageRow::read(row, WAITING_WIDTH)?;
            let waits = row.get::<_, Option<i64>>(0)?.is_some();
            let fresh = Leased::fresh(place, message.pushed_at, message.type_no);
            Ok((if waits { read_waiting(row)? } else { fresh }, message))
        })
        .translated()?;
    // A message that was replayed lies elsewhere than the journal of its earlier life says.
    let holder = leased_places(connection)?.0.remove(&id.number()).filter(|held| held.0 == place.0);
    if holder.is_some() && !known.in_waiting {
        known.counters.deliveries = 1;
    }
    let due_at = Timestamp::from_millis(known.due_at);
    let status = match &holder {
        Some(_) => Status::Active,
        None => door::waiting_status(known.counters.failures, due_at, Timestamp::from_millis(now)),
    };
    Ok(MessageView {
        message: message(connection, id, place.queue(), place.priority(), &row, None)?,
        original_payload: original(connection, id)?,
        status,
        due_at: holder.is_none().then_some(due_at),
        counters: known.counters,
        stages: known.stages,
        cause: known.cause,
        suspect: known.suspect,
        worker: holder.map(|(_, worker, _)| worker),
        dead: None,
        last_delivery: None,
        history: history(connection, id)?,
    })
}

/// A message in quarantine.
fn dead(connection: &Connection, id: MessageId) -> Result<MessageView, StoreError> {
    let row = list::read_one(connection, id)?;
    let sql = "SELECT queue, priority, type, pushed_at, deadline_at, stream, key, headers, checksum, payload, stages,
               last_delivery, stream_key, cause FROM dead WHERE number = ?1";
    let mut statement = connection.prepare_cached(sql).translated()?;
    let (queue, priority, body, stages, last_delivery, (stream_key, cause)) = statement
        .query_row([id.number() as i64], |row| {
            let body = MessageRow {
                place: 0,
                type_no: row.get(2)?,
                pushed_at: row.get(3)?,
                deadline_at: row.get(4)?,
                stream: row.get(5)?,
                key: row.get(6)?,
                headers: row.get(7)?,
                checksum: row.get(8)?,
                payload: Bytes::copy_from_slice(row.get_ref(9)?.as_blob()?),
            };
            let last: (Option<String>, Option<i64>) = (row.get(12)?, row.get(13)?);
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, u8>(1)?,
                body,
                row.get::<_, u16>(10)?,
                row.get(11)?,
                last,
            ))
        })
        .translated()?;
    let priority = Priority::new(priority).unwrap_or_default();
    Ok(MessageView {
        message: message(connection, id, queue, priority, &body, stream_key)?,
        original_payload: original(connection, id)?,
        status: if row.discarded_at.is_some() { Status::Discarded } else { Status::Dead },
        due_at: None,
        counters: row.counters,
        stages: Stages::from_bits(stages),
        cause: cause_from(cause),
        suspect: false,
        worker: None,
        last_delivery,
        history: history(connection, id)?,
        dead: Some(row),
    })
}

fn message(
    connection: &Connection,
    id: MessageId,
    queue: i64,
    priority: Priority,
    row: &MessageRow,
    stream_key: Option<String>,
) -> Result<Message, StoreError> {
    let text = |sql: &str, no: Option<i64>| -> Result<Option<String>, StoreError> {
        let Some(no) = no else { return Ok(None) };
        connection.prepare_cached(sql).translated()?.query_row([no], |row| row.get(0)).optional().translated()
    };
    let queue = text("SELECT name FROM queue WHERE no = ?1", Some(queue))?.unwrap_or_default();
    let queue = QueueName::new(queue).map_err(|error| {
        StoreError::new(
            sickbay_core::ErrorKind::Corrupt,
            "SB0012",
            format!("the store's list of queues: {error}"),
        )
    })?;
    let stream = match stream_key {
        Some(key) => Some(key),
        None => text("SELECT key FROM stream WHERE no = ?1", row.stream)?,
    };
    Ok(Message {
        id,
        queue,
        message_type: text("SELECT name FROM type WHERE no = ?1", row.type_no)?
            .and_then(|t| MessageType::new(t).ok()),
        stream: stream.and_then(|key| StreamKey::new(key).ok()),
        key: row.key.as_deref().and_then(|key| Key::new(key).ok()),
        priority,
        pushed_at: Timestamp::from_millis(row.pushed_at),
        deadline_at: row.deadline_at.map(Timestamp::from_millis),
        headers: unpack_headers(row.headers.as_deref()),
        payload: row.payload.clone(),
    })
}

fn original(connection: &Connection, id: MessageId) -> Result<Option<Bytes>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT payload FROM original WHERE message = ?1").translated()?;
    let payload: Option<Vec<u8>> =
        statement.query_row([id.number() as i64], |row| row.get(0)).optional().translated()?;
    Ok(payload.map(Bytes::from))
}

fn history(connection: &Connection, id: MessageId) -> Result<Vec<Attempt>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT a.number, a.started_at, a.ended_at, a.worker, a.end, a.kind, a.reason, a.error, t.text, a.code,
             a.retry_after_ms, a.schema_path, a.signature, a.ran_us, a.output
             FROM attempt a LEFT JOIN trace t ON t.hash = a.trace WHERE a.message = ?1 ORDER BY a.ordinal",
        )
        .translated()?;
    let rows = statement.query_map([id.number() as i64], read_attempt).translated()?;
    rows.collect::<rusqlite::Result<_>>().translated()
}

fn read_attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    let failure = match (row.get::<_, Option<String>>(5)?, row.get::<_, Option<String>>(6)?) {
        (Some(kind), Some(reason)) => Some(Failure {
            kind: kind.parse().unwrap_or(sickbay_core::Kind::Unknown),
            reason: reason.parse().unwrap_or(sickbay_core::Reason::Unknown),
            error: row.get::<_, String>(7)? + &row.get::<_, Option<String>>(8)?.unwrap_or_default(),
            code: row.get(9)?,
            retry_after: row.get::<_, Option<u64>>(10)?.map(Duration::from_millis),
            schema_path: row.get(11)?,
        }),
        _ => None,
    };
    let end: String = row.get(4)?;
    let ends = [
        AttemptEnd::Failed,
        AttemptEnd::Quarantined,
        AttemptEnd::Crashed,
        AttemptEnd::LeaseExpired,
        AttemptEnd::Released,
        AttemptEnd::Replayed,
    ];
    Ok(Attempt {
        number: row.get(0)?,
        started_at: Timestamp::from_millis(row.get(1)?),
        ended_at: Timestamp::from_millis(row.get(2)?),
        worker: row.get(3)?,
        end: ends
            .into_iter()
            .find(|known| super::attempt::end_word(*known) == end)
            .unwrap_or(AttemptEnd::Failed),
        failure,
        signature: row.get::<_, Option<i64>>(12)?.map(|bits| Signature::from_bits(bits as u64)),
        ran: row.get::<_, Option<u64>>(13)?.map(Duration::from_micros),
        output: row.get(14)?,
    })
}
