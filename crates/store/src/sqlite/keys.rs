//! Idempotency keys (contract 4–6).

use rusqlite::{OptionalExtension, params};
use sickbay_core::port::ORIGIN_WINDOW;
use sickbay_core::{MessageId, StoreError};

use super::failure::Translate;
use super::row::MessageRow;
use super::state::Leased;
use super::tx::Tx;

/// How long a message waits whose key is busy.
const KEY_BUSY_MS: i64 = 1000;

const LIVE: i64 = 0;
const DONE: i64 = 1;
const DEAD: i64 = 2;

/// What a message finds when it comes to its key.
enum KeyCheck {
    /// It is the owner, or has just become it.
    Mine,
    /// Another message with this key is done.
    Done,
    /// Another message with this key is on its way.
    Busy,
}

impl Tx<'_> {
    /// The message that stands for this key, if a push of it would be a duplicate.
    pub(super) fn key_owner(&self, queue: i64, key: &str) -> Result<Option<MessageId>, StoreError> {
        let found = self.key_row(queue, key)?;
        Ok(found
            .filter(|(_, state, until)| self.stands(*state, *until))
            .and_then(|(owner, ..)| MessageId::from_number(owner)))
    }

    fn stands(&self, state: i64, done_until: Option<i64>) -> bool {
        state == LIVE || state == DONE && done_until.is_some_and(|until| until > self.now)
    }

    fn key_row(&self, queue: i64, key: &str) -> Result<Option<(u64, i64, Option<i64>)>, StoreError> {
        self.prepare("SELECT owner, state, done_until FROM key WHERE queue = ?1 AND key = ?2")?
            .query_row(params![queue, key], |row| {
                Ok((row.get::<_, i64>(0)? as u64, row.get(1)?, row.get(2)?))
            })
            .optional()
            .translated()
    }

    /// The message owns the key from now on.
    pub(super) fn own_key(&self, queue: i64, key: &str, number: u64) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO key (queue, key, owner, state) VALUES (?1, ?2, ?3, 0)
             ON CONFLICT DO UPDATE SET owner = ?3, state = 0, done_until = NULL",
            params![queue, key, number as i64],
        )?;
        Ok(())
    }

    /// What a message that was here before finds at its key (contract 6).
    fn check_key(&mut self, queue: i64, key: &str, number: u64) -> Result<KeyCheck, StoreError> {
        match self.key_row(queue, key)? {
            Some((owner, state, _)) if owner == number && state == LIVE => Ok(KeyCheck::Mine),
            Some((owner, state, until)) if owner != number && self.stands(state, until) => {
                Ok(if state == DONE { KeyCheck::Done } else { KeyCheck::Busy })
            }
            _ => {
                self.begin()?;
                self.own_key(queue, key, number)?;
                Ok(KeyCheck::Mine)
            }
        }
    }

    /// What a replayed message finds at its key (contract 6).
    pub(super) fn passes_key(&mut self, lease: &Leased, row: &MessageRow) -> Result<bool, StoreError> {
        let Some(key) = row.key.as_deref().filter(|_| lease.counters.replays > 0) else { return Ok(true) };
        let (place, queue) = (lease.place, lease.place.queue());
        match self.check_key(queue, key, place.number())? {
            KeyCheck::Mine => Ok(true),
            KeyCheck::Busy => {
                let due_at = self.now.saturating_add(KEY_BUSY_MS);
                self.put_waiting(Leased { due_at, ..lease.clone() }, 0)?;
                if let Some((stream, _)) = lease.stream {
                    self.set_entry_due(stream, place.number(), due_at)?;
                }
                Ok(false)
            }
            KeyCheck::Done => {
                let tally = self.queue(queue)?.tally();
                tally.active += 1;
                tally.duplicates += 1;
                self.complete(lease)?;
                if let Some((stream, _)) = lease.stream {
                    self.free_stream(stream)?;
                }
                Ok(false)
            }
        }
    }

    /// The owner is done: remember that for the queue's window.
    pub(super) fn key_done(&mut self, queue: i64, key: &str, number: u64) -> Result<(), StoreError> {
        let window = self.queue(queue)?.policy.key_window;
        if window.is_zero() || sickbay_core::bug!(KeyNotMarkedDone) {
            return self.forget_key(queue, key, number);
        }
        let until = self.after(window);
        self.execute(
            "UPDATE key SET state = ?4, done_until = ?5 WHERE queue = ?1 AND key = ?2 AND owner = ?3",
            params![queue, key, number as i64, DONE, until],
        )?;
        Ok(())
    }

    /// The owner is in quarantine: the key is free for another.
    pub(super) fn key_dead(&self, queue: i64, key: &str, number: u64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE key SET state = ?4 WHERE queue = ?1 AND key = ?2 AND owner = ?3",
            params![queue, key, number as i64, DEAD],
        )?;
        Ok(())
    }

    /// The owner came back from quarantine: the key stands again, unless another owns it by now.
    pub(super) fn key_revived(&self, queue: i64, key: &str, number: u64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE key SET state = ?4 WHERE queue = ?1 AND key = ?2 AND owner = ?3",
            params![queue, key, number as i64, LIVE],
        )?;
        Ok(())
    }

    /// The owner is gone.
    pub(super) fn forget_key(&self, queue: i64, key: &str, number: u64) -> Result<(), StoreError> {
        self.execute(
            "DELETE FROM key WHERE queue = ?1 AND key = ?2 AND owner = ?3",
            params![queue, key, number as i64],
        )?;
        Ok(())
    }

    /// Forgets keys whose window has passed, and origins that no broker will send again.
    pub(super) fn forget_old_keys(&mut self) -> Result<(), StoreError> {
        let old = self
            .prepare("SELECT 1 FROM key WHERE state = 1 AND done_until <= ?1 LIMIT 1")?
            .exists([self.now])
            .translated()?;
        if old {
            self.begin()?;
            self.execute(
                "DELETE FROM key WHERE (queue, key) IN
                 (SELECT queue, key FROM key WHERE state = 1 AND done_until <= ?1 LIMIT 10000)",
                [self.now],
            )?;
        }
        let horizon = self.origin_horizon();
        if self
            .prepare("SELECT 1 FROM origin WHERE adopted_at <= ?1 LIMIT 1")?
            .exists([horizon])
            .translated()?
        {
            self.begin()?;
            self.execute(
                "DELETE FROM origin WHERE (queue, origin) IN
                 (SELECT queue, origin FROM origin WHERE adopted_at <= ?1 LIMIT 10000)",
                [horizon],
            )?;
        }
        Ok(())
    }

    /// Origins that were adopted then or before are forgotten.
    pub(super) fn origin_horizon(&self) -> i64 {
        self.now.saturating_sub(ORIGIN_WINDOW.as_millis() as i64)
    }
}
