//! Messages come in, leases run out, processes die.

use std::sync::Arc;

use sickbay_core::decide::SetAside;
use sickbay_core::port::{Adoption, ORIGIN_WINDOW, ProcessId, Pushed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Cause, Counters, NewMessage, QueuePolicy, Reason};

use super::entry::{Entry, Gone, Place};
use super::settle::Fate;
use super::{KeyOwner, Oracle};

fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Oracle {
    /// A queue was made or changed.
    pub fn defined(&mut self, queue: &str, policy: QueuePolicy) {
        let calls = self.calls;
        let queue = self.queue(queue);
        let line = &mut self.lines[queue];
        line.policy = Arc::new(policy);
        line.policy_since = calls;
    }

    /// A queue was paused or goes on.
    pub fn paused(&mut self, queue: &str, paused: bool) {
        let queue = self.queue(queue);
        self.lines[queue].paused = paused;
    }

    /// A type's gate was set.
    pub fn gated(&mut self, queue: &str, kind: &str, gate: TypeGate) {
        let (queue, kind) = (self.queue(queue), self.type_names.index(kind));
        match gate {
            TypeGate::Open => self.lines[queue].gates.remove(&kind),
            other => self.lines[queue].gates.insert(kind, other),
        };
    }

    /// Messages were pushed.
    pub fn pushed(&mut self, messages: &[NewMessage], answers: &[Pushed]) {
        for (message, answer) in messages.iter().zip(answers) {
            let (queue, owner) = self.standing(message);
            if self.answered_right(queue, owner, *answer) {
                self.enter(message, message.delay);
            }
        }
    }

    /// Messages of a broker were adopted.
    pub fn adopted(&mut self, adoptions: &[(NewMessage, String, Counters, Fate)], answers: &[Pushed]) {
        for ((message, origin, counters, fate), answer) in adoptions.iter().zip(answers) {
            let (queue, owner) = self.standing(message);
            let window = ORIGIN_WINDOW.as_millis() as i64;
            let known = self.origins.get(&(queue, origin.clone())).filter(|(_, at)| self.now < at + window);
            let known = known.map(|(id, _)| *id);
            if !self.answered_right(queue, known.or(owner), *answer) {
                continue;
            }
            let id = self.enter(message, std::time::Duration::ZERO);
            self.origins.insert((queue, origin.clone()), (id, self.now));
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.counters = *counters;
                entry.counters.deliveries = entry.counters.deliveries.max(1);
                entry.seen = entry.counters.attempt_number();
                entry.brought = entry.seen - 1;
            }
            self.carry_out(id, fate, false);
        }
    }

    /// The owner of a message's key, if that makes a push a duplicate.
    fn standing(&mut self, message: &NewMessage) -> (usize, Option<u64>) {
        let queue = self.queue(message.queue.as_str());
        let Some(key) = &message.key else { return (queue, None) };
        let key = self.key_names.index(key.as_str());
        (queue, self.key_stands(queue, key).map(|(owner, _)| owner))
    }

    /// Who keeps others from using a key, and whether it is done.
    pub(crate) fn key_stands(&self, queue: usize, key: usize) -> Option<(u64, bool)> {
        let owner = self.keys.get(&(queue, key))?;
        match owner.done_until {
            Some(until) => (until > self.now).then_some((owner.id, true)),
            None => {
                let entry = self.entries.get(&owner.id)?;
                (entry.is_waiting() || entry.is_leased()).then_some((owner.id, false))
            }
        }
    }

    /// Compares the answer to a push with what it must be; true if the message is new.
    fn answered_right(&mut self, queue: usize, owner: Option<u64>, answer: Pushed) -> bool {
        let next = self.gone.len() as u64 + 1;
        let expected = match owner {
            Some(owner) => (owner, false),
            None => (next, true),
        };
        let seen = match answer {
            Pushed::New(id) => (id.number(), true),
            Pushed::Duplicate(id) => (id.number(), false),
        };
        self.expect("I1", || "a push was answered with (message, new)".to_owned(), &seen, &expected);
        if owner.is_some() {
            self.lines[queue].duplicates += 1;
        }
        owner.is_none()
    }

    fn enter(&mut self, message: &NewMessage, delay: std::time::Duration) -> u64 {
        let queue = self.queue(message.queue.as_str());
        self.gone.push(Gone::No);
        let id = self.gone.len() as u64;
        let key = message.key.as_ref().map(|key| self.key_names.index(key.as_str()));
        if let Some(key) = key {
            self.keys.insert((queue, key), KeyOwner { id, done_until: None });
        }
        let entry = Entry {
            queue,
            stream: message.stream.as_ref().map(|stream| self.stream_names.index(stream.as_str())),
            key,
            kind: message.message_type.as_ref().map(|kind| self.type_names.index(kind.as_str())),
            priority: message.priority.get(),
            bytes: message.payload.clone(),
            original: None,
            damaged: false,
            deadline_at: message.deadline.map(|deadline| self.now.saturating_add(millis(deadline))),
            due_at: self.now.saturating_add(millis(delay)),
            counters: Counters::default(),
            stages: message.stages.bits(),
            cause: None,
            suspect: false,
            deferred: false,
            place: Place::Waiting,
            history: Vec::new(),
            seen: 0,
            unsure: None,
            brought: 0,
        };
        self.lines[queue].pushed += 1;
        self.entries.insert(id, entry);
        self.join(id);
        id
    }

    /// The message waits or is leased: it is among the live ones of its queue and stream.
    pub(crate) fn join(&mut self, id: u64) {
        let Some(entry) = self.entries.get(&id) else { return };
        let line = &mut self.lines[entry.queue];
        line.live.insert(id);
        if let Some(stream) = entry.stream {
            line.streams.entry(stream).or_default().insert(id);
        }
    }

    pub(crate) fn leave(&mut self, id: u64) {
        let Some(entry) = self.entries.get(&id) else { return };
        let line = &mut self.lines[entry.queue];
        line.live.remove(&id);
        if let Some(stream) = entry.stream
            && let Some(entries) = line.streams.get_mut(&stream)
        {
            entries.remove(&id);
            if entries.is_empty() {
                line.streams.remove(&stream);
            }
        }
    }

    /// Leases whose time is over come back.
    pub(crate) fn expire(&mut self) {
        let now = self.now;
        let over =
            |entry: &Entry| matches!(entry.place, Place::Leased { expires_at, .. } if expires_at <= now);
        let ids: Vec<u64> = self.leased(over);
        for id in ids {
            self.redeliver(id);
        }
    }

    fn leased(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<u64> {
        let live = self.lines.iter().flat_map(|line| &line.live);
        live.copied().filter(|id| self.entries.get(id).is_some_and(&wanted)).collect()
    }

    fn redeliver(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.note(AttemptEnd::LeaseExpired);
        entry.counters.expiries += 1;
        entry.cause = Some(Cause::LeaseExpired);
        entry.place = Place::Waiting;
    }

    /// A process died; the store says how much it held.
    pub fn died(&mut self, process: ProcessId, answer: u64) {
        let held = self.hands(process).len() as u64;
        self.expect("I1", || "messages in a dead process's hands".to_owned(), &answer, &held);
        self.bury_process(process);
    }

    fn bury_process(&mut self, process: ProcessId) {
        let held = self.hands(process);
        let alone = held.len() == 1;
        for id in held {
            self.crash_one(id, alone);
        }
        self.asked.remove(&process);
    }

    fn crash_one(&mut self, id: u64, alone: bool) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let budget = self.lines[entry.queue].policy.crash_budget.max(1);
        entry.counters.crashes += 1;
        entry.counters.charges += u32::from(alone);
        if alone && entry.counters.charges >= budget {
            return self.aside(id, SetAside::CrashBudgetSpent, Reason::Crash);
        }
        entry.note(AttemptEnd::Crashed);
        entry.cause = Some(Cause::Crashed);
        entry.suspect = true;
        entry.place = Place::Waiting;
    }

    /// The owning process died and the store was opened again.
    pub fn owner_crashed(&mut self, owner: ProcessId, clock: i64) {
        self.bury_process(owner);
        for id in self.leased(Entry::is_leased) {
            self.redeliver(id);
        }
        self.restart(clock);
    }

    /// The store was closed tidily and opened again. It gave back what was in anybody's hands, or what was in this
    /// process's and found the rest when it was opened.
    pub fn reopened(&mut self, closing: Option<ProcessId>, clock: i64) {
        for id in self.leased(Entry::is_leased) {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if !closing.is_none_or(|process| entry.is_leased_by(process)) {
                self.redeliver(id);
                continue;
            }
            entry.note(AttemptEnd::Released);
            entry.counters.releases += 1;
            entry.cause = Some(Cause::Released);
            entry.place = Place::Waiting;
        }
        self.restart(clock);
    }

    fn restart(&mut self, clock: i64) {
        self.asked.clear();
        self.clock = clock;
        self.now = clock;
    }

    /// A message is set aside, wherever it was. Counting is the caller's.
    pub(crate) fn aside(&mut self, id: u64, set_aside: SetAside, reason: Reason) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.note(AttemptEnd::Quarantined);
        entry.place = Place::Dead { set_aside, reason };
        entry.suspect = false;
        let (queue, stream, deferred) = (entry.queue, entry.stream, entry.deferred);
        self.leave(id);
        let line = &mut self.lines[queue];
        line.quarantined += 1;
        line.failures += u64::from(set_aside != SetAside::Operator);
        let strict = line.policy.ordering == sickbay_core::policy::Ordering::Strict;
        let hold = line.policy.when_head_quarantined == sickbay_core::policy::WhenHeadQuarantined::Hold;
        if let Some(stream) = stream.filter(|_| strict && hold && !deferred) {
            line.holds.entry(stream).or_default().insert(id);
        }
    }
}

/// What the oracle needs of an adoption.
pub(crate) fn told(adoption: &Adoption) -> (NewMessage, String, Counters, Fate) {
    let fate = Fate::of(&adoption.decision, adoption.stages.bits());
    (adoption.message.clone(), adoption.origin.clone(), adoption.counters, fate)
}
