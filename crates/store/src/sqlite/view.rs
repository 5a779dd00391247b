//! All that is known of one message.

use std::collections::HashMap;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use sickbay_core::id::IdPrefix;
use sickbay_core::message::Status;
use sickbay_core::quarantine::{Attempt, MessageView};
use sickbay_core::{
    Key, Message, MessageId, MessageType, Priority, QueueName, StoreError, StreamKey, Timestamp,
};

use super::failure::Translate;
use super::overview::journal_numbers;
use super::pack::{entries, unpack_facts};
use super::place::Place;
use super::row::{MESSAGE_COLUMNS, MessageRow};
use super::tx::locate;
use super::waiting::{WAITING_COLUMNS, WAITING_WIDTH, is_held, read_waiting};
use super::{list, state::Leased};
use crate::door;
use crate::pack::unpack_headers;

/// Who holds which messages, by their numbers: worker and since when.
pub(super) struct LeasedPlaces(HashMap<u64, (i64, String, i64)>);

impl LeasedPlaces {
    /// True if somebody holds this message.
    pub(super) fn holds(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }

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
    let mut dead = connection.prepare_cached("SELECT 1 FROM dead WHERE place = ?1").translated()?;
    let mut statement =
        connection.prepare_cached("SELECT no, worker, claimed_at, places FROM claim").translated()?;
    let mut rows = statement.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let (claim, worker, since): (i64, String, i64) =
            (row.get(0).translated()?, row.get(1).translated()?, row.get(2).translated()?);
        for place in journal_numbers(row.get_ref(3).translated()?.as_blob().unwrap_or_default()) {
            let holder: Option<(i64, Option<i64>)> =
                known.query_row([place.0], |row| Ok((row.get(0)?, row.get(1)?))).optional().translated()?;
            let held = holder.is_none_or(|(state, by)| is_held(state, by, claim));
            if held && !dead.exists([place.0]).translated()? {
                leased.insert(place.number(), (place.0, worker.clone(), since));
            }
        }
    }
    Ok(LeasedPlaces(leased))
}

/// Where a message was found.
enum Found {
    Here(Place),
    Completed,
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
    let mut found: Option<(MessageId, Found)> = None;
    let mut kept = connection
        .prepare_cached("SELECT 1 FROM completed WHERE number = ?1 AND expires_at > ?2")
        .translated()?;
    for id in prefix.numbers(last as u64) {
        let place = locate(connection, queues.iter().copied(), id.number())?;
        let place = match place {
            Some(place) => Found::Here(place),
            None if kept.exists(params![id.number() as i64, now]).translated()? => Found::Completed,
            None => continue,
        };
        if let Some((first, _)) = found {
            return Err(door::ambiguous_prefix(first, id));
        }
        found = Some((id, place));
    }
    let (id, place) = match found {
        None => return Ok(None),
        Some((id, Found::Completed)) => return completed(connection, id).map(Some),
        Some((id, Found::Here(place))) => (id, place),
    };
    let mut dead = connection.prepare_cached("SELECT 1 FROM dead WHERE place = ?1").translated()?;
    if dead.exists([place.0]).translated()? {
        set_aside(connection, id, place).map(Some)
    } else {
        live(connection, id, place, now).map(Some)
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
            let mut known = match waits {
                true => read_waiting(row)?,
                false => Leased::fresh(place, message.pushed_at, message.type_no),
            };
            known.in_memory = waits && row.get::<_, i64>(WAITING_WIDTH - 1)? == 5;
            Ok((known, message))
        })
        .translated()?;
    // A message that was replayed lies elsewhere than the journal of its earlier life says.
    let holder = leased_places(connection)?.0.remove(&id.number()).filter(|held| held.0 == place.0);
    if holder.is_some() && (known.in_memory || !known.in_waiting) {
        known.counters.deliveries += 1;
    }
    let due_at = Timestamp::from_millis(known.due_at);
    let status = match &holder {
        Some(_) => Status::Active,
        // It is due whatever the clock says, which may have been set back since.
        None if !known.in_waiting => Status::Pending,
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
        history: history(connection, &known.history)?,
    })
}

/// A message in quarantine.
fn set_aside(connection: &Connection, id: MessageId, place: Place) -> Result<MessageView, StoreError> {
    let row = list::read_one(connection, place)?;
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, d.facts, d.history, d.last_delivery, d.stream_key
         FROM dead d JOIN message m ON m.place = d.place WHERE d.place = ?1"
    );
    let mut statement = connection.prepare_cached(&sql).translated()?;
    let (body, known, last_delivery, stream_key) = statement
        .query_row([place.0], |row| {
            let mut known = Leased::fresh(place, 0, None);
            unpack_facts(row.get_ref(9)?.as_blob()?, &mut known);
            known.history = row.get::<_, Option<Vec<u8>>>(10)?.unwrap_or_default();
            Ok((MessageRow::read(row, 0)?, known, row.get(11)?, row.get(12)?))
        })
        .translated()?;
    Ok(MessageView {
        message: message(connection, id, place.queue(), place.priority(), &body, stream_key)?,
        original_payload: original(connection, id)?,
        status: if row.discarded_at.is_some() { Status::Discarded } else { Status::Dead },
        due_at: None,
        counters: row.counters,
        stages: known.stages,
        cause: known.cause,
        suspect: false,
        worker: None,
        last_delivery,
        history: history(connection, &known.history)?,
        dead: Some(row),
    })
}

/// A message that is done and kept for a while.
fn completed(connection: &Connection, id: MessageId) -> Result<MessageView, StoreError> {
    let sql = "SELECT place, type, pushed_at, deadline_at, NULL, key, headers, checksum, payload, deliveries, failures, facts,
               history, stream_key FROM completed WHERE number = ?1";
    let mut statement = connection.prepare_cached(sql).translated()?;
    let (body, known, stream_key) = statement
        .query_row([id.number() as i64], |row| {
            let body = MessageRow::read(row, 0)?;
            let mut known = Leased::fresh(Place(body.place), body.pushed_at, body.type_no);
            unpack_facts(row.get_ref(11)?.as_blob()?, &mut known);
            (known.counters.deliveries, known.counters.failures) = (row.get(9)?, row.get(10)?);
            known.history = row.get::<_, Option<Vec<u8>>>(12)?.unwrap_or_default();
            Ok((body, known, row.get(13)?))
        })
        .translated()?;
    let place = Place(body.place);
    Ok(MessageView {
        message: message(connection, id, place.queue(), place.priority(), &body, stream_key)?,
        original_payload: original(connection, id)?,
        status: Status::Completed,
        due_at: None,
        counters: known.counters,
        stages: known.stages,
        cause: known.cause,
        suspect: known.suspect,
        worker: None,
        dead: None,
        last_delivery: None,
        history: history(connection, &known.history)?,
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

/// The attempts of a packed history, with the traces they share.
pub(super) fn history(connection: &Connection, packed: &[u8]) -> Result<Vec<Attempt>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT text FROM trace WHERE hash = ?1").translated()?;
    let mut attempts = Vec::new();
    for (mut attempt, trace) in entries(packed) {
        if let (Some(failure), Some(hash)) = (&mut attempt.failure, trace) {
            let tail: Option<String> =
                statement.query_row([hash], |row| row.get(0)).optional().translated()?;
            failure.error.push_str(&tail.unwrap_or_default());
        }
        attempts.push(attempt);
    }
    Ok(attempts)
}
