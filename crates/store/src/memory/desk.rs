//! Operators' acts (rules 24 to 29 and 33).

use std::time::Duration;

use sickbay_core::clock::Timestamp;
use sickbay_core::decide::SetAside;
use sickbay_core::delivery::Cause;
use sickbay_core::port::{Replay, Replayed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::stats::TypeGate;
use sickbay_core::{MessageId, MessageType, QueueName, QueuePolicy, StoreError};

use super::state::{Ending, Place, Record, State};
use crate::door::{self, Act};

impl State {
    pub(super) fn define_queue(&mut self, name: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        door::check_policy(&policy)?;
        self.queues.entry(name.clone()).or_default().policy = policy.into();
        Ok(())
    }

    pub(super) fn set_type_gate(
        &mut self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let gates = &mut self.queue_mut(queue)?.gates;
        match gate {
            TypeGate::Open => gates.remove(message_type),
            closed => gates.insert(message_type.clone(), closed),
        };
        Ok(())
    }

    /// Answers for one message: not found, refused, or done with `act`.
    fn act(&mut self, id: MessageId, act: Act, now: Timestamp, done: impl FnOnce(&mut Self)) -> Replayed {
        let Some(record) = self.messages.get(&id) else { return Replayed::NotFound };
        if let Some(why) = act.refusal(record.status(now)) {
            return Replayed::Refused { why };
        }
        done(self);
        Replayed::Done
    }

    /// Rules 24 and 26.
    pub(super) fn replay(
        &mut self,
        replays: Vec<Replay>,
        now: Timestamp,
    ) -> Result<Vec<Replayed>, StoreError> {
        for replay in &replays {
            replay.queue.as_ref().map(|queue| self.queue(queue)).transpose()?;
            replay.payload.as_ref().map(|payload| self.limits.check_payload(payload)).transpose()?;
        }
        let one = |replay: Replay| {
            let damaged = |record: &Record| matches!(record.place, Place::Dead(_)) && !record.is_intact();
            if self.messages.get(&replay.id).is_some_and(damaged) {
                return Replayed::Refused { why: door::DAMAGED.to_owned() };
            }
            self.act(replay.id, Act::Replay, now, |state| state.replay_one(replay, now))
        };
        Ok(replays.into_iter().map(one).collect())
    }

    fn replay_one(&mut self, replay: Replay, now: Timestamp) {
        let Some((record, queue)) = self.both(replay.id) else { return };
        queue.replayed += 1;
        queue.remove_hold(record);
        record.history.push(door::replayed(record.counters.attempt_number(), now));
        record.counters = record.counters.replayed();
        record.cause = Some(Cause::Replayed);
        record.deferred = false;
        record.due_at = now;
        record.place = Place::Waiting;
        if let Some(payload) = replay.payload
            && payload != record.message.payload
        {
            record.checksum = door::checksum(&payload);
            let before = std::mem::replace(&mut record.message.payload, payload);
            record.original_payload.get_or_insert(before);
        }
        if let Some(target) = replay.queue {
            self.move_to(replay.id, target);
        }
    }

    /// Moves a message into another queue, where it counts as pushed from now on.
    fn move_to(&mut self, id: MessageId, target: QueueName) {
        let Some(mut record) = self.messages.remove(&id) else { return };
        if record.message.queue != target {
            self.disown(&record);
            if let Some(queue) = self.queues.get_mut(&record.message.queue) {
                queue.pushed -= 1;
            }
            if let Some(queue) = self.queues.get_mut(&target) {
                queue.pushed += 1;
            }
            record.message.queue = target;
        }
        self.messages.insert(id, record);
    }

    /// Rule 27.
    pub(super) fn dead_letter(&mut self, ids: Vec<MessageId>, why: &str, now: Timestamp) -> Vec<Replayed> {
        let aside = |id| {
            self.act(id, Act::DeadLetter, now, |state| {
                let ending =
                    Ending { failure: Some(door::operator(why)), ..Ending::new(AttemptEnd::Quarantined) };
                state.set_aside(id, SetAside::Operator, ending, now);
            })
        };
        ids.into_iter().map(aside).collect()
    }

    /// Rules 24 and 28.
    pub(super) fn discard(&mut self, ids: Vec<MessageId>, now: Timestamp) -> Vec<Replayed> {
        let discard = |id| {
            self.act(id, Act::Discard, now, |state| {
                let Some((record, queue)) = state.both(id) else { return };
                queue.remove_hold(record);
                if let Place::Dead(dead) = &record.place {
                    record.place = Place::Discarded(dead.clone(), now);
                }
            })
        };
        ids.into_iter().map(discard).collect()
    }

    /// Rule 28.
    pub(super) fn restore(&mut self, ids: Vec<MessageId>, now: Timestamp) -> Vec<Replayed> {
        let restore = |id| {
            self.act(id, Act::Restore, now, |state| {
                let Some((record, _)) = state.both(id) else { return };
                if let Place::Discarded(dead, _) = &record.place {
                    record.place = Place::Dead(dead.clone());
                }
            })
        };
        ids.into_iter().map(restore).collect()
    }

    /// Rule 28.
    pub(super) fn purge(
        &mut self,
        queue: &QueueName,
        age: Duration,
        rows_max: u32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.queue(queue)?;
        let mut discarded: Vec<(Timestamp, MessageId)> = Vec::new();
        for record in self.messages.values().filter(|record| record.message.queue == *queue) {
            if let Place::Discarded(_, at) = record.place
                && at.plus(age) <= now
            {
                discarded.push((at, record.message.id));
            }
        }
        discarded.sort_unstable();
        discarded.truncate(rows_max as usize);
        for (_, id) in &discarded {
            self.remove(*id);
        }
        self.queue_mut(queue)?.removed += discarded.len() as u64;
        Ok(discarded.len() as u64)
    }

    /// Rule 29.
    pub(super) fn cancel(&mut self, ids: Vec<MessageId>, now: Timestamp) -> Vec<Replayed> {
        let cancel = |id| {
            self.act(id, Act::Cancel, now, |state| {
                if let Some(record) = state.remove(id)
                    && let Some(queue) = state.queues.get_mut(&record.message.queue)
                {
                    queue.removed += 1;
                }
            })
        };
        ids.into_iter().map(cancel).collect()
    }

    /// Rule 29.
    pub(super) fn hasten(&mut self, ids: Vec<MessageId>, now: Timestamp) -> Vec<Replayed> {
        let hasten = |id| {
            self.act(id, Act::Hasten, now, |state| {
                if let Some(record) = state.messages.get_mut(&id) {
                    record.due_at = now;
                }
            })
        };
        ids.into_iter().map(hasten).collect()
    }

    /// Rule 33.
    pub(super) fn reset_attempts(&mut self, ids: Vec<MessageId>, now: Timestamp) -> Vec<Replayed> {
        ids.into_iter().map(|id| self.reset_one(id, now)).collect()
    }

    fn reset_one(&mut self, id: MessageId, now: Timestamp) -> Replayed {
        if let Some(record) = self.messages.get(&id)
            && record.is_waiting()
            && record.counters.is_untouched()
        {
            return Replayed::Refused { why: door::nothing_to_reset(record.status(now)) };
        }
        self.act(id, Act::Reset, now, |state| {
            let Some(record) = state.messages.get_mut(&id) else { return };
            record.history.push(door::reset(record.counters.attempt_number(), now));
            record.counters = record.counters.reset();
        })
    }
}
