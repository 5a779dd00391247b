//! The history of attempts (B1). The first line of an error is kept with its attempt; what follows it,
//! usually a stack trace, is kept once for all attempts that share it.

use rusqlite::params;
use sickbay_core::quarantine::{Attempt, AttemptEnd};
use sickbay_core::text::cleaned_error;
use sickbay_core::{Failure, StoreError};
use xxhash_rust::xxh3::xxh3_64;

use super::pack::{Entry, append, append_whole, entries};
use super::settle::Ending;
use super::state::Leased;
use super::tx::Tx;
use crate::door;

/// Errors up to this size are kept with their attempt.
const INLINE_BYTES: usize = 400;

/// Where the part that is kept with the attempt ends.
fn split(error: &str) -> (&str, Option<&str>) {
    if error.len() <= INLINE_BYTES {
        return (error, None);
    }
    let line = error.find('\n').unwrap_or(error.len()).min(INLINE_BYTES);
    let at = (0..=line).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    (&error[..at], Some(&error[at..]))
}

impl Tx<'_> {
    /// Adds to the history how an attempt ended.
    pub(super) fn write_attempt(
        &mut self,
        message: &mut Leased,
        end: AttemptEnd,
        failure: Option<&Failure>,
        ending: &Ending,
    ) -> Result<(), StoreError> {
        let cleaned = failure.map(|failure| cleaned_error(&failure.error)).unwrap_or_default();
        let (error, tail) = split(&cleaned);
        let trace = tail.map(|tail| self.share_trace(tail)).transpose()?;
        let output = ending.output.as_deref().map(door::clean_output);
        let code = failure.and_then(|failure| failure.code.as_deref()).map(cleaned_error);
        let schema_path = failure.and_then(|failure| failure.schema_path.as_deref()).map(cleaned_error);
        let entry = Entry {
            number: message.counters.attempt_number(),
            started_at: ending.started_at,
            ended_at: self.now,
            worker: &ending.worker,
            end,
            failure,
            error,
            code: code.as_deref(),
            schema_path: schema_path.as_deref(),
            trace,
            signature: ending.signature,
            ran: ending.ran,
            output: output.as_deref(),
        };
        append(&mut message.history, &entry);
        Ok(())
    }

    /// The history of a message that was elsewhere until now, packed.
    pub(super) fn pack_history(&self, attempts: &[Attempt]) -> Result<Vec<u8>, StoreError> {
        let mut history = Vec::new();
        for attempt in attempts {
            let (error, tail) = split(attempt.failure.as_ref().map_or("", |failure| &failure.error));
            let entry = Entry {
                number: attempt.number,
                started_at: attempt.started_at.millis(),
                ended_at: attempt.ended_at.millis(),
                worker: &attempt.worker,
                end: attempt.end,
                failure: attempt.failure.as_ref(),
                error,
                code: attempt.failure.as_ref().and_then(|failure| failure.code.as_deref()),
                schema_path: attempt.failure.as_ref().and_then(|failure| failure.schema_path.as_deref()),
                trace: tail.map(|tail| self.share_trace(tail)).transpose()?,
                signature: attempt.signature,
                ran: attempt.ran,
                output: attempt.output.as_deref(),
            };
            append_whole(&mut history, &entry);
        }
        Ok(history)
    }

    fn share_trace(&self, text: &str) -> Result<i64, StoreError> {
        let hash = (xxh3_64(text.as_bytes()) & !1) as i64;
        self.execute(
            "INSERT INTO trace VALUES (?1, 1, ?2) ON CONFLICT (hash) DO UPDATE SET uses = uses + 1",
            params![hash, text],
        )?;
        Ok(hash)
    }

    /// Lets go of what the history of a message that is gone for good shares with others.
    pub(super) fn drop_history(&self, number: u64, history: &[u8]) -> Result<(), StoreError> {
        for hash in entries(history).into_iter().filter_map(|(_, trace)| trace) {
            self.execute("UPDATE trace SET uses = uses - 1 WHERE hash = ?1", [hash])?;
            self.execute("DELETE FROM trace WHERE hash = ?1 AND uses <= 0", [hash])?;
        }
        self.execute("DELETE FROM original WHERE message = ?1", [number as i64])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_long_error_is_split_after_its_first_line_and_nothing_is_lost() {
        let trace = format!("boom: order 7\n{}", "  at f()\n".repeat(100));
        assert_eq!(split(&trace), ("boom: order 7", Some(&trace[13..])));
        assert_eq!(split("short\nbut two lines"), ("short\nbut two lines", None));
        let wide = "ü".repeat(1000);
        let (head, tail) = split(&wide);
        assert_eq!(format!("{head}{}", tail.unwrap()), wide);
    }
}
