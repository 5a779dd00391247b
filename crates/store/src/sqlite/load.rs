//! What the writer remembers, read from the file.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use sickbay_core::stats::TypeGate;
use sickbay_core::{ErrorKind, MessageType, QueueName, QueuePolicy, StoreError};

use super::claim::read_taken;
use super::failure::Translate;
use super::place::Band;
use super::row::MESSAGE_COLUMNS;
use super::state::{BandState, Queue, State, Tally};
use super::waiting::WAITING_COLUMNS;

/// Reads everything but the leases.
pub(super) fn load(connection: &Connection) -> Result<State, StoreError> {
    let mut state = State {
        epoch: meta(connection, "epoch")?.unwrap_or(0) as u64,
        last_number: mark(connection, "last_number")? as u64,
        last_dead: mark(connection, "last_dead")?,
        store: meta(connection, "store")?.unwrap_or(0) as u64,
        commits: mark(connection, "commits")? as u64,
        policies_changed: true,
        ..State::default()
    };
    load_types(connection, &mut state)?;
    load_queues(connection, &mut state)?;
    load_gates(connection, &mut state)?;
    load_suspects(connection, &mut state)?;
    load_ready(connection, &mut state)?;
    Ok(state)
}

fn mark(connection: &Connection, name: &str) -> Result<i64, StoreError> {
    connection.query_row(&format!("SELECT {name} FROM mark"), [], |row| row.get(0)).translated()
}

pub(super) fn meta(connection: &Connection, name: &str) -> Result<Option<i64>, StoreError> {
    use rusqlite::OptionalExtension;
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?1").translated()?;
    statement.query_row([name], |row| row.get(0)).optional().translated()
}

pub(super) fn set_meta(connection: &Connection, name: &str, value: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
    connection.prepare_cached(sql).translated()?.execute((name, value)).translated()?;
    Ok(())
}

fn damaged(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, "SB0012", format!("the store's {what} cannot be read: {error}"))
}

fn load_types(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT no, name FROM type").translated()?;
    let rows =
        statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).translated()?;
    for row in rows {
        let (no, name) = row.translated()?;
        let name = MessageType::new(name).map_err(|error| damaged("list of types", error))?;
        state.types.insert(name.clone(), no);
        state.type_names.insert(no, name);
    }
    Ok(())
}

fn load_queues(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let mut statement = connection
        .prepare(
            "SELECT q.no, q.name, q.policy, q.paused, t.live, t.active, t.dead, t.discarded, t.pushed, t.completed,
             t.duplicates, t.failures, t.quarantined, t.replayed, t.removed
             FROM queue q JOIN tally t ON t.queue = q.no",
        )
        .translated()?;
    let mut rows = statement.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let get = |at: usize| row.get::<_, i64>(at).translated();
        let no = get(0)?;
        let name = QueueName::new(row.get::<_, String>(1).translated()?)
            .map_err(|e| damaged("list of queues", e))?;
        let policy: QueuePolicy = serde_json::from_str(&row.get::<_, String>(2).translated()?)
            .map_err(|error| damaged(&format!("policy of queue {name}"), error))?;
        let tally = Tally {
            live: get(4)?,
            active: get(5)?,
            dead: get(6)?,
            discarded: get(7)?,
            pushed: get(8)?,
            completed: get(9)?,
            duplicates: get(10)?,
            failures: get(11)?,
            quarantined: get(12)?,
            replayed: get(13)?,
            removed: get(14)?,
        };
        let queue = Queue {
            no,
            name: name.clone(),
            policy: Arc::new(policy),
            paused: get(3)? != 0,
            tally,
            tally_changed: false,
            bands: load_bands(connection, no)?,
            gates: HashMap::new(),
            reasons: load_reasons(connection, no)?,
            reasons_changed: false,
            ready: Default::default(),
            suspects: Default::default(),
        };
        state.queue_by_name.insert(name, no);
        state.queues.insert(no, queue);
    }
    Ok(())
}

fn load_reasons(connection: &Connection, queue: i64) -> Result<HashMap<String, i64>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT reason, dead FROM reason_tally WHERE queue = ?1").translated()?;
    let rows = statement.query_map([queue], |row| Ok((row.get(0)?, row.get(1)?))).translated()?;
    rows.collect::<rusqlite::Result<_>>().translated()
}

/// Fresh messages are handed out in order, so everything up to the last place that is waiting,
/// leased or dead has been handed out before.
pub(super) fn load_bands(connection: &Connection, queue: i64) -> Result<[BandState; 10], StoreError> {
    let mut last = connection
        .prepare_cached("SELECT max(place) FROM message WHERE place > ?1 AND place <= ?2")
        .translated()?;
    let mut dead = connection
        .prepare_cached("SELECT max(place) FROM dead WHERE place > ?1 AND place <= ?2")
        .translated()?;
    let mut seen = connection
        .prepare_cached("SELECT max(place) FROM waiting WHERE place > ?1 AND place <= ?2")
        .translated()?;
    let mut due = connection
        .prepare_cached("SELECT min(due_at) FROM waiting WHERE state = 0 AND band = ?1")
        .translated()?;
    let mut bands = [BandState { cursor: 0, last: 0, next_due: i64::MAX }; 10];
    for (index, slot) in bands.iter_mut().enumerate() {
        let band = Band(queue << 4 | index as i64);
        let range = band.fresh();
        let cursor: Option<i64> = seen.query_row(range, |row| row.get(0)).translated()?;
        let buried: Option<i64> = dead.query_row(range, |row| row.get(0)).translated()?;
        let cursor = cursor.max(buried);
        let end: Option<i64> = last.query_row(range, |row| row.get(0)).translated()?;
        let next: Option<i64> = due.query_row([band.0], |row| row.get(0)).translated()?;
        let cursor = cursor.unwrap_or(range.0);
        *slot =
            BandState { cursor, last: end.unwrap_or(cursor).max(cursor), next_due: next.unwrap_or(i64::MAX) };
    }
    Ok(bands)
}

fn load_gates(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let mut statement =
        connection.prepare("SELECT queue, type, gate, probes_left FROM type_gate").translated()?;
    let mut rows = statement.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let (queue, type_no): (i64, i64) = (row.get(0).translated()?, row.get(1).translated()?);
        let gate = match row.get::<_, i64>(2).translated()? {
            1 => TypeGate::Paused,
            2 => TypeGate::Tripped,
            _ => TypeGate::Probing { left: row.get(3).translated()? },
        };
        if let Some(queue) = state.queue(queue) {
            queue.gates.insert(type_no, gate);
        }
    }
    // A gate that opened just before a crash may have left messages behind it.
    let mut held =
        connection.prepare("SELECT DISTINCT band >> 4, type FROM waiting WHERE state = 2").translated()?;
    let mut rows = held.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let (queue, type_no): (i64, i64) = (row.get(0).translated()?, row.get(1).translated()?);
        if state.queues.get(&queue).is_some_and(|queue| !queue.gates.contains_key(&type_no)) {
            state.reopening.insert((queue, type_no));
        }
    }
    Ok(())
}

fn load_suspects(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let mut statement =
        connection.prepare("SELECT band, due_at, number FROM waiting WHERE state = 4").translated()?;
    let mut rows = statement.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let (band, due_at, number): (i64, i64, i64) =
            (row.get(0).translated()?, row.get(1).translated()?, row.get(2).translated()?);
        if let Some(queue) = state.queue(band >> 4) {
            queue.suspects.insert((band & 15, due_at, number as u64));
        }
    }
    Ok(())
}

/// Messages that were kept in memory to be tried again.
fn load_ready(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {WAITING_COLUMNS}, {MESSAGE_COLUMNS}, w.claim FROM waiting w JOIN message m ON m.place = w.place
         WHERE w.state = 5"
    );
    let mut statement = connection.prepare(&sql).translated()?;
    let claim_at = statement.column_count() - 1;
    let rows = statement
        .query_map([], |row| Ok((read_taken(row)?, row.get::<_, Option<i64>>(claim_at)?)))
        .translated()?;
    for row in rows {
        let (taken, claim) = row.translated()?;
        // Later claims have larger numbers than the one that such a row tells of.
        state.last_claim = state.last_claim.max(claim.unwrap_or(0) as u64);
        if let Some(queue) = state.queue(taken.lease.place.queue()) {
            queue.ready.insert(taken);
        }
    }
    Ok(())
}
