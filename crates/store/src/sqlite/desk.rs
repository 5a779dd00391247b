//! Operators' acts (contract 25–31).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use sickbay_core::decide::SetAside;
use sickbay_core::port::{ProcessId, Replayed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    ErrorKind, Failure, MessageId, MessageType, QueueName, QueuePolicy, StoreError, Timestamp,
};

use super::failure::Translate;
use super::load::load_bands;
use super::place::{Place, QUEUES_MAX};
use super::settle::Ending;
use super::state::{Queue, Tally};
use super::tx::Tx;
use crate::door::{self, Act};

/// How many held messages of a type come back in one turn of the writer.
const REOPENED_AT_ONCE: i64 = 5000;

impl Tx<'_> {
    pub(super) fn define_queue(&mut self, name: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        door::check_policy(&policy)?;
        let text = serde_json::to_string(&policy).map_err(|error| {
            StoreError::new(ErrorKind::Invalid, "SB0017", format!("the policy of {name}: {error}"))
        })?;
        self.begin()?;
        self.state.policies_changed = true;
        if let Some(no) = self.state.queue_by_name.get(name).copied() {
            self.execute("UPDATE queue SET policy = ?2 WHERE no = ?1", params![no, text])?;
            self.queue(no)?.policy = Arc::new(policy);
            return Ok(());
        }
        let no: i64 = self
            .prepare("INSERT INTO queue (name, policy) VALUES (?1, ?2) RETURNING no")?
            .query_row(params![name.as_str(), text], |row| row.get(0))
            .translated()?;
        if no > QUEUES_MAX {
            return Err(StoreError::new(
                ErrorKind::Full,
                "SB0004",
                format!("a store has at most {QUEUES_MAX} queues"),
            ));
        }
        self.execute("INSERT INTO tally VALUES (?1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)", [no])?;
        let queue = Queue {
            no,
            name: name.clone(),
            policy: Arc::new(policy),
            paused: false,
            tally: Tally::default(),
            tally_changed: false,
            bands: load_bands(self.connection, no)?,
            gates: Default::default(),
            reasons: Default::default(),
            reasons_changed: false,
            ready: Default::default(),
            suspects: BTreeSet::new(),
        };
        self.state.queues.insert(no, queue);
        self.state.queue_by_name.insert(name.clone(), no);
        Ok(())
    }

    pub(super) fn set_paused(&mut self, name: &QueueName, paused: bool) -> Result<(), StoreError> {
        let no = self.queue_no(name)?;
        self.begin()?;
        self.execute("UPDATE queue SET paused = ?2 WHERE no = ?1", params![no, paused])?;
        self.queue(no)?.paused = paused;
        Ok(())
    }

    pub(super) fn set_type_gate(
        &mut self,
        name: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let queue = self.queue_no(name)?;
        self.begin()?;
        let type_no = self.type_no(message_type)?;
        let (code, left) = match gate {
            TypeGate::Open => {
                self.execute(
                    "DELETE FROM type_gate WHERE queue = ?1 AND type = ?2",
                    params![queue, type_no],
                )?;
                self.queue(queue)?.gates.remove(&type_no);
                self.state.reopening.insert((queue, type_no));
                return Ok(());
            }
            TypeGate::Paused => (1, 0),
            TypeGate::Tripped => (2, 0),
            TypeGate::Probing { left } => (3, left),
        };
        self.execute(
            "INSERT OR REPLACE INTO type_gate VALUES (?1, ?2, ?3, ?4)",
            params![queue, type_no, code, left],
        )?;
        self.state.reopening.remove(&(queue, type_no));
        self.queue(queue)?.gates.insert(type_no, gate);
        if left > 0 {
            self.reopen(queue, type_no, i64::from(left), self.now)?;
        }
        Ok(())
    }

    /// While probes are left, what is due of their types comes back, as many as may pass: those that came
    /// back before may have been taken out by hand, or wait for their stream.
    pub(super) fn reopen_probed(&mut self, queue: i64) -> Result<bool, StoreError> {
        let mut back = 0;
        for (type_no, left) in self.probed(queue)? {
            back += self.reopen(queue, type_no, i64::from(left), self.now)?;
        }
        Ok(back > 0)
    }

    /// The same for suspects alone, for which others wait.
    pub(super) fn reopen_probed_suspects(&mut self, queue: i64) -> Result<bool, StoreError> {
        let mut back = 0;
        for (type_no, left) in self.probed(queue)? {
            back += self.reopen_suspects(queue, type_no, i64::from(left), self.now)?;
        }
        Ok(back > 0)
    }

    /// Types of which probes are left, and how many.
    fn probed(&mut self, queue: i64) -> Result<Vec<(i64, u32)>, StoreError> {
        let probes = |(no, gate): (&i64, &TypeGate)| match gate {
            TypeGate::Probing { left: left @ 1.. } => Some((*no, *left)),
            _ => None,
        };
        Ok(self.queue(queue)?.gates.iter().filter_map(probes).collect())
    }

    /// Messages whose type may be delivered again come back, a part at a time.
    pub(super) fn reopen_some(&mut self) -> Result<(), StoreError> {
        if let Some((queue, type_no)) = self.state.reopening.first().copied() {
            self.begin()?;
            if self.reopen(queue, type_no, REOPENED_AT_ONCE, i64::MAX)? < REOPENED_AT_ONCE {
                self.state.reopening.remove(&(queue, type_no));
            }
        }
        Ok(())
    }

    /// Suspects come back first: whoever works on the queue waits for them.
    fn reopen(&mut self, queue: i64, type_no: i64, count: i64, due_until: i64) -> Result<i64, StoreError> {
        let suspects = self.reopen_suspects(queue, type_no, count, due_until)?;
        let others = self.held_back(queue, type_no, false, count - suspects, due_until)?;
        for place in &others {
            self.begin()?;
            self.set_waiting_state(*place, 0)?;
        }
        Ok(suspects + others.len() as i64)
    }

    fn reopen_suspects(
        &mut self,
        queue: i64,
        type_no: i64,
        count: i64,
        until: i64,
    ) -> Result<i64, StoreError> {
        let suspects = self.held_back(queue, type_no, true, count, until)?;
        for place in &suspects {
            self.begin()?;
            self.set_waiting_state(*place, 4)?;
        }
        Ok(suspects.len() as i64)
    }

    /// Messages that a gate holds back, the first due first.
    fn held_back(
        &self,
        queue: i64,
        type_no: i64,
        suspects: bool,
        count: i64,
        due_until: i64,
    ) -> Result<Vec<Place>, StoreError> {
        // Each of the two has an index of its own.
        let which = if suspects { "suspect = 1" } else { "suspect = 0" };
        let mut statement = self.prepare(&format!(
            "SELECT place FROM waiting WHERE state = 2 AND {which} AND band >> 4 = ?1 AND type = ?2 AND due_at <= ?4
             ORDER BY due_at LIMIT ?3"
        ))?;
        let rows = statement
            .query_map(params![queue, type_no, count, due_until], |row| row.get(0).map(Place))
            .translated()?;
        rows.collect::<rusqlite::Result<_>>().translated()
    }

    pub(super) fn dead_letter(&mut self, ids: &[MessageId], why: &str) -> Result<Vec<Replayed>, StoreError> {
        self.begin()?;
        let failure = door::operator(why);
        ids.iter().map(|id| self.dead_letter_one(id.number(), &failure)).collect()
    }

    fn dead_letter_one(&mut self, number: u64, failure: &Failure) -> Result<Replayed, StoreError> {
        if let Some((message, ending)) = self.take_lease(number) {
            let stream = message.stream;
            self.bury(message, SetAside::Operator, failure, ending)?;
            if let Some((stream, _)) = stream {
                self.unlease_stream(stream)?;
            }
            return Ok(Replayed::Done);
        }
        if let Some(answer) = self.refuses(Act::DeadLetter, number)? {
            return Ok(answer);
        }
        let Some(place) = self.locate(number)? else { return Ok(Replayed::NotFound) };
        let Some((mut message, _)) = self.take_waiting_out(place)? else { return Ok(Replayed::NotFound) };
        if !message.in_waiting && message.stream.is_none() {
            // A cursor would come upon it: it moves to where none goes.
            message.place = Place::parked(place.band(), number);
            self.execute(
                "UPDATE message SET place = ?2 WHERE place = ?1",
                params![place.0, message.place.0],
            )?;
        }
        let stream = message.stream;
        self.queue(place.queue())?.tally().active += 1;
        let ending = Ending { started_at: self.now, ..Ending::default() };
        self.bury(message, SetAside::Operator, failure, ending)?;
        if let Some((stream, _)) = stream {
            self.free_stream(stream)?;
        }
        Ok(Replayed::Done)
    }

    /// What is known of a waiting message, taken away from the claims. A fresh one that leaves from
    /// the middle leaves nothing that a cursor could miss.
    fn take_waiting_out(&mut self, place: Place) -> Result<Option<(super::state::Leased, i64)>, StoreError> {
        let found = self.read_live(place)?;
        if let Some((message, _)) = &found {
            self.forget_candidate(place, message.due_at)?;
        }
        Ok(found)
    }

    pub(super) fn discard(&mut self, ids: &[MessageId], why: &str) -> Result<Vec<Replayed>, StoreError> {
        self.begin()?;
        let why = sickbay_core::text::cleaned_error(why);
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let number = id.number();
            if let Some(answer) = self.refuses(Act::Discard, number)? {
                answers.push(answer);
                continue;
            }
            let Some(grave) = self.read_grave(number)? else { continue };
            self.execute(
                "UPDATE dead SET discarded_at = ?2, discarded_why = ?3 WHERE place = ?1",
                params![grave.message.place.0, self.now, why],
            )?;
            if let Some(stream) = grave.stream {
                self.remove_hold(stream, number)?;
                self.free_stream(stream)?;
            }
            self.queue(grave.queue)?.count_reason(&grave.reason, -1);
            let tally = self.queue(grave.queue)?.tally();
            tally.dead -= 1;
            tally.discarded += 1;
            answers.push(Replayed::Done);
        }
        Ok(answers)
    }

    pub(super) fn restore(&mut self, ids: &[MessageId]) -> Result<Vec<Replayed>, StoreError> {
        self.begin()?;
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let number = id.number();
            if let Some(answer) = self.refuses(Act::Restore, number)? {
                answers.push(answer);
                continue;
            }
            let Some(grave) = self.read_grave(number)? else { continue };
            self.execute(
                "UPDATE dead SET discarded_at = NULL, discarded_why = NULL WHERE place = ?1",
                [grave.message.place.0],
            )?;
            self.queue(grave.queue)?.count_reason(&grave.reason, 1);
            let tally = self.queue(grave.queue)?.tally();
            tally.dead += 1;
            tally.discarded -= 1;
            answers.push(Replayed::Done);
        }
        Ok(answers)
    }

    pub(super) fn purge(
        &mut self,
        name: &QueueName,
        age: Duration,
        rows_max: u32,
    ) -> Result<u64, StoreError> {
        let queue = self.queue_no(name)?;
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let until = if sickbay_core::bug!(PurgedTooYoung) { self.now } else { self.now.saturating_sub(age) };
        self.begin()?;
        let mut statement = self.prepare(
            "SELECT d.place, m.key, d.history FROM dead d JOIN message m ON m.place = d.place
             WHERE d.queue = ?1 AND d.discarded_at IS NOT NULL AND d.discarded_at <= ?3 ORDER BY d.discarded_at, d.no LIMIT ?2",
        )?;
        let rows = statement
            .query_map(params![queue, rows_max, until], |row| {
                let history: Option<Vec<u8>> = row.get(2)?;
                Ok((Place(row.get(0)?), row.get::<_, Option<String>>(1)?, history.unwrap_or_default()))
            })
            .translated()?;
        let gone: Vec<_> = rows.collect::<rusqlite::Result<_>>().translated()?;
        for (place, key, history) in &gone {
            self.execute("DELETE FROM dead WHERE place = ?1", [place.0])?;
            self.execute("DELETE FROM message WHERE place = ?1", [place.0])?;
            self.drop_history(place.number(), history)?;
            if let Some(key) = key {
                self.forget_key(queue, key, place.number())?;
            }
        }
        let count = gone.len() as i64;
        let tally = self.queue(queue)?.tally();
        tally.discarded -= count;
        tally.removed += count;
        Ok(count as u64)
    }

    pub(super) fn cancel(&mut self, ids: &[MessageId]) -> Result<Vec<Replayed>, StoreError> {
        self.begin()?;
        ids.iter().map(|id| self.cancel_one(id.number())).collect()
    }

    fn cancel_one(&mut self, number: u64) -> Result<Replayed, StoreError> {
        if let Some(answer) = self.refuses(Act::Cancel, number)? {
            return Ok(answer);
        }
        let Some(place) = self.locate(number)? else { return Ok(Replayed::NotFound) };
        let Some((message, _)) = self.take_waiting_out(place)? else { return Ok(Replayed::NotFound) };
        if let Some(key) = self.key_of(place.0)? {
            self.forget_key(place.queue(), &key, number)?;
        }
        self.remove_live(&message)?;
        self.drop_history(number, &message.history)?;
        if let Some((stream, _)) = message.stream {
            self.free_stream(stream)?;
        }
        let tally = self.queue(place.queue())?.tally();
        tally.live -= 1;
        tally.removed += 1;
        if sickbay_core::bug!(IdsReused) && self.state.last_number == number {
            self.state.last_number -= 1;
        }
        Ok(Replayed::Done)
    }

    pub(super) fn hasten(&mut self, ids: &[MessageId]) -> Result<Vec<Replayed>, StoreError> {
        self.begin()?;
        ids.iter().map(|id| self.hasten_one(id.number())).collect()
    }

    fn hasten_one(&mut self, number: u64) -> Result<Replayed, StoreError> {
        if let Some(answer) = self.refuses(Act::Hasten, number)? {
            return Ok(answer);
        }
        let Some(place) = self.locate(number)? else { return Ok(Replayed::NotFound) };
        let Some((mut message, state)) = self.take_waiting_out(place)? else { return Ok(Replayed::NotFound) };
        message.due_at = self.now;
        if let Some((stream, _)) = message.stream {
            self.set_entry_due(stream, number, self.now)?;
        }
        self.put_waiting(message, state)?;
        Ok(Replayed::Done)
    }

    pub(super) fn reset_attempts(&mut self, ids: &[MessageId]) -> Result<Vec<Replayed>, StoreError> {
        self.begin()?;
        ids.iter().map(|id| self.reset_one(id.number())).collect()
    }

    fn reset_one(&mut self, number: u64) -> Result<Replayed, StoreError> {
        if let Some(answer) = self.refuses(Act::Reset, number)? {
            return Ok(answer);
        }
        let Some(place) = self.locate(number)? else { return Ok(Replayed::NotFound) };
        let Some((mut message, state)) = self.read_live(place)? else { return Ok(Replayed::NotFound) };
        if message.counters.is_untouched() {
            let due_at = Timestamp::from_millis(message.due_at);
            let status = door::waiting_status(0, due_at, Timestamp::from_millis(self.now));
            return Ok(Replayed::Refused { why: door::nothing_to_reset(status) });
        }
        self.forget_candidate(place, message.due_at)?;
        let ending = Ending { started_at: self.now, ..Ending::default() };
        self.write_attempt(&mut message, AttemptEnd::Reset, None, &ending)?;
        message.counters = message.counters.reset();
        self.put_waiting(message, state)?;
        Ok(Replayed::Done)
    }

    /// Everything a process held becomes suspect (contract 17).
    pub(super) fn process_died(&mut self, process: ProcessId, evidence: &str) -> Result<u64, StoreError> {
        let held = |claim: &u64| self.state.claims.get(claim).is_some_and(|info| info.process == process);
        let mut numbers: Vec<u64> = self
            .state
            .leases
            .iter()
            .filter(|(_, lease)| held(&lease.claim))
            .map(|(number, _)| *number)
            .collect();
        numbers.sort_unstable();
        self.begin()?;
        let alone = numbers.len() == 1 || sickbay_core::bug!(BystandersBlamed);
        for number in &numbers {
            self.crash(*number, alone, evidence)?;
        }
        self.state.processes.remove(&process);
        Ok(numbers.len() as u64)
    }
}
