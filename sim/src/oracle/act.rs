//! Operators' acts (rules 24 to 29).

use std::time::Duration;

use bytes::Bytes;
use sickbay_core::decide::SetAside;
use sickbay_core::port::{Replay, Replayed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::{Cause, Counters, Reason};

use super::Oracle;
use super::entry::{Entry, Gone, Place};

/// An act on single messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send back.
    Replay,
    /// Set aside by hand.
    DeadLetter,
    /// Hide from quarantine.
    Discard,
    /// Bring back into quarantine.
    Restore,
    /// Remove what waits.
    Cancel,
    /// Make due now.
    Hasten,
    /// Give the attempts back.
    Reset,
}

impl Act {
    /// True if a message in this place allows it.
    fn is_allowed(self, entry: &Entry, now: i64) -> bool {
        match self {
            Self::Replay => entry.is_dead() && !entry.damaged,
            Self::Discard => entry.is_dead(),
            Self::DeadLetter => entry.is_waiting() || entry.is_leased(),
            Self::Restore => entry.is_discarded(),
            Self::Cancel => entry.is_waiting(),
            Self::Hasten => entry.is_waiting() && entry.due_at > now,
            Self::Reset => entry.is_waiting() && entry.counters != new_life(&entry.counters, 0),
        }
    }
}

impl Oracle {
    /// Compares an answer and says whether the act took place.
    fn took_place(&mut self, act: Act, id: u64, answer: &Replayed) -> bool {
        let now = self.now;
        let expected = match self.entries.get(&id) {
            None => "not found",
            Some(entry) if act.is_allowed(entry, now) => "done",
            Some(_) => "refused",
        };
        let seen = match answer {
            Replayed::Done => "done",
            Replayed::NotFound => "not found",
            Replayed::Refused { .. } => "refused",
        };
        self.expect("I7", || format!("{act:?} of message {id}"), &seen, &expected);
        expected == "done"
    }

    /// Acts without a choice.
    pub fn acted(&mut self, act: Act, ids: &[u64], answers: &[Replayed]) {
        for (id, answer) in ids.iter().zip(answers) {
            if !self.took_place(act, *id, answer) {
                continue;
            }
            match act {
                Act::DeadLetter => self.aside(*id, SetAside::Operator, Reason::Operator),
                Act::Discard => self.discard(*id),
                Act::Restore => self.restore(*id),
                Act::Cancel => self.remove(*id),
                Act::Hasten => {
                    let now = self.now;
                    self.entries.entry(*id).and_modify(|entry| entry.due_at = now);
                }
                Act::Reset => {
                    self.entries.entry(*id).and_modify(|entry| {
                        entry.note(AttemptEnd::Reset);
                        entry.counters = new_life(&entry.counters, 0);
                    });
                }
                Act::Replay => {}
            }
        }
    }

    fn discard(&mut self, id: u64) {
        self.remove_hold(id);
        let now = self.now;
        if let Some(entry) = self.entries.get_mut(&id)
            && let Place::Dead { set_aside, reason } = entry.place
        {
            entry.place = Place::Discarded { set_aside, reason, at: now };
        }
    }

    fn restore(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id)
            && let Place::Discarded { set_aside, reason, .. } = entry.place
        {
            entry.place = Place::Dead { set_aside, reason };
        }
    }

    fn remove_hold(&mut self, id: u64) {
        let Some((queue, stream)) = self.entries.get(&id).and_then(|e| Some((e.queue, e.stream?))) else {
            return;
        };
        let holds = &mut self.lines[queue].holds;
        if let Some(of_stream) = holds.get_mut(&stream) {
            of_stream.remove(&id);
            if of_stream.is_empty() {
                holds.remove(&stream);
            }
        }
    }

    /// Forgets a message for good.
    fn remove(&mut self, id: u64) {
        self.leave(id);
        self.disown(id);
        let Some(entry) = self.entries.remove(&id) else { return };
        self.lines[entry.queue].removed += 1;
        self.gone[id as usize - 1] = Gone::Removed;
    }

    fn disown(&mut self, id: u64) {
        let Some((queue, key)) = self.entries.get(&id).and_then(|e| Some((e.queue, e.key?))) else { return };
        if self.keys.get(&(queue, key)).is_some_and(|owner| owner.id == id && owner.done_until.is_none()) {
            self.keys.remove(&(queue, key));
        }
    }

    /// Dead letters were sent back.
    pub fn replayed(&mut self, replays: &[Replay], answers: &[Replayed]) {
        for (replay, answer) in replays.iter().zip(answers) {
            let id = replay.id.number();
            if self.took_place(Act::Replay, id, answer) {
                let target = replay.queue.as_ref().map(|queue| self.queue(queue.as_str()));
                self.replay(id, target, replay.payload.clone());
            }
        }
    }

    fn replay(&mut self, id: u64, target: Option<usize>, payload: Option<Bytes>) {
        self.remove_hold(id);
        let now = self.now;
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let from = entry.queue;
        entry.note(AttemptEnd::Replayed);
        entry.counters = new_life(&entry.counters, 1);
        entry.cause = Some(Cause::Replayed);
        entry.deferred = false;
        entry.due_at = now;
        entry.place = Place::Waiting;
        if let Some(payload) = payload
            && payload != entry.bytes
        {
            let before = std::mem::replace(&mut entry.bytes, payload);
            entry.original.get_or_insert(before);
        }
        self.lines[from].replayed += 1;
        if let Some(target) = target.filter(|target| *target != from) {
            self.disown(id);
            self.lines[from].pushed -= 1;
            self.lines[target].pushed += 1;
            self.entries.entry(id).and_modify(|entry| entry.queue = target);
        }
        self.join(id);
    }

    /// At least so many, and no cut between messages that were discarded at the same time: which of those
    /// goes first is left to the store.
    pub fn whole_cut(&mut self, queue: &str, age: Duration, rows_max: usize) -> u32 {
        let queue = self.queue(queue);
        let discarded = self.discarded(queue, age);
        let last = discarded.get(rows_max.wrapping_sub(1)).map(|(at, _)| *at);
        last.map_or(rows_max, |last| discarded.partition_point(|(at, _)| *at <= last)) as u32
    }

    /// What was discarded so long ago, the oldest first.
    fn discarded(&self, queue: usize, age: Duration) -> Vec<(i64, u64)> {
        let mut discarded: Vec<(i64, u64)> = Vec::new();
        for (id, entry) in &self.entries {
            if let Place::Discarded { at, .. } = entry.place
                && entry.queue == queue
                && at.saturating_add(age.as_millis() as i64) <= self.now
            {
                discarded.push((at, *id));
            }
        }
        discarded.sort_unstable();
        discarded
    }

    /// What was discarded so long ago was removed, the oldest first.
    pub fn purged(&mut self, queue: &str, age: Duration, rows_max: u32, answer: u64) {
        let queue = self.queue(queue);
        let mut discarded = self.discarded(queue, age);
        discarded.truncate(rows_max as usize);
        self.expect("I7", || "purged".to_owned(), &answer, &(discarded.len() as u64));
        for (_, id) in discarded {
            self.remove(id);
        }
    }

    /// A stream was let go on without its head.
    pub fn released_followers(&mut self, queue: &str, stream: &str, answer: bool) {
        let (queue, stream) = (self.queue(queue), self.stream_names.index(stream));
        let expected = self.release_followers(queue, stream);
        self.expect("order", || "followers were released".to_owned(), &answer, &expected);
    }

    fn release_followers(&mut self, queue: usize, stream: usize) -> bool {
        if self.lines[queue].holds.remove(&stream).is_some() {
            return true;
        }
        let now = self.now;
        let entries = self.lines[queue].streams.get(&stream).into_iter().flatten();
        let head = entries.copied().find(|id| self.entries.get(id).is_some_and(|entry| !entry.deferred));
        match head.and_then(|id| self.entries.get_mut(&id)) {
            Some(entry) if entry.is_waiting() && entry.due_at > now => {
                entry.deferred = true;
                true
            }
            _ => false,
        }
    }

    /// A byte of a message was changed behind the store's back.
    pub fn damaged(&mut self, id: u64) {
        self.entries.entry(id).and_modify(|entry| entry.damaged = true);
    }
}

/// Nothing is counted but what went before, and how often it was sent back.
fn new_life(counters: &Counters, replays: u32) -> Counters {
    Counters {
        replays: counters.replays + replays,
        earlier: counters.earlier + counters.deliveries,
        ..Counters::default()
    }
}
