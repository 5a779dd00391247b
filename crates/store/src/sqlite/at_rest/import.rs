//! Records of another store are taken in.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};
use sickbay_core::StoreError;
use sickbay_core::port::{CopyStep, Progress};
use sickbay_core::record::{
    Body, CompletedRecord, Cursor, DeadRecord, KeyRecord, KeyState, OriginRecord, QueueRecord, Record,
    RecordKind, WaitingRecord,
};

use super::{Inner, progress};
use crate::copy;
use crate::door::searched;
use crate::pack::pack_headers;
use crate::sqlite::failure::{Translate, numbers_spent};
use crate::sqlite::load;
use crate::sqlite::pack::pack_facts;
use crate::sqlite::place::{Band, NUMBERS_MAX, Place};
use crate::sqlite::row::MessageRow;
use crate::sqlite::state::Leased;
use crate::sqlite::tx::Tx;

/// How many streams are looked at in one transaction.
const STREAMS_AT_ONCE: u32 = 4000;

/// The last fresh message of each band: its number and when it was pushed.
type Fresh = HashMap<i64, (u64, i64)>;

impl Inner {
    pub(super) fn import(&mut self, records: Vec<Record>, progress: &Progress) -> Result<(), StoreError> {
        self.check_turn(progress.turns)?;
        let text = copy::write(progress)?;
        self.transact(|tx, fresh| {
            let mut rows = Vec::with_capacity(records.len());
            for record in records {
                tx.take_in(record, &mut rows, fresh)?;
            }
            tx.insert_rows(&rows)?;
            tx.write_progress(&text)
        })
    }

    /// Refuses to go on where somebody else did in the meantime.
    fn check_turn(&self, turns: u64) -> Result<(), StoreError> {
        match progress(&self.file.connection)? {
            Some((false, known)) if known.turns + 1 == turns => Ok(()),
            _ => Err(copy::another_copies()),
        }
    }

    pub(super) fn arrange(&mut self, progress: &Progress) -> Result<Progress, StoreError> {
        let CopyStep::Streams(after) = &progress.step else { return Ok(progress.clone()) };
        self.check_turn(progress.turns + 1)?;
        self.transact(|tx, _| {
            let mut statement = tx.prepare("SELECT no FROM stream WHERE no > ?1 ORDER BY no LIMIT ?2")?;
            let rows =
                statement.query_map(params![after.number, STREAMS_AT_ONCE], |row| row.get(0)).translated()?;
            let streams: Vec<i64> = rows.collect::<rusqlite::Result<_>>().translated()?;
            for stream in &streams {
                tx.free_stream(*stream)?;
            }
            let step = match streams.last() {
                Some(last) => CopyStep::Streams(Cursor { number: *last, ..Cursor::start(RecordKind::Queue) }),
                None => CopyStep::Verify,
            };
            let turned = progress.turned(step, 0);
            tx.write_progress(&copy::write(&turned)?)?;
            Ok(turned)
        })
    }

    pub(super) fn complete(&mut self, progress: &Progress) -> Result<(), StoreError> {
        self.check_turn(progress.turns + 1)?;
        let marks = progress.source.marks;
        self.transact(|tx, _| {
            tx.state.last_number = tx.state.last_number.max(marks.last_number);
            tx.state.last_dead = tx.state.last_dead.max(marks.last_dead as i64);
            // Whoever opens the store begins the next epoch.
            tx.state.epoch = tx.state.epoch.max(marks.epoch);
            load::set_meta(tx.connection, "epoch", tx.state.epoch as i64)?;
            tx.execute("UPDATE copy SET complete = 1", [])?;
            Ok(())
        })?;
        if let Some(mark) = &mut self.file.mark {
            mark.sync();
        }
        Ok(())
    }
}

impl Tx<'_> {
    fn write_progress(&self, text: &str) -> Result<(), StoreError> {
        self.execute("UPDATE copy SET progress = ?1", [text]).map(drop)
    }

    fn take_in(
        &mut self,
        record: Record,
        rows: &mut Vec<MessageRow>,
        fresh: &mut Fresh,
    ) -> Result<(), StoreError> {
        match record {
            Record::Queue(queue) => self.take_queue(*queue),
            Record::Gate(gate) => self.set_type_gate(&gate.queue, &gate.message_type, gate.gate),
            Record::Waiting(waiting) => {
                rows.push(self.take_waiting_in(&waiting, fresh)?);
                Ok(())
            }
            Record::Dead(dead) => {
                rows.push(self.take_dead(&dead)?);
                Ok(())
            }
            Record::Completed(completed) => self.take_completed(&completed),
            Record::Key(key) => self.take_key(&key),
            Record::Origin(origin) => self.take_origin(&origin),
        }
    }

    fn take_queue(&mut self, record: QueueRecord) -> Result<(), StoreError> {
        self.define_queue(&record.name, record.policy)?;
        if record.paused {
            self.set_paused(&record.name, true)?;
        }
        let no = self.queue_no(&record.name)?;
        let tally = self.queue(no)?.tally();
        let flow = record.flow;
        (tally.pushed, tally.completed, tally.duplicates) = (flow.pushed, flow.completed, flow.duplicates);
        (tally.failures, tally.quarantined) = (flow.failures, flow.quarantined);
        (tally.replayed, tally.removed) = (flow.replayed, flow.removed);
        Ok(())
    }

    /// The row of a message, and what is known of it beside the row. It lies where no cursor comes.
    fn take_body(&mut self, body: &Body, stream: Option<i64>) -> Result<(MessageRow, Leased), StoreError> {
        let message = &body.message;
        let number = message.id.number();
        if number > NUMBERS_MAX {
            return Err(numbers_spent());
        }
        let place = Place::parked(Band::new(self.queue_no(&message.queue)?, message.priority), number);
        let mut row = MessageRow {
            place: place.0,
            type_no: message.message_type.as_ref().map(|name| self.type_no(name)).transpose()?,
            pushed_at: message.pushed_at.millis(),
            deadline_at: message.deadline_at.map(sickbay_core::Timestamp::millis),
            stream,
            key: message.key.as_ref().map(|key| key.as_str().to_owned()),
            headers: pack_headers(&message.headers),
            checksum: 0,
            payload: message.payload.clone(),
        };
        seal(&mut row, number, body.damaged);
        if let Some(original) = &body.original_payload {
            self.execute("INSERT INTO original VALUES (?1, ?2)", params![number as i64, &original[..]])?;
        }
        let mut known = Leased::fresh(place, row.pushed_at, row.type_no);
        (known.counters, known.stages, known.cause) = (body.counters, body.stages, body.cause);
        known.first_failed_at = body.first_failed_at.map(sickbay_core::Timestamp::millis);
        known.history = self.pack_history(&body.history)?;
        Ok((row, known))
    }

    fn stream_of(&mut self, body: &Body) -> Result<Option<i64>, StoreError> {
        let Some(key) = &body.message.stream else { return Ok(None) };
        let queue = self.queue_no(&body.message.queue)?;
        self.stream_no(queue, key.as_str()).map(Some)
    }

    fn take_waiting_in(
        &mut self,
        record: &WaitingRecord,
        fresh: &mut Fresh,
    ) -> Result<MessageRow, StoreError> {
        let stream = self.stream_of(&record.body)?;
        let (mut row, mut known) = self.take_body(&record.body, stream)?;
        (known.due_at, known.suspect) = (record.due_at.millis(), record.suspect);
        self.queue(known.place.queue())?.tally().live += 1;
        let plain = record.body.is_untouched() && !record.suspect && known.due_at == row.pushed_at;
        let number = known.place.number();
        let Some(stream) = stream else {
            if plain && self.is_last(known.place, row.pushed_at, fresh)? {
                row.place = Place::fresh(known.place.band(), number).0;
                return Ok(row);
            }
            self.put_waiting(known, 0)?;
            return Ok(row);
        };
        self.execute(
            "INSERT INTO entry (stream, deferred, number, place, due_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![stream, record.deferred, number as i64, row.place, known.due_at],
        )?;
        known.stream = Some((stream, record.deferred));
        if record.deferred {
            self.put_waiting(known, 0)?;
        } else if !plain {
            self.put_waiting(known, 3)?;
        }
        Ok(row)
    }

    /// True if a message that can be claimed at once comes after all such messages of its band, by its number and by
    /// its time: then it can lie where the cursor finds it in its turn.
    fn is_last(&self, place: Place, pushed_at: i64, fresh: &mut Fresh) -> Result<bool, StoreError> {
        let (band, number) = (place.band(), place.number());
        let known = match fresh.get(&band.0) {
            Some(known) => *known,
            None => self
                .prepare("SELECT place, pushed_at FROM message WHERE place > ?1 AND place <= ?2 ORDER BY place DESC LIMIT 1")?
                .query_row(band.fresh(), |row| Ok((Place(row.get(0)?).number(), row.get(1)?)))
                .optional()
                .translated()?
                .unwrap_or((0, i64::MIN)),
        };
        let is_last = number > known.0 && pushed_at >= known.1;
        fresh.insert(band.0, if is_last { (number, pushed_at) } else { known });
        Ok(is_last)
    }

    fn take_dead(&mut self, record: &DeadRecord) -> Result<MessageRow, StoreError> {
        // A stream that it does not hold need not be known here: its key is in the row of the dead letter.
        let stream = match record.holds_since {
            Some(_) => self.stream_of(&record.body)?,
            None => None,
        };
        let (row, known) = self.take_body(&record.body, stream)?;
        let (queue, number) = (known.place.queue(), known.place.number() as i64);
        let millis = |at: Option<sickbay_core::Timestamp>| at.map(sickbay_core::Timestamp::millis);
        let message = &record.body.message;
        self.execute(
            "INSERT INTO dead (place, queue, type, stream_key, set_aside, kind, reason, signature, error, deliveries,
             failures, facts, history, last_delivery, pushed_at, quarantined_at, payload_bytes, no, discarded_at,
             discarded_why)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
            params![
                row.place,
                queue,
                row.type_no,
                message.stream.as_ref().map(sickbay_core::StreamKey::as_str),
                record.set_aside.as_str(),
                record.kind.as_str(),
                record.reason.as_str(),
                record.signature.to_bits() as i64,
                searched(&record.error),
                known.counters.deliveries,
                known.counters.failures,
                pack_facts(&known),
                known.history,
                record.last_delivery.map(|token| token.to_string()),
                row.pushed_at,
                record.quarantined_at.millis(),
                row.payload.len() as i64,
                record.order as i64,
                millis(record.discarded_at),
                record.discarded_why
            ],
        )?;
        if let (Some(stream), Some(since)) = (stream, record.holds_since) {
            self.execute("INSERT INTO hold VALUES (?1, ?2, ?3)", params![stream, number, since.millis()])?;
        }
        self.state.last_dead = self.state.last_dead.max(record.order as i64);
        let queue = self.queue(queue)?;
        if record.discarded_at.is_some() {
            queue.tally().discarded += 1;
        } else {
            queue.tally().dead += 1;
            queue.count_reason(record.reason.as_str(), 1);
        }
        Ok(row)
    }

    fn take_completed(&mut self, record: &CompletedRecord) -> Result<(), StoreError> {
        let (row, known) = self.take_body(&record.body, None)?;
        self.execute(
            "INSERT INTO completed VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            params![
                known.place.number() as i64,
                record.expires_at.millis(),
                known.counters.deliveries,
                known.counters.failures,
                pack_facts(&known),
                (!known.history.is_empty()).then_some(&known.history),
                row.place,
                row.type_no,
                row.pushed_at,
                row.deadline_at,
                record.body.message.stream.as_ref().map(sickbay_core::StreamKey::as_str),
                row.key,
                row.headers,
                row.checksum,
                &row.payload[..]
            ],
        )?;
        Ok(())
    }

    fn take_key(&self, record: &KeyRecord) -> Result<(), StoreError> {
        let (state, until) = match record.state {
            KeyState::Live => (0, None),
            KeyState::Done { until } => (1, Some(until.millis())),
            KeyState::Dead => (2, None),
        };
        let queue = self.queue_no(&record.queue)?;
        self.execute(
            "INSERT INTO key VALUES (?1, ?2, ?3, ?4, ?5)",
            params![queue, record.key.as_str(), record.owner.number() as i64, state, until],
        )?;
        Ok(())
    }

    fn take_origin(&self, record: &OriginRecord) -> Result<(), StoreError> {
        let queue = self.queue_no(&record.queue)?;
        self.execute(
            "INSERT INTO origin VALUES (?1, ?2, ?3, ?4)",
            params![queue, record.origin, record.id.number() as i64, record.adopted_at.millis()],
        )?;
        Ok(())
    }
}

/// Gives a row its checksum; one whose bytes are damaged gets one that says so.
fn seal(row: &mut MessageRow, number: u64, damaged: bool) {
    let right = row.expected_checksum(number);
    row.checksum = if damaged { !right } else { right };
}
