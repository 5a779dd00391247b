//! The rows of messages that are not simply next.

use rusqlite::{OptionalExtension, Row, params};
use sickbay_core::StoreError;

use super::failure::Translate;
use super::pack::{pack_facts, unpack_facts};
use super::place::Place;
use super::state::{Leased, Taken};
use super::tx::{Tx, at_hand};

/// Writes a row that may be new.
const INSERT_WAITING: &str = "INSERT OR REPLACE INTO waiting
    (place, number, band, state, due_at, type, claim, deliveries, failures, suspect, facts, history)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?12, ?7, ?8, ?9, ?10, ?11)";
/// Writes the row of a message that was leased and has one.
const UPDATE_WAITING: &str =
    "UPDATE waiting SET state = ?4, due_at = ?5, claim = ?12, deliveries = ?7, failures = ?8,
    suspect = ?9, facts = ?10, history = ?11 WHERE place = ?1";

/// The columns that [`read_waiting`] reads, in its order.
pub(super) const WAITING_COLUMNS: &str =
    "w.place, w.due_at, w.type, w.deliveries, w.failures, w.suspect, w.facts, w.history, w.state";
/// How many they are.
pub(super) const WAITING_WIDTH: usize = 9;

/// True if a message with such a row is in hand under this claim. One that was kept in memory keeps its row
/// while it is in hand: the row then tells of an earlier claim.
pub(super) const fn is_held(state: i64, row_claim: Option<i64>, claim: i64) -> bool {
    match (state, row_claim) {
        (1, Some(by)) => by == claim,
        (5, Some(ended)) => ended < claim,
        (5, None) => true,
        _ => false,
    }
}

/// Reads what is known of a waiting message.
pub(super) fn read_waiting(row: &Row<'_>) -> rusqlite::Result<Leased> {
    let mut message = Leased::fresh(Place(row.get(0)?), row.get(1)?, row.get(2)?);
    unpack_facts(row.get_ref(6)?.as_blob()?, &mut message);
    message.counters.deliveries = row.get(3)?;
    message.counters.failures = row.get(4)?;
    message.suspect = row.get(5)?;
    message.history = row.get::<_, Option<Vec<u8>>>(7)?.unwrap_or_default();
    message.in_waiting = true;
    Ok(message)
}

impl Tx<'_> {
    /// Writes the whole row of a message that waits from now on, in this state (0 becomes 4 for a suspect).
    pub(super) fn put_waiting(&mut self, mut message: Leased, state: i64) -> Result<(), StoreError> {
        let state = match state {
            0 | 5 if message.suspect => 4,
            0 | 5 if self.fits_in_memory(&message)? => 5,
            // Without its row it cannot be kept in memory.
            5 => 0,
            _ => state,
        };
        self.note_delivery(&mut message);
        let (slot, sql) = if message.in_waiting && message.claim > 0 {
            (&mut self.hot.update_waiting, UPDATE_WAITING)
        } else {
            (&mut self.hot.insert_waiting, INSERT_WAITING)
        };
        let values = params![
            message.place.0,
            message.place.number() as i64,
            message.place.band().0,
            state,
            message.due_at,
            message.type_no,
            message.counters.deliveries,
            message.counters.failures,
            message.suspect,
            pack_facts(&message),
            (!message.history.is_empty()).then_some(&message.history),
            message.claim as i64
        ];
        at_hand(slot, self.connection, sql)?.execute(values).translated()?;
        let (place, due_at) = (message.place, message.due_at);
        if state == 5
            && let Some(row) = message.row.take()
        {
            let lease = Leased { in_waiting: true, in_memory: true, ..message };
            self.queue(place.queue())?.ready.insert(Taken { lease, row: *row });
        }
        self.note_candidate(place, due_at, state)
    }

    /// Remembers what was the last delivery of a message that is no longer in hand.
    pub(super) fn note_delivery(&self, message: &mut Leased) {
        if message.claim > 0 {
            message.last = Some((self.state.epoch, message.claim));
        }
    }

    /// True if a message that comes back is due now, stands in no stream, and there is room for it.
    fn fits_in_memory(&mut self, message: &Leased) -> Result<bool, StoreError> {
        let due = message.due_at <= self.now && message.stream.is_none() && message.row.is_some();
        Ok(due && self.queue(message.place.queue())?.ready.has_room())
    }

    /// Remembers what can be claimed, and from when.
    fn note_candidate(&mut self, place: Place, due_at: i64, state: i64) -> Result<(), StoreError> {
        let queue = self.queue(place.queue())?;
        match state {
            0 => queue.expect(place, due_at),
            4 => drop(queue.suspects.insert((place.band().0 & 15, due_at, place.number()))),
            _ => {}
        }
        Ok(())
    }

    /// Changes whether a waiting message can be claimed.
    pub(super) fn set_waiting_state(&mut self, place: Place, state: i64) -> Result<(), StoreError> {
        let due_at: Option<i64> = self
            .prepare("UPDATE waiting SET state = ?2 WHERE place = ?1 RETURNING due_at")?
            .query_row(params![place.0, state], |row| row.get(0))
            .optional()
            .translated()?;
        let Some(due_at) = due_at else { return Ok(()) };
        if state != 4 {
            self.forget_candidate(place, due_at)?;
        }
        self.note_candidate(place, due_at, state)
    }

    /// A message is no longer among the suspects or among those kept in memory.
    pub(super) fn forget_candidate(&mut self, place: Place, due_at: i64) -> Result<(), StoreError> {
        let queue = self.queue(place.queue())?;
        queue.suspects.remove(&(place.band().0 & 15, due_at, place.number()));
        queue.ready.remove(place, due_at);
        Ok(())
    }

    /// Removes the row of a message that no longer waits.
    pub(super) fn drop_waiting(&mut self, message: &Leased) -> Result<(), StoreError> {
        if message.in_waiting {
            let sql = "DELETE FROM waiting WHERE place = ?1";
            at_hand(&mut self.hot.delete_waiting, self.connection, sql)?
                .execute([message.place.0])
                .translated()?;
            self.forget_candidate(message.place, message.due_at)?;
        }
        Ok(())
    }

    /// What is known of a live message that is not leased.
    pub(super) fn read_live(&self, place: Place) -> Result<Option<(Leased, i64)>, StoreError> {
        let mut statement = self.prepare(&format!(
            "SELECT {WAITING_COLUMNS}, m.type, m.pushed_at, m.stream, m.key IS NOT NULL, length(m.payload)
             FROM message m LEFT JOIN waiting w ON w.place = m.place WHERE m.place = ?1"
        ))?;
        let found = statement
            .query_row([place.0], |row| {
                let (type_no, pushed_at) = (row.get(WAITING_WIDTH)?, row.get(WAITING_WIDTH + 1)?);
                let waits = row.get::<_, Option<i64>>(0)?.is_some();
                let mut message = match waits {
                    true => read_waiting(row)?,
                    // It is due, also if the clock has been set back since it was pushed.
                    false => Leased::fresh(place, self.now.min(pushed_at), type_no),
                };
                message.stream = row.get::<_, Option<i64>>(WAITING_WIDTH + 2)?.map(|stream| (stream, false));
                message.keyed = row.get(WAITING_WIDTH + 3)?;
                (message.pushed_at, message.payload_bytes) = (pushed_at, row.get(WAITING_WIDTH + 4)?);
                let state: Option<i64> = row.get(8)?;
                Ok((message, state.unwrap_or(0)))
            })
            .optional()
            .translated()?;
        let Some((mut message, state)) = found else { return Ok(None) };
        if let Some((stream, deferred)) = &mut message.stream {
            *deferred = self
                .prepare("SELECT 1 FROM entry WHERE stream = ?1 AND deferred = 1 AND number = ?2")?
                .exists(params![*stream, place.number() as i64])
                .translated()?;
        }
        Ok(Some((message, state)))
    }
}
