//! The rows of messages that are not simply next.

use rusqlite::{OptionalExtension, Row, params};
use sickbay_core::{Stages, StoreError};

use super::failure::Translate;
use super::place::Place;
use super::row::{cause_code, cause_from, read_counters};
use super::state::Leased;
use super::tx::Tx;

/// The columns that [`read_waiting`] reads, in its order.
pub(super) const WAITING_COLUMNS: &str =
    "w.place, w.due_at, w.type, w.deliveries, w.failures, w.crashes, w.charges, w.releases, w.expiries, w.replays,
     w.earlier, w.stages, w.cause, w.suspect, w.history, w.first_failed_at, w.state";
/// How many they are.
pub(super) const WAITING_WIDTH: usize = 17;

/// Reads what is known of a waiting message.
pub(super) fn read_waiting(row: &Row<'_>) -> rusqlite::Result<Leased> {
    Ok(Leased {
        counters: read_counters(row, 3)?,
        stages: Stages::from_bits(row.get(11)?),
        cause: cause_from(row.get(12)?),
        suspect: row.get(13)?,
        history: row.get(14)?,
        first_failed_at: row.get(15)?,
        in_waiting: true,
        ..Leased::fresh(Place(row.get(0)?), row.get(1)?, row.get(2)?)
    })
}

impl Tx<'_> {
    /// Writes the whole row of a message that waits from now on, in this state (0 becomes 4 for a suspect).
    pub(super) fn put_waiting(&mut self, message: &Leased, state: i64) -> Result<(), StoreError> {
        let state = if state == 0 && message.suspect { 4 } else { state };
        let c = &message.counters;
        self.execute(
            "INSERT OR REPLACE INTO waiting (place, number, band, state, due_at, type, claim, deliveries, failures,
             crashes, charges, releases, expiries, replays, earlier, stages, cause, suspect, history, first_failed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            params![
                message.place.0,
                message.place.number() as i64,
                message.place.band().0,
                state,
                message.due_at,
                message.type_no,
                c.deliveries,
                c.failures,
                c.crashes,
                c.charges,
                c.releases,
                c.expiries,
                c.replays,
                c.earlier,
                message.stages.bits(),
                message.cause.map(cause_code),
                message.suspect,
                message.history,
                message.first_failed_at
            ],
        )?;
        self.note_candidate(message.place, message.due_at, state)
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
            self.forget_suspect(place, due_at)?;
        }
        self.note_candidate(place, due_at, state)
    }

    pub(super) fn forget_suspect(&mut self, place: Place, due_at: i64) -> Result<(), StoreError> {
        self.queue(place.queue())?.suspects.remove(&(place.band().0 & 15, due_at, place.number()));
        Ok(())
    }

    /// Removes the row of a message that no longer waits.
    pub(super) fn drop_waiting(&mut self, message: &Leased) -> Result<(), StoreError> {
        if message.in_waiting {
            self.execute("DELETE FROM waiting WHERE place = ?1", [message.place.0])?;
            self.forget_suspect(message.place, message.due_at)?;
        }
        Ok(())
    }

    /// What is known of a live message that is not leased.
    pub(super) fn read_live(&self, place: Place) -> Result<Option<(Leased, i64)>, StoreError> {
        let mut statement = self.prepare(&format!(
            "SELECT {WAITING_COLUMNS}, m.type, m.pushed_at, m.stream, m.key IS NOT NULL
             FROM message m LEFT JOIN waiting w ON w.place = m.place WHERE m.place = ?1"
        ))?;
        let found = statement
            .query_row([place.0], |row| {
                let (type_no, pushed_at) = (row.get(WAITING_WIDTH)?, row.get(WAITING_WIDTH + 1)?);
                let waits = row.get::<_, Option<i64>>(0)?.is_some();
                let mut message =
                    if waits { read_waiting(row)? } else { Leased::fresh(place, pushed_at, type_no) };
                message.stream = row.get::<_, Option<i64>>(WAITING_WIDTH + 2)?.map(|stream| (stream, false));
                message.keyed = row.get(WAITING_WIDTH + 3)?;
                let state: Option<i64> = row.get(16)?;
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
