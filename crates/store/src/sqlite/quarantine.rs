//! Messages are set aside, and come back (contract 23, 24, 26).

use rusqlite::{OptionalExtension, Row, params};
use sickbay_core::decide::SetAside;
use sickbay_core::message::Status;
use sickbay_core::port::{Replay, Replayed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::signature::{Grouping, Signature, Subject};
use sickbay_core::text::cleaned_error;
use sickbay_core::{Cause, Failure, StoreError, Timestamp, bug};

use super::failure::Translate;
use super::pack::{pack_facts, unpack_facts};
use super::place::{Band, Place};
use super::push::{INSERT_MESSAGE, insert_row};
use super::row::MessageRow;
use super::settle::Ending;
use super::state::Leased;
use super::tx::{Tx, at_hand};
use crate::door::{self, Act};

const INSERT_DEAD: &str =
    "INSERT INTO dead (place, queue, type, stream_key, set_aside, kind, reason, signature, error,
    deliveries, failures, facts, history, last_delivery, pushed_at, quarantined_at, payload_bytes, no)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

impl Tx<'_> {
    /// Sets a message that counts as active aside, in the same transaction. Its row stays where it lies.
    pub(super) fn bury(
        &mut self,
        mut message: Leased,
        set_aside: SetAside,
        failure: &Failure,
        mut ending: Ending,
    ) -> Result<(), StoreError> {
        let (queue, number) = (message.place.queue(), message.place.number());
        let signature = match ending.signature {
            Some(signature) => signature,
            None => self.sign(queue, message.type_no, failure)?,
        };
        ending.signature = Some(signature);
        message.first_failed_at.get_or_insert(self.now);
        self.note_delivery(&mut message);
        self.write_attempt(&mut message, AttemptEnd::Quarantined, Some(failure), &ending)?;
        self.insert_dead(&message, set_aside, failure, signature)?;
        self.drop_waiting(&message)?;
        if let Some((stream, _)) = message.stream {
            self.leave_stream(stream, number)?;
        }
        if message.keyed
            && let Some(key) = self.key_of(message.place.0)?
        {
            self.key_dead(queue, &key, number)?;
        }
        if let Some((stream, false)) = message.stream
            && self.holds_stream(queue)?
        {
            self.execute(
                "INSERT OR IGNORE INTO hold VALUES (?1, ?2, ?3)",
                params![stream, number as i64, self.now],
            )?;
        }
        let entry = self.queue(queue)?;
        entry.count_reason(failure.reason.as_str(), 1);
        let tally = entry.tally();
        tally.active -= 1;
        tally.live -= 1;
        tally.dead += 1;
        tally.quarantined += 1;
        tally.failures += i64::from(set_aside != SetAside::Operator);
        Ok(())
    }

    /// What this failure has in common with others, by the queue's own rules.
    fn sign(&mut self, queue: i64, type_no: Option<i64>, failure: &Failure) -> Result<Signature, StoreError> {
        let message_type = type_no.and_then(|no| self.state.type_names.get(&no).cloned());
        let queue = self.queue(queue)?;
        let subject = Subject {
            queue: queue.name.as_str(),
            message_type: message_type.as_ref().map(sickbay_core::MessageType::as_str),
            reason: failure.reason.as_str(),
            text: &failure.error,
            schema_path: failure.schema_path.as_deref(),
        };
        Ok(Grouping::new(&queue.policy.grouping).signature(&subject))
    }

    fn insert_dead(
        &mut self,
        message: &Leased,
        set_aside: SetAside,
        failure: &Failure,
        signature: Signature,
    ) -> Result<(), StoreError> {
        let delivered = message.last.map(|(epoch, claim)| {
            let id = message.place.id().map(|id| id.to_string()).unwrap_or_default();
            format!("{epoch}.{claim}.{id}")
        });
        let stream_key = message.stream.map(|(no, _)| self.stream_key(no)).transpose()?.flatten();
        let error = cleaned_error(&failure.error);
        self.state.last_dead += 1;
        let statement = at_hand(&mut self.hot.insert_dead, self.connection, INSERT_DEAD)?;
        let values = params![
            message.place.0,
            message.place.queue(),
            message.type_no,
            stream_key.map(|key| key.as_str().to_owned()),
            set_aside.as_str(),
            failure.kind.as_str(),
            failure.reason.as_str(),
            signature.to_bits() as i64,
            door::searched(&error),
            message.counters.deliveries,
            message.counters.failures,
            pack_facts(message),
            message.history,
            delivered,
            message.pushed_at,
            self.now,
            message.payload_bytes,
            self.state.last_dead
        ];
        statement.execute(values).translated()?;
        Ok(())
    }

    /// Sends dead letters back.
    pub(super) fn replay(&mut self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        let mut targets = Vec::with_capacity(replays.len());
        for replay in &replays {
            targets.push(replay.queue.as_ref().map(|queue| self.queue_no(queue)).transpose()?);
            if let Some(payload) = &replay.payload {
                self.limits.check_payload(payload)?;
            }
        }
        self.begin()?;
        let mut answers = Vec::with_capacity(replays.len());
        for (replay, target) in replays.into_iter().zip(targets) {
            answers.push(self.replay_one(&replay, target)?);
        }
        Ok(answers)
    }

    fn replay_one(&mut self, replay: &Replay, target: Option<i64>) -> Result<Replayed, StoreError> {
        let number = replay.id.number();
        if let Some(answer) = self.refuses(Act::Replay, number)? {
            return Ok(answer);
        }
        let Some(grave) = self.read_grave(number)? else { return Ok(Replayed::NotFound) };
        let queue = target.unwrap_or(grave.queue);
        let row = self.read_row(grave.message.place)?;
        if row.expected_checksum(number) != row.checksum {
            return Ok(Replayed::Refused { why: door::DAMAGED.to_owned() });
        }
        let place = self.unearth(&grave, &row, queue, replay)?;
        let mut message = Leased {
            counters: grave.message.counters.replayed(),
            cause: Some(Cause::Replayed),
            due_at: self.now,
            in_waiting: true,
            place,
            ..grave.message.clone()
        };
        if bug!(HistoryDropped) {
            message.history.clear();
        }
        let ending = Ending { started_at: self.now, ..Ending::default() };
        self.write_attempt(&mut message, AttemptEnd::Replayed, None, &ending)?;
        let state = match self.rejoin_stream(&grave, queue, place)? {
            None => 0,
            Some(first) => 3 * i64::from(!first),
        };
        self.put_waiting(message, state)?;
        self.count_replay(grave.queue, queue)?;
        self.queue(grave.queue)?.count_reason(&grave.reason, -1);
        Ok(Replayed::Done)
    }

    fn count_replay(&mut self, from: i64, to: i64) -> Result<(), StoreError> {
        let tally = self.queue(from)?.tally();
        tally.dead -= 1;
        tally.replayed += 1;
        if from != to {
            tally.pushed -= 1;
        }
        let tally = self.queue(to)?.tally();
        tally.live += 1;
        if from != to {
            tally.pushed += 1;
        }
        Ok(())
    }

    /// Takes a message out of quarantine. Its row is written again only if something about it changes.
    fn unearth(
        &mut self,
        grave: &Grave,
        row: &MessageRow,
        queue: i64,
        replay: &Replay,
    ) -> Result<Place, StoreError> {
        let number = replay.id.number();
        let mut changed = row.clone();
        if queue != grave.queue {
            changed.place = Place::parked(Band::new(queue, grave.message.place.priority()), number).0;
        }
        if let Some(key) = &grave.stream_key {
            changed.stream = Some(self.stream_no(queue, key)?);
        }
        if let Some(payload) = &replay.payload {
            if !bug!(OriginalLost) {
                self.execute(
                    "INSERT OR IGNORE INTO original VALUES (?1, ?2)",
                    params![number as i64, &row.payload[..]],
                )?;
            }
            changed.payload = payload.clone();
        }
        changed.checksum = changed.expected_checksum(number);
        if let Some(key) = &row.key {
            if queue != grave.queue {
                // It is left behind, and not waiting for the message to come back.
                self.forget_key(grave.queue, key, number)?;
            }
            self.key_revived(queue, key, number)?;
        }
        self.execute("DELETE FROM dead WHERE place = ?1", [row.place])?;
        if (changed.place, changed.checksum) != (row.place, row.checksum) {
            self.execute("DELETE FROM message WHERE place = ?1", [row.place])?;
            insert_row(&mut self.prepare(INSERT_MESSAGE)?, &changed)?;
        }
        Ok(Place(changed.place))
    }

    /// Back to its place in its stream; true if it is the first that may be claimed.
    fn rejoin_stream(&mut self, grave: &Grave, queue: i64, place: Place) -> Result<Option<bool>, StoreError> {
        let Some(key) = &grave.stream_key else { return Ok(None) };
        if let Some(old) = grave.stream {
            self.remove_hold(old, place.number())?;
            if queue != grave.queue {
                self.free_stream(old)?;
            }
        }
        let stream = self.stream_no(queue, key)?;
        Ok(Some(self.join_stream(stream, place, self.now)?))
    }

    /// Which road a message is on; `None` if there is no such message.
    pub(super) fn status(&self, number: u64) -> Result<Option<Status>, StoreError> {
        if self.state.leases.contains_key(&number) {
            return Ok(Some(Status::Active));
        }
        let Some(place) = self.locate(number)? else { return Ok(None) };
        let discarded: Option<bool> = self
            .prepare("SELECT discarded_at IS NOT NULL FROM dead WHERE place = ?1")?
            .query_row([place.0], |row| row.get(0))
            .optional()
            .translated()?;
        if let Some(discarded) = discarded {
            return Ok(Some(if discarded { Status::Discarded } else { Status::Dead }));
        }
        let (due_at, now) = match self.read_live(place)? {
            Some((message, _)) => {
                ((message.counters.failures, Timestamp::from_millis(message.due_at)), self.now)
            }
            None => return Ok(None),
        };
        Ok(Some(door::waiting_status(due_at.0, due_at.1, Timestamp::from_millis(now))))
    }

    /// Why an act on a message is not possible; `None` if it is.
    pub(super) fn refuses(&self, act: Act, number: u64) -> Result<Option<Replayed>, StoreError> {
        Ok(match self.status(number)? {
            None => Some(Replayed::NotFound),
            Some(status) => act.refusal(status).map(|why| Replayed::Refused { why }),
        })
    }

    pub(super) fn read_grave(&self, number: u64) -> Result<Option<Grave>, StoreError> {
        let Some(place) = self.locate(number)? else { return Ok(None) };
        self.prepare(
            "SELECT d.queue, d.type, d.stream_key, d.deliveries, d.failures, d.facts, d.history, d.pushed_at, d.payload_bytes,
             d.reason, m.stream FROM dead d JOIN message m ON m.place = d.place WHERE d.place = ?1",
        )?
        .query_row([place.0], |row| read_grave(row, place))
        .optional()
        .translated()
    }
}

/// A dead letter as its row has it.
pub(super) struct Grave {
    pub(super) queue: i64,
    pub(super) stream_key: Option<String>,
    pub(super) stream: Option<i64>,
    pub(super) reason: String,
    pub(super) message: Leased,
}

fn read_grave(row: &Row<'_>, place: Place) -> rusqlite::Result<Grave> {
    let mut message = Leased::fresh(place, 0, row.get(1)?);
    unpack_facts(row.get_ref(5)?.as_blob()?, &mut message);
    message.counters.deliveries = row.get(3)?;
    message.counters.failures = row.get(4)?;
    message.history = row.get::<_, Option<Vec<u8>>>(6)?.unwrap_or_default();
    message.pushed_at = row.get(7)?;
    message.payload_bytes = row.get(8)?;
    Ok(Grave {
        queue: row.get(0)?,
        stream_key: row.get(2)?,
        stream: row.get(10)?,
        reason: row.get(9)?,
        message,
    })
}
