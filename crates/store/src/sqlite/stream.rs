//! Streams (contract 19–25). Of each stream only what can be claimed now is in the index that claims
//! read; the followers of a blocked one cost nothing.

use rusqlite::{OptionalExtension, params};
use sickbay_core::StoreError;

use super::failure::Translate;
use super::place::Place;
use super::state::Leased;
use super::tx::Tx;

/// An entry of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) due_at: i64,
}

impl Tx<'_> {
    /// The number of a stream; a new one is written down.
    pub(super) fn stream_no(&mut self, queue: i64, key: &str) -> Result<i64, StoreError> {
        self.begin()?;
        let known = self
            .prepare("SELECT no FROM stream WHERE queue = ?1 AND key = ?2")?
            .query_row(params![queue, key], |row| row.get(0))
            .optional()
            .translated()?;
        match known {
            Some(no) => Ok(no),
            None => self
                .prepare("INSERT INTO stream (queue, key) VALUES (?1, ?2) RETURNING no")?
                .query_row(params![queue, key], |row| row.get(0))
                .translated(),
        }
    }

    /// Adds an entry at the place its number gives it. True if it is the first that may be claimed.
    pub(super) fn join_stream(&mut self, stream: i64, place: Place, due_at: i64) -> Result<bool, StoreError> {
        let first = self.first_entry(stream)?;
        let blocked = self.is_held(stream, place.number())?;
        self.execute(
            "INSERT INTO entry (stream, deferred, number, place, due_at) VALUES (?1, 0, ?2, ?3, ?4)",
            params![stream, place.number() as i64, place.0, due_at],
        )?;
        match first {
            Some(first) if first.number < place.number() => Ok(false),
            Some(first) => {
                // It was first until now.
                self.block(first.place)?;
                Ok(!blocked)
            }
            None => Ok(!blocked),
        }
    }

    /// The first entry that was not let out of the order.
    pub(super) fn first_entry(&self, stream: i64) -> Result<Option<Entry>, StoreError> {
        self.prepare("SELECT number, place, due_at FROM entry WHERE stream = ?1 AND deferred = 0 ORDER BY number LIMIT 1")?
            .query_row([stream], read_entry)
            .optional()
            .translated()
    }

    /// The entries that follow a number in the order.
    pub(super) fn following(&self, stream: i64, number: u64, count: u32) -> Result<Vec<Entry>, StoreError> {
        let mut statement = self.prepare(
            "SELECT number, place, due_at FROM entry WHERE stream = ?1 AND deferred = 0 AND number > ?2
             ORDER BY number LIMIT ?3",
        )?;
        let rows = statement.query_map(params![stream, number as i64, count], read_entry).translated()?;
        rows.collect::<rusqlite::Result<_>>().translated()
    }

    /// True if a hold stands before this number.
    pub(super) fn is_held(&self, stream: i64, number: u64) -> Result<bool, StoreError> {
        self.prepare("SELECT 1 FROM hold WHERE stream = ?1 AND number < ?2 LIMIT 1")?
            .exists(params![stream, number as i64])
            .translated()
    }

    fn is_deferred(&self, stream: i64, number: u64) -> Result<bool, StoreError> {
        self.prepare("SELECT 1 FROM entry WHERE stream = ?1 AND deferred = 1 AND number = ?2")?
            .exists(params![stream, number as i64])
            .translated()
    }

    /// Takes a message out of its stream.
    pub(super) fn leave_stream(&self, stream: i64, number: u64) -> Result<(), StoreError> {
        self.execute(
            "DELETE FROM entry WHERE stream = ?1 AND deferred IN (0, 1) AND number = ?2",
            params![stream, number as i64],
        )?;
        Ok(())
    }

    /// Lets an entry out of the order.
    pub(super) fn defer_entry(&self, stream: i64, number: u64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE entry SET deferred = 1 WHERE stream = ?1 AND deferred = 0 AND number = ?2",
            params![stream, number as i64],
        )?;
        Ok(())
    }

    /// Changes when an entry is due.
    pub(super) fn set_entry_due(&self, stream: i64, number: u64, due_at: i64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE entry SET due_at = ?3 WHERE stream = ?1 AND deferred IN (0, 1) AND number = ?2",
            params![stream, number as i64, due_at],
        )?;
        Ok(())
    }

    /// Keeps a waiting entry from being claimed until the stream is free again.
    fn block(&mut self, place: Place) -> Result<(), StoreError> {
        let state: Option<i64> = self
            .prepare("SELECT state FROM waiting WHERE place = ?1")?
            .query_row([place.0], |row| row.get(0))
            .optional()
            .translated()?;
        match state {
            // What a gate holds back is blocked as well, or the gate would let it go before its turn.
            Some(0 | 2 | 4) => self.set_waiting_state(place, 3),
            _ => Ok(()),
        }
    }

    /// An entry came due while its stream was leased: it waits for the stream.
    pub(super) fn demote(
        &mut self,
        stream: i64,
        place: Place,
        due_at: i64,
        suspect: bool,
    ) -> Result<(), StoreError> {
        self.begin()?;
        self.set_waiting_state(place, 3)?;
        let key = (!suspect, place.band().0, due_at, place.number(), place.0);
        self.state.demoted.entry(stream).or_default().insert(key);
        Ok(())
    }

    /// One entry more of the stream is leased.
    pub(super) fn lease_stream(&mut self, stream: i64) {
        *self.state.leased_streams.entry(stream).or_default() += 1;
    }

    /// One entry less of the stream is leased. When it was the last, the stream is free.
    pub(super) fn unlease_stream(&mut self, stream: i64) -> Result<(), StoreError> {
        if let Some(count) = self.state.leased_streams.get_mut(&stream) {
            *count -= 1;
            if *count > 0 {
                return Ok(());
            }
            self.state.leased_streams.remove(&stream);
        }
        self.free_stream(stream)
    }

    /// Puts what can be claimed of a stream where claims look for it; forgets an empty stream.
    pub(super) fn free_stream(&mut self, stream: i64) -> Result<(), StoreError> {
        self.let_stream_go(stream).map(drop)
    }

    /// The same; true if something that was blocked can be claimed now.
    pub(super) fn let_stream_go(&mut self, stream: i64) -> Result<bool, StoreError> {
        let mut freed = false;
        if self.state.leased_streams.contains_key(&stream) {
            return Ok(freed);
        }
        if let Some(mut waiting) = self.state.demoted.remove(&stream) {
            while let Some((plain, _, _, number, place)) = waiting.pop_first() {
                // One that keeps the order waits until it is the first: another may have come before it.
                if self.is_deferred(stream, number)? && self.unblock(Place(place))? {
                    freed = true;
                    // Of those that are not suspect only one can be claimed at a time.
                    if plain {
                        break;
                    }
                }
            }
            if !waiting.is_empty() {
                self.state.demoted.insert(stream, waiting);
            }
        }
        match self.first_entry(stream)? {
            Some(first) if self.is_held(stream, first.number)? => self.block(first.place)?,
            Some(first) => freed |= self.promote(stream, first)?,
            None => self.forget_if_empty(stream)?,
        }
        Ok(freed)
    }

    /// Makes the first entry claimable; its row in `waiting` may not exist yet. False if it was so before.
    fn promote(&mut self, stream: i64, first: Entry) -> Result<bool, StoreError> {
        let known: Option<i64> = self
            .prepare("SELECT state FROM waiting WHERE place = ?1")?
            .query_row([first.place.0], |row| row.get(0))
            .optional()
            .translated()?;
        match known {
            Some(3) => self.unblock(first.place),
            Some(_) => Ok(false),
            None => {
                let type_no = self
                    .prepare("SELECT type FROM message WHERE place = ?1")?
                    .query_row([first.place.0], |row| row.get(0))
                    .translated()?;
                let mut fresh = Leased::fresh(first.place, first.due_at, type_no);
                fresh.stream = Some((stream, false));
                self.put_waiting(fresh, 0).map(|()| true)
            }
        }
    }

    /// A blocked entry can be claimed again. False if it is not blocked any more.
    pub(super) fn unblock(&mut self, place: Place) -> Result<bool, StoreError> {
        let suspect: Option<bool> = self
            .prepare("SELECT suspect FROM waiting WHERE place = ?1 AND state = 3")?
            .query_row([place.0], |row| row.get(0))
            .optional()
            .translated()?;
        if let Some(suspect) = suspect {
            self.set_waiting_state(place, if suspect { 4 } else { 0 })?;
        }
        Ok(suspect.is_some())
    }

    fn forget_if_empty(&mut self, stream: i64) -> Result<(), StoreError> {
        self.begin()?;
        self.execute(
            "DELETE FROM stream WHERE no = ?1 AND NOT EXISTS (SELECT 1 FROM entry WHERE stream = ?1)
             AND NOT EXISTS (SELECT 1 FROM hold WHERE stream = ?1)",
            [stream],
        )?;
        Ok(())
    }

    /// Lets a blocked stream go on without its head.
    pub(super) fn release_followers(&mut self, queue: i64, key: &str) -> Result<bool, StoreError> {
        let stream: Option<i64> = self
            .prepare("SELECT no FROM stream WHERE queue = ?1 AND key = ?2")?
            .query_row(params![queue, key], |row| row.get(0))
            .optional()
            .translated()?;
        let Some(stream) = stream else { return Ok(false) };
        self.begin()?;
        if self.execute("DELETE FROM hold WHERE stream = ?1", [stream])? > 0 {
            self.free_stream(stream)?;
            return Ok(true);
        }
        let Some(first) = self.first_entry(stream)? else { return Ok(false) };
        if first.due_at <= self.now || self.state.leases.contains_key(&first.number) {
            return Ok(false);
        }
        self.defer_entry(stream, first.number)?;
        // Out of the order it can be claimed as soon as it is due.
        self.unblock(first.place)?;
        self.free_stream(stream)?;
        Ok(true)
    }

    /// Removes the hold that a dead letter left in its stream.
    pub(super) fn remove_hold(&mut self, stream: i64, number: u64) -> Result<(), StoreError> {
        self.execute("DELETE FROM hold WHERE stream = ?1 AND number = ?2", params![stream, number as i64])?;
        if sickbay_core::bug!(HoldsLostOnReplay) {
            self.execute("DELETE FROM hold WHERE stream = ?1", [stream])?;
        }
        Ok(())
    }
}

fn read_entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry { number: row.get::<_, i64>(0)? as u64, place: Place(row.get(1)?), due_at: row.get(2)? })
}
