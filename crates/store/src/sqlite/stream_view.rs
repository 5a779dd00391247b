//! Streams as operators see them (B12).

use rusqlite::{Connection, OptionalExtension, params};
use sickbay_core::message::Status;
use sickbay_core::stats::{StreamDetail, StreamEntry, StreamHold, StreamState, StreamView};
use sickbay_core::{MessageId, MessageType, QueueName, StoreError, StreamKey, Timestamp};

use super::failure::Translate;
use super::overview::queue_no;
use super::view;
use crate::door;

/// The streams of a queue, blocked ones first.
pub(super) fn list(
    connection: &Connection,
    name: &QueueName,
    rows_max: u32,
    now: i64,
) -> Result<Vec<StreamView>, StoreError> {
    let no = queue_no(connection, name)?;
    let mut statement =
        connection.prepare_cached("SELECT no, key FROM stream WHERE queue = ?1 ORDER BY key").translated()?;
    let rows = statement
        .query_map([no], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .translated()?;
    let held = view::leased_places(connection)?;
    let mut views = Vec::new();
    for row in rows {
        let (stream, key) = row.translated()?;
        let Ok(key) = StreamKey::new(key) else { continue };
        views.extend(one(connection, name, stream, &key, now, &held)?);
    }
    views.sort_by_key(|view| match view.state {
        StreamState::Held => 0,
        StreamState::Scheduled => 1,
        StreamState::Leased => 2,
        StreamState::Ready => 3,
    });
    views.truncate(rows_max as usize);
    Ok(views)
}

/// Whether one stream moves, and by which message it is known.
fn one(
    connection: &Connection,
    queue: &QueueName,
    stream: i64,
    key: &StreamKey,
    now: i64,
    held: &view::LeasedPlaces,
) -> Result<Option<StreamView>, StoreError> {
    let read = |sql: &str| -> Result<Option<(i64, i64, i64)>, StoreError> {
        let mut statement = connection.prepare_cached(sql).translated()?;
        statement
            .query_row([stream], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()
            .translated()
    };
    let counted = "SELECT (SELECT count(*) FROM entry WHERE stream = ?1), (SELECT count(*) FROM hold WHERE stream = ?1), 0";
    let length = read(counted)?.map_or(0, |(entries, holds, _)| entries + holds) as u64;
    let first = read(
        "SELECT number, place, due_at FROM entry WHERE stream = ?1 AND deferred = 0 ORDER BY number LIMIT 1",
    )?;
    let hold = read("SELECT number, since, 0 FROM hold WHERE stream = ?1 ORDER BY number LIMIT 1")?
        .filter(|hold| first.is_none_or(|first| hold.0 < first.0));
    let leased = held.first_of(connection, stream)?;
    let view = |state, head: i64, since: Option<i64>, due_at: Option<i64>| {
        Some(StreamView {
            queue: queue.clone(),
            key: key.clone(),
            state,
            head: MessageId::from_number(head as u64),
            since: since.map(Timestamp::from_millis),
            due_at: due_at.map(Timestamp::from_millis),
            length,
        })
    };
    if let Some((number, since)) = leased {
        return Ok(view(StreamState::Leased, number, Some(since), None));
    }
    if let Some((number, since, _)) = hold {
        return Ok(view(StreamState::Held, number, Some(since), None));
    }
    let next = "SELECT number, place, due_at FROM entry WHERE stream = ?1 ORDER BY due_at, number LIMIT 1";
    let Some((number, _, due_at)) = first.map_or_else(|| read(next), |first| Ok(Some(first)))? else {
        return Ok(None);
    };
    let state = if due_at > now { StreamState::Scheduled } else { StreamState::Ready };
    Ok(view(state, number, None, Some(due_at)))
}

/// A stream with its holds and entries in their order.
pub(super) fn detail(
    connection: &Connection,
    name: &QueueName,
    key: &StreamKey,
    rows_max: u32,
    now: i64,
) -> Result<Option<StreamDetail>, StoreError> {
    let queue = queue_no(connection, name)?;
    let stream: Option<i64> = connection
        .prepare_cached("SELECT no FROM stream WHERE queue = ?1 AND key = ?2")
        .translated()?
        .query_row(params![queue, key.as_str()], |row| row.get(0))
        .optional()
        .translated()?;
    let Some(stream) = stream else { return Ok(None) };
    let leased = view::leased_places(connection)?;
    let Some(view) = one(connection, name, stream, key, now, &leased)? else { return Ok(None) };
    let holds = holds(connection, stream, rows_max)?;
    let entries = entries(connection, stream, rows_max, now, &leased)?;
    Ok(Some(StreamDetail { view, holds, entries }))
}

fn holds(connection: &Connection, stream: i64, rows_max: u32) -> Result<Vec<StreamHold>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT number, since FROM hold WHERE stream = ?1 ORDER BY number LIMIT ?2")
        .translated()?;
    let rows = statement.query_map(params![stream, rows_max], |row| Ok((row.get(0)?, row.get(1)?)));
    let rows: Vec<(i64, i64)> = rows.translated()?.collect::<rusqlite::Result<_>>().translated()?;
    let hold = |(number, since): (i64, i64)| {
        Some(StreamHold { id: MessageId::from_number(number as u64)?, since: Timestamp::from_millis(since) })
    };
    Ok(rows.into_iter().filter_map(hold).collect())
}

/// The first entries, each kind read in the order of the index, so that a long stream costs nothing.
const ENTRIES: &str = "WITH first AS (
        SELECT * FROM (SELECT number, place, due_at, deferred FROM entry
            WHERE stream = ?1 AND deferred = 0 ORDER BY number LIMIT ?2)
        UNION ALL
        SELECT * FROM (SELECT number, place, due_at, deferred FROM entry
            WHERE stream = ?1 AND deferred = 1 ORDER BY number LIMIT ?2))
    SELECT f.number, f.due_at, f.deferred, coalesce(w.failures, 0), t.name FROM first f
    LEFT JOIN waiting w ON w.place = f.place LEFT JOIN message m ON m.place = f.place
    LEFT JOIN type t ON t.no = m.type ORDER BY f.number LIMIT ?2";

fn entries(
    connection: &Connection,
    stream: i64,
    rows_max: u32,
    now: i64,
    leased: &view::LeasedPlaces,
) -> Result<Vec<StreamEntry>, StoreError> {
    let mut statement = connection.prepare_cached(ENTRIES).translated()?;
    let mut rows = statement.query(params![stream, rows_max]).translated()?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().translated()? {
        let number = row.get::<_, i64>(0).translated()? as u64;
        let Some(id) = MessageId::from_number(number) else { continue };
        let due_at = Timestamp::from_millis(row.get(1).translated()?);
        let failures: u32 = row.get(3).translated()?;
        let status = match leased.holds(number) {
            true => Status::Active,
            false => door::waiting_status(failures, due_at, Timestamp::from_millis(now)),
        };
        let message_type = row.get::<_, Option<String>>(4).translated()?;
        entries.push(StreamEntry {
            id,
            message_type: message_type.and_then(|name| MessageType::new(name).ok()),
            status,
            due_at,
            deferred: row.get(2).translated()?,
            failures,
        });
    }
    Ok(entries)
}
