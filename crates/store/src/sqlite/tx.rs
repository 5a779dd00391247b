//! One turn of the writer: the connection, what is remembered, and the time at which it all happens.

use rusqlite::{CachedStatement, Connection};
use sickbay_core::{ErrorKind, MessageType, QueueName, StoreError};

use super::failure::Translate;
use super::place::Place;
use super::state::{Queue, State};
use crate::door::Limits;

/// Everything an operation works on.
pub(super) struct Tx<'a> {
    pub(super) connection: &'a Connection,
    pub(super) state: &'a mut State,
    pub(super) now: i64,
    pub(super) limits: &'a Limits,
    /// A transaction is open.
    pub(super) open: &'a mut bool,
    /// Statements that one operation runs many times.
    pub(super) hot: Hot<'a>,
}

/// Statements that are at hand while an operation lasts.
#[derive(Default)]
pub(super) struct Hot<'a> {
    pub(super) insert_waiting: Option<CachedStatement<'a>>,
    pub(super) update_waiting: Option<CachedStatement<'a>>,
    pub(super) lease_waiting: Option<CachedStatement<'a>>,
    pub(super) insert_dead: Option<CachedStatement<'a>>,
    pub(super) delete_waiting: Option<CachedStatement<'a>>,
}

/// The statement in a slot, prepared when it is first needed.
pub(super) fn at_hand<'s, 'a>(
    slot: &'s mut Option<CachedStatement<'a>>,
    connection: &'a Connection,
    sql: &str,
) -> Result<&'s mut CachedStatement<'a>, StoreError> {
    match slot {
        Some(statement) => Ok(statement),
        empty => Ok(empty.insert(connection.prepare_cached(sql).translated()?)),
    }
}

impl<'a> Tx<'a> {
    /// Opens the transaction unless it is open: turns that write nothing need none.
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        if !*self.open {
            self.connection.prepare_cached("BEGIN IMMEDIATE").translated()?.execute([]).translated()?;
            *self.open = true;
        }
        Ok(())
    }

    /// A statement, kept for the next time.
    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>, StoreError> {
        self.connection.prepare_cached(sql).translated()
    }

    /// Runs a statement that changes rows; answers how many.
    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        self.prepare(sql)?.execute(params).translated()
    }

    /// The queue with this number. Places only ever name queues that exist.
    pub(super) fn queue(&mut self, no: i64) -> Result<&mut Queue, StoreError> {
        self.state.queue(no).ok_or_else(|| {
            StoreError::new(
                ErrorKind::Corrupt,
                "SB0012",
                format!("the store names a queue {no} that it does not know"),
            )
        })
    }

    /// The number of a queue that was defined, or an error with the nearest name.
    pub(super) fn queue_no(&self, name: &QueueName) -> Result<i64, StoreError> {
        match self.state.queue_by_name.get(name) {
            Some(no) => Ok(*no),
            None => {
                Err(crate::door::unknown_queue(name, self.state.queue_by_name.keys().map(QueueName::as_str)))
            }
        }
    }

    /// The number of a message type; a new one is written down.
    pub(super) fn type_no(&mut self, name: &MessageType) -> Result<i64, StoreError> {
        if let Some(no) = self.state.types.get(name) {
            return Ok(*no);
        }
        self.begin()?;
        let no: i64 = self
            .prepare("INSERT INTO type (name) VALUES (?1) RETURNING no")?
            .query_row([name.as_str()], |row| row.get(0))
            .translated()?;
        self.state.types.insert(name.clone(), no);
        self.state.type_names.insert(no, name.clone());
        Ok(no)
    }

    /// Where the live message with this number lies.
    pub(super) fn locate(&self, number: u64) -> Result<Option<Place>, StoreError> {
        locate(self.connection, self.state.queues.keys().copied(), number)
    }

    /// Writes down what changed in the figures.
    pub(super) fn write_tallies(&mut self) -> Result<(), StoreError> {
        for queue in self.state.queues.values_mut().filter(|queue| queue.tally_changed) {
            let t = queue.tally;
            self.connection
                .prepare_cached(
                    "UPDATE tally SET live = ?2, active = ?3, dead = ?4, discarded = ?5, pushed = ?6, completed = ?7,
                     duplicates = ?8, failures = ?9, quarantined = ?10, replayed = ?11, removed = ?12 WHERE queue = ?1",
                )
                .translated()?
                .execute(rusqlite::params![
                    queue.no, t.live, t.active, t.dead, t.discarded, t.pushed, t.completed, t.duplicates, t.failures,
                    t.quarantined, t.replayed, t.removed
                ])
                .translated()?;
            queue.tally_changed = false;
        }
        for queue in self.state.queues.values_mut().filter(|queue| queue.reasons_changed) {
            for (reason, dead) in &queue.reasons {
                let sql = "INSERT OR REPLACE INTO reason_tally VALUES (?1, ?2, ?3)";
                let mut statement = self.connection.prepare_cached(sql).translated()?;
                statement.execute(rusqlite::params![queue.no, reason, dead]).translated()?;
            }
            queue.reasons_changed = false;
        }
        self.state.commits += 1;
        let (number, commits) = (self.state.last_number as i64, self.state.commits as i64);
        let marks = (number, self.state.last_dead, commits, self.now);
        self.execute("UPDATE mark SET last_number = ?1, last_dead = ?2, commits = ?3, last_at = ?4", marks)?;
        Ok(())
    }
}

/// Where the live message with this number lies, in any of these queues.
pub(super) fn locate(
    connection: &Connection,
    queues: impl Iterator<Item = i64>,
    number: u64,
) -> Result<Option<Place>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM message WHERE place = ?1").translated()?;
    for place in queues.flat_map(|queue| Place::all(queue, number)) {
        if statement.exists([place.0]).translated()? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}
