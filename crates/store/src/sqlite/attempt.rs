//! The history of attempts (B1). The first line of an error is kept with its attempt; what follows it,
//! usually a stack trace, is kept once for all attempts that share it.

use rusqlite::params;
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::text::{clean_error, clean_output};
use sickbay_core::{Failure, StoreError};
use xxhash_rust::xxh3::xxh3_64;

use super::failure::Translate;
use super::settle::Ending;
use super::state::Leased;
use super::tx::Tx;

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

pub(super) const fn end_word(end: AttemptEnd) -> &'static str {
    match end {
        AttemptEnd::Failed => "failed",
        AttemptEnd::Quarantined => "quarantined",
        AttemptEnd::Crashed => "crashed",
        AttemptEnd::LeaseExpired => "lease_expired",
        AttemptEnd::Released => "released",
        AttemptEnd::Replayed => "replayed",
    }
}

impl Tx<'_> {
    /// Writes down how an attempt ended.
    pub(super) fn write_attempt(
        &mut self,
        message: &mut Leased,
        end: AttemptEnd,
        failure: Option<&Failure>,
        ending: &Ending,
    ) -> Result<(), StoreError> {
        message.history += 1;
        let error = failure.map(|failure| clean_error(&failure.error));
        let (head, trace) = match error.as_deref().map(split) {
            Some((head, tail)) => (Some(head), tail.map(|tail| self.share_trace(tail)).transpose()?),
            None => (None, None),
        };
        self.execute(
            "INSERT INTO attempt (message, ordinal, number, started_at, ended_at, worker, end, kind, reason, error, trace,
             code, retry_after_ms, schema_path, signature, ran_us, output)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                message.place.number() as i64,
                message.history,
                message.counters.attempt_number(),
                ending.started_at,
                self.now,
                ending.worker,
                end_word(end),
                failure.map(|failure| failure.kind.as_str()),
                failure.map(|failure| failure.reason.as_str()),
                head,
                trace,
                failure.and_then(|failure| failure.code.as_deref().map(clean_error)),
                failure.and_then(|failure| failure.retry_after.map(|wait| wait.as_millis() as i64)),
                failure.and_then(|failure| failure.schema_path.as_deref().map(clean_error)),
                ending.signature.map(|signature| signature.to_bits() as i64),
                ending.ran.map(|ran| ran.as_micros() as i64),
                ending.output.as_deref().map(|output| clean_output(output.as_bytes())),
            ],
        )?;
        Ok(())
    }

    fn share_trace(&self, text: &str) -> Result<i64, StoreError> {
        let hash = xxh3_64(text.as_bytes()) as i64;
        self.execute(
            "INSERT INTO trace VALUES (?1, 1, ?2) ON CONFLICT (hash) DO UPDATE SET uses = uses + 1",
            params![hash, text],
        )?;
        Ok(hash)
    }

    /// Removes the history of a message that is gone for good.
    pub(super) fn drop_history(&self, number: u64) -> Result<(), StoreError> {
        let mut gone = self.prepare("DELETE FROM attempt WHERE message = ?1 RETURNING trace")?;
        let traces = gone.query_map([number as i64], |row| row.get::<_, Option<i64>>(0)).translated()?;
        let traces: Vec<Option<i64>> = traces.collect::<rusqlite::Result<_>>().translated()?;
        for hash in traces.into_iter().flatten() {
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
