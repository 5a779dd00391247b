//! Completed messages, where their queue keeps them (contract 32).

use rusqlite::params;
use sickbay_core::StoreError;

use super::failure::Translate;
use super::pack::pack_facts;
use super::state::Leased;
use super::tx::Tx;

/// How many expired rows are removed at a time.
const EXPIRED_AT_ONCE: u32 = 10_000;

impl Tx<'_> {
    /// Keeps a copy of a message that is being completed, if its queue wants that.
    pub(super) fn keep_completed(&mut self, message: &Leased) -> Result<bool, StoreError> {
        let keep = self.queue(message.place.queue())?.policy.keep_completed;
        if keep.is_zero() {
            return Ok(false);
        }
        let until = self.after(keep);
        self.execute(
            "INSERT OR REPLACE INTO completed SELECT ?2, ?3, ?4, ?5, ?6, ?7, place, type, pushed_at, deadline_at,
             (SELECT s.key FROM stream s WHERE s.no = message.stream), key, headers, checksum, payload
             FROM message WHERE place = ?1",
            params![
                message.place.0,
                message.place.number() as i64,
                until,
                message.counters.deliveries,
                message.counters.failures,
                pack_facts(message),
                (!message.history.is_empty()).then_some(&message.history)
            ],
        )?;
        Ok(true)
    }

    /// Removes what was kept long enough.
    pub(super) fn forget_completed(&mut self) -> Result<(), StoreError> {
        let mut old =
            self.prepare("SELECT number, history FROM completed WHERE expires_at <= ?1 LIMIT ?2")?;
        let rows = old
            .query_map(params![self.now, EXPIRED_AT_ONCE], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Option<Vec<u8>>>(1)?.unwrap_or_default()))
            })
            .translated()?;
        let gone: Vec<(i64, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>().translated()?;
        for (number, history) in gone {
            self.begin()?;
            self.execute("DELETE FROM completed WHERE number = ?1", [number])?;
            self.drop_history(number as u64, &history)?;
        }
        Ok(())
    }
}
