//! Messages come in.

use std::collections::HashMap;
use std::sync::LazyLock;

use rusqlite::params;
use sickbay_core::port::{Adoption, Pushed};
use sickbay_core::{Counters, Decision, MessageId, NewMessage, StoreError, bug};

use super::failure::Translate;
use super::place::{Band, NUMBERS_MAX, Place};
use super::row::MessageRow;
use super::state::Leased;
use super::tx::Tx;
use crate::pack::pack_headers;

pub(super) const INSERT_MESSAGE: &str =
    "INSERT INTO message (place, type, pushed_at, deadline_at, stream, key, headers, checksum, payload)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// How many rows one statement writes.
const ROWS_AT_ONCE: usize = 10;

static INSERT_SEVERAL: LazyLock<String> = LazyLock::new(|| {
    let values = ["(?, ?, ?, ?, ?, ?, ?, ?, ?)"; ROWS_AT_ONCE].join(", ");
    let head = "INSERT INTO message (place, type, pushed_at, deadline_at, stream, key, headers, checksum, payload) VALUES";
    format!("{head} {values}")
});

/// Binds the columns of a row after so many parameters.
fn bind_row(statement: &mut rusqlite::Statement<'_>, after: usize, row: &MessageRow) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(after + 1, row.place)?;
    statement.raw_bind_parameter(after + 2, row.type_no)?;
    statement.raw_bind_parameter(after + 3, row.pushed_at)?;
    statement.raw_bind_parameter(after + 4, row.deadline_at)?;
    statement.raw_bind_parameter(after + 5, row.stream)?;
    statement.raw_bind_parameter(after + 6, row.key.as_deref())?;
    statement.raw_bind_parameter(after + 7, row.headers.as_deref())?;
    statement.raw_bind_parameter(after + 8, row.checksum)?;
    statement.raw_bind_parameter(after + 9, &row.payload[..])
}

impl Tx<'_> {
    /// Stores messages; the caller has checked them.
    pub(super) fn push(&mut self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        let queues = self.check(&messages)?;
        self.begin()?;
        let mut rows = Vec::with_capacity(messages.len());
        let mut pushed = Vec::with_capacity(messages.len());
        let mut plain: HashMap<i64, i64> = HashMap::new();
        for (message, queue) in messages.into_iter().zip(queues) {
            if let Some(key) = &message.key
                && let Some(owner) = self.key_owner(queue, key.as_str())?
            {
                self.queue(queue)?.tally().duplicates += 1;
                pushed.push(Pushed::Duplicate(owner));
                continue;
            }
            let row = self.new_row(queue, &message)?;
            let place = Place(row.place);
            *plain.entry(queue).or_default() += 1;
            if row.stream.is_some() || message.delay.as_millis() > 0 || message.stages.bits() != 0 {
                self.park_new(place, &row, &message)?;
            } else {
                self.queue(queue)?.band_of(place).last = place.0;
            }
            pushed.push(Pushed::New(self.remember_key(queue, &message, place)?));
            rows.push(row);
        }
        self.insert_rows(&rows)?;
        for (queue, count) in plain {
            let tally = self.queue(queue)?.tally();
            tally.pushed += count;
            tally.live += count;
        }
        Ok(pushed)
    }

    /// Writes message rows, several by one statement: the cursor then stays where the next one goes.
    pub(super) fn insert_rows(&self, rows: &[MessageRow]) -> Result<(), StoreError> {
        let mut parts = rows.chunks_exact(ROWS_AT_ONCE);
        if rows.len() >= ROWS_AT_ONCE {
            let mut several = self.prepare(&INSERT_SEVERAL)?;
            for part in parts.by_ref() {
                for (at, row) in part.iter().enumerate() {
                    bind_row(&mut several, at * 9, row).translated()?;
                }
                several.raw_execute().translated()?;
            }
        }
        let mut one = self.prepare(INSERT_MESSAGE)?;
        parts.remainder().iter().try_for_each(|row| insert_row(&mut one, row))
    }

    /// Every message is acceptable, or none is stored. Answers the numbers of their queues.
    fn check(&self, messages: &[NewMessage]) -> Result<Vec<i64>, StoreError> {
        let mut queues = Vec::with_capacity(messages.len());
        for message in messages {
            self.limits.check(message)?;
            queues.push(self.queue_no(&message.queue)?);
        }
        Ok(queues)
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        let number = self.state.last_number + 1;
        if number > NUMBERS_MAX {
            return Err(super::failure::numbers_spent());
        }
        self.state.last_number = number;
        Ok(number)
    }

    fn new_row(&mut self, queue: i64, message: &NewMessage) -> Result<MessageRow, StoreError> {
        let number = self.next_number()?;
        let band = Band::new(queue, message.priority);
        let parked = message.stream.is_some() || message.delay.as_millis() > 0 || message.stages.bits() != 0;
        let place = if parked { Place::parked(band, number) } else { Place::fresh(band, number) };
        let mut row = MessageRow {
            place: place.0,
            type_no: message.message_type.as_ref().map(|name| self.type_no(name)).transpose()?,
            pushed_at: self.now,
            deadline_at: message.deadline.map(|deadline| self.after(deadline)),
            stream: message.stream.as_ref().map(|key| self.stream_no(queue, key.as_str())).transpose()?,
            key: message.key.as_ref().map(|key| key.as_str().to_owned()),
            headers: pack_headers(&message.headers),
            checksum: 0,
            payload: message.payload.clone(),
        };
        if bug!(PayloadCutAtNul)
            && let Some(end) = row.payload.iter().position(|byte| *byte == 0)
        {
            row.payload.truncate(end);
        }
        row.checksum = row.expected_checksum(number);
        Ok(row)
    }

    /// This long after now.
    pub(super) fn after(&self, duration: std::time::Duration) -> i64 {
        self.now.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }

    /// A message that is not simply next: delayed, or in a stream.
    fn park_new(&mut self, place: Place, row: &MessageRow, message: &NewMessage) -> Result<(), StoreError> {
        let due_at = self.after(message.delay);
        let mut fresh = Leased::fresh(place, due_at, row.type_no);
        fresh.stages = message.stages;
        let Some(stream) = row.stream else {
            return self.put_waiting(fresh, 0);
        };
        fresh.stream = Some((stream, false));
        if self.join_stream(stream, place, due_at)? {
            self.put_waiting(fresh, 0)
        } else if message.delay.as_millis() > 0 || message.stages.bits() != 0 {
            self.put_waiting(fresh, 3)
        } else {
            Ok(())
        }
    }

    fn remember_key(
        &mut self,
        queue: i64,
        message: &NewMessage,
        place: Place,
    ) -> Result<MessageId, StoreError> {
        if let Some(key) = &message.key {
            self.own_key(queue, key.as_str(), place.number())?;
        }
        place.id().ok_or_else(super::failure::numbers_spent)
    }

    /// Takes failed messages of a broker in.
    pub(super) fn adopt(&mut self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        let mut answers = Vec::with_capacity(adoptions.len());
        for adoption in &adoptions {
            self.limits.check(&adoption.message)?;
            self.queue_no(&adoption.message.queue)?;
        }
        self.begin()?;
        for adoption in adoptions {
            answers.push(self.adopt_one(adoption)?);
        }
        Ok(answers)
    }

    fn adopt_one(&mut self, adoption: Adoption) -> Result<Pushed, StoreError> {
        use rusqlite::OptionalExtension;
        let queue = self.queue_no(&adoption.message.queue)?;
        let known: Option<i64> = self
            .prepare("SELECT number FROM origin WHERE queue = ?1 AND origin = ?2 AND adopted_at > ?3")?
            .query_row(params![queue, adoption.origin, self.origin_horizon()], |row| row.get(0))
            .optional()
            .translated()?;
        if let Some(id) = known
            .filter(|_| !bug!(DuplicateOriginAdopted))
            .and_then(|number| MessageId::from_number(number as u64))
        {
            self.queue(queue)?.tally().duplicates += 1;
            return Ok(Pushed::Duplicate(id));
        }
        if let Some(key) = &adoption.message.key
            && let Some(owner) = self.key_owner(queue, key.as_str())?
        {
            self.queue(queue)?.tally().duplicates += 1;
            return Ok(Pushed::Duplicate(owner));
        }
        let message =
            NewMessage { stages: adoption.stages, delay: std::time::Duration::ZERO, ..adoption.message };
        let mut row = self.new_row(queue, &message)?;
        let number = Place(row.place).number();
        let place = Place::parked(Place(row.place).band(), number);
        row.place = place.0;
        insert_row(&mut self.prepare(INSERT_MESSAGE)?, &row)?;
        let tally = self.queue(queue)?.tally();
        tally.pushed += 1;
        tally.live += 1;
        self.execute(
            "INSERT OR REPLACE INTO origin VALUES (?1, ?2, ?3, ?4)",
            params![queue, adoption.origin, number as i64, self.now],
        )?;
        self.remember_key(queue, &message, place)?;
        let counters = Counters { deliveries: adoption.counters.deliveries.max(1), ..adoption.counters };
        let mut lease =
            Leased { counters, stages: adoption.stages, ..Leased::fresh(place, self.now, row.type_no) };
        if let Some(stream) = row.stream {
            self.join_stream(stream, place, self.now)?;
            lease.stream = Some((stream, false));
        }
        lease.keyed = row.key.is_some();
        lease.payload_bytes = row.payload.len() as u64;
        self.settle_adopted(
            lease,
            &adoption.worker,
            adoption.started_at.millis(),
            adoption.decision,
            adoption.signature,
        )?;
        Ok(Pushed::New(place.id().ok_or_else(super::failure::numbers_spent)?))
    }

    /// Carries out the decision that came with an adopted message.
    fn settle_adopted(
        &mut self,
        lease: Leased,
        worker: &str,
        started_at: i64,
        decision: Decision,
        signature: Option<sickbay_core::signature::Signature>,
    ) -> Result<(), StoreError> {
        let ending = super::settle::Ending {
            worker: worker.into(),
            started_at,
            signature,
            ..super::settle::Ending::default()
        };
        self.queue(lease.place.queue())?.tally().active += 1;
        let stream = lease.stream;
        self.carry_out(lease, decision, ending)?;
        match stream {
            Some((stream, _)) => self.free_stream(stream),
            None => Ok(()),
        }
    }
}

impl Leased {
    /// What is known of a message that nobody has touched.
    pub(super) fn fresh(place: Place, due_at: i64, type_no: Option<i64>) -> Self {
        Self {
            place,
            claim: 0,
            last: None,
            until: 0,
            due_at,
            counters: Counters::default(),
            stages: sickbay_core::Stages::NONE,
            cause: None,
            suspect: false,
            in_waiting: false,
            in_memory: false,
            history: Vec::new(),
            stream: None,
            keyed: false,
            type_no,
            first_failed_at: None,
            pushed_at: due_at,
            payload_bytes: 0,
            row: None,
        }
    }
}

pub(super) fn insert_row(
    statement: &mut rusqlite::CachedStatement<'_>,
    row: &MessageRow,
) -> Result<(), StoreError> {
    statement
        .execute(params![
            row.place,
            row.type_no,
            row.pushed_at,
            row.deadline_at,
            row.stream,
            row.key,
            row.headers,
            row.checksum,
            &row.payload[..]
        ])
        .translated()?;
    Ok(())
}
