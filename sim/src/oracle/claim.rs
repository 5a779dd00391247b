//! Who must get what: the contract's rules 6, 8 to 12, 18, 20, 21 and 31, once more and from scratch.

use std::cmp::Reverse;

use sickbay_core::decide::SetAside;
use sickbay_core::port::Claim;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Delivery, LeaseToken, MessageId, Reason, Stages};

use super::KeyOwner;
use super::Oracle;
use super::entry::{Entry, Gone, Place};

/// A process works on a queue for so long after it last asked.
const WORKS_ON_MS: i64 = 60_000;
/// How long a message waits for the owner of its key.
const KEY_WAIT_MS: i64 = 1000;

impl Oracle {
    /// A claim was answered with these deliveries.
    pub fn claimed(&mut self, claim: &Claim, deliveries: &[Delivery]) {
        let queue = self.queue(claim.queue.as_str());
        self.asked.entry(claim.process).or_default().insert(queue, self.now);
        self.deliveries += deliveries.len() as u64;
        for delivery in deliveries {
            self.inspect(delivery);
        }
        let seen: Vec<u64> = deliveries.iter().map(|delivery| delivery.message.id.number()).collect();
        let probed = self.probed(claim);
        self.put_off.clear();
        self.keys_taken.clear();
        let mut expected = self.handed_out(queue, claim);
        if !probed.is_empty() {
            self.doubt();
        }
        if !probed.is_empty() && seen != expected && !seen.is_empty() {
            expected = self.hand_out_instead(&expected, &seen, claim, &probed);
        }
        if seen != expected && self.violation().is_none() {
            let text = format!("process {} was given {seen:?}, and not {expected:?}", claim.process.0);
            self.accuse(if seen.len() < expected.len() { "I8" } else { "order" }, text);
        }
        self.check_tokens(deliveries);
        for delivery in deliveries {
            self.compare(delivery, claim);
        }
    }

    /// I3: one claim, one number, larger than every one before.
    fn check_tokens(&mut self, deliveries: &[Delivery]) {
        let Some(first) = deliveries.first().map(Delivery::token) else { return };
        let number = (first.epoch, first.claim);
        let last = std::mem::replace(&mut self.last_claim, number);
        let same = deliveries.iter().all(|d| (d.token().epoch, d.token().claim) == number);
        let own = deliveries.iter().all(|d| d.token().message == d.message.id);
        if number <= last || !same || !own {
            self.accuse("I3", format!("a claim got the token {first} after {last:?}"));
        }
    }

    /// What is wrong with a delivery whatever else the claim should have given.
    fn inspect(&mut self, delivery: &Delivery) {
        let id = delivery.message.id.number();
        let (now, gone) = (self.now, self.gone.get(id as usize - 1).copied());
        let Some(entry) = self.entries.get(&id) else {
            let text = match gone {
                Some(Gone::Completed { .. }) => format!("message {id} was delivered after it was completed"),
                Some(Gone::Removed) => format!("message {id} was delivered after it was removed"),
                _ => format!("message {id} was delivered and never pushed"),
            };
            return self.accuse("I7", text);
        };
        let line = &self.lines[entry.queue];
        let open = entry.kind.and_then(|kind| line.gates.get(&kind)).copied().is_none_or(lets_through);
        let wrong = match &entry.place {
            Place::Leased { process, .. } => Some(("I3", format!("while process {} holds it", process.0))),
            Place::Dead { set_aside: SetAside::CrashBudgetSpent, .. } => {
                Some(("I5", "after its crash budget was spent".to_owned()))
            }
            Place::Dead { .. } | Place::Discarded { .. } => Some(("I7", "from quarantine".to_owned())),
            Place::Waiting if entry.due_at > now => {
                Some(("time", format!("{} ms early", entry.due_at - now)))
            }
            Place::Waiting if line.paused => Some(("gate", "from a paused queue".to_owned())),
            Place::Waiting if !open => Some(("gate", "though its type is held back".to_owned())),
            Place::Waiting if entry.damaged => Some(("I9", "though its bytes were changed".to_owned())),
            Place::Waiting if delivery.message.payload != entry.bytes => {
                Some(("I9", "with other bytes than it was pushed with".to_owned()))
            }
            Place::Waiting => None,
        };
        if let Some((invariant, text)) = wrong {
            return self.accuse(invariant, format!("message {id} was delivered {text}"));
        }
        // I4, from nothing but what was really handed out.
        let number = delivery.counters.attempt_number();
        let expected = entry.seen + 1;
        let explained = delivery.cause.is_some() || entry.seen == 0;
        if number != expected || !explained {
            let text = format!(
                "delivery {expected} of message {id} says it is number {number}, for {:?}",
                delivery.cause
            );
            return self.accuse("I4", text);
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.seen += 1;
        }
    }

    /// Hands out what the claim must get; the tokens are filled in later.
    fn handed_out(&mut self, queue: usize, claim: &Claim) -> Vec<u64> {
        let hands = self.hands(claim.process);
        if hands.iter().any(|id| self.entries.get(id).is_some_and(|entry| entry.suspect)) {
            return Vec::new();
        }
        loop {
            let given = self.gathered(queue, claim, hands.is_empty());
            let (damaged, whole): (Vec<u64>, Vec<u64>) =
                given.into_iter().partition(|id| self.entries.get(id).is_some_and(|entry| entry.damaged));
            for id in &damaged {
                self.take_back(*id);
                self.set_damaged_aside(*id);
            }
            if damaged.is_empty() || !whole.is_empty() {
                return whole;
            }
        }
    }

    /// What a claim takes, with damaged messages among it if the store reads them only then.
    fn gathered(&mut self, queue: usize, claim: &Claim, empty_hands: bool) -> Vec<u64> {
        let mut given = Vec::new();
        let mut alone = self.suspect_waits_for(claim);
        while given.len() < claim.max as usize {
            if alone && !(empty_hands && given.is_empty()) {
                break;
            }
            let Some(id) = self.best(queue, |entry| !alone || entry.suspect) else { break };
            if !self.take(id, claim) {
                // What it found at its key, or its bytes, has changed what can be claimed.
                alone = self.suspect_waits_for(claim);
                continue;
            }
            given.push(id);
            if alone {
                break;
            }
            self.take_run(id, claim, &mut given, |_, _| true);
        }
        given
    }

    pub(super) fn take_back(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.counters.deliveries -= 1;
        entry.place = Place::Waiting;
        if let Some(TypeGate::Probing { left }) =
            entry.kind.and_then(|kind| self.lines[entry.queue].gates.get_mut(&kind))
        {
            *left += 1;
        }
    }

    /// The queues that the process works on.
    pub(super) fn works_on(&self, claim: &Claim) -> impl Iterator<Item = usize> {
        let asked = self.asked.get(&claim.process).into_iter().flatten();
        asked.filter(|(_, last)| self.now - **last <= WORKS_ON_MS).map(|(queue, _)| *queue)
    }

    /// True if a suspect can be claimed in a queue that the process works on.
    fn suspect_waits_for(&self, claim: &Claim) -> bool {
        self.works_on(claim).any(|queue| self.best(queue, |entry| entry.suspect).is_some())
    }

    /// The first message of a queue that can be claimed, of those that are asked for.
    pub(super) fn best(&self, queue: usize, asked_for: impl Fn(&Entry) -> bool) -> Option<u64> {
        let line = &self.lines[queue];
        if line.paused {
            return None;
        }
        let wanted = line.live.iter().filter_map(|id| self.entries.get(id).map(|entry| (*id, entry)));
        let wanted = wanted.filter(|(id, entry)| asked_for(entry) && self.is_eligible(*id, entry));
        wanted.min_by_key(|(id, entry)| (Reverse(entry.priority), entry.due_at, *id)).map(|(id, _)| id)
    }

    pub(super) fn is_eligible(&self, id: u64, entry: &Entry) -> bool {
        if !entry.is_waiting() || entry.due_at > self.now || !self.is_open(entry) {
            return false;
        }
        let Some(stream) = entry.stream else { return true };
        let line = &self.lines[entry.queue];
        let Some(entries) = line.streams.get(&stream) else { return false };
        let others = || entries.iter().filter_map(|id| self.entries.get(id).map(|entry| (*id, entry)));
        if others().any(|(_, other)| other.is_leased()) {
            return false;
        }
        let first = others().find(|(_, other)| !other.deferred).map(|(first, _)| first);
        entry.deferred || (first == Some(id) && !self.is_held(entry.queue, stream, id))
    }

    fn is_open(&self, entry: &Entry) -> bool {
        let gate = entry.kind.and_then(|kind| self.lines[entry.queue].gates.get(&kind));
        gate.copied().is_none_or(lets_through)
    }

    fn is_held(&self, queue: usize, stream: usize, id: u64) -> bool {
        let first = self.lines[queue].holds.get(&stream).and_then(|holds| holds.first());
        first.is_some_and(|hold| *hold < id)
    }

    /// Takes one message. False if it was put off, completed unrun or set aside instead.
    pub(super) fn take(&mut self, id: u64, claim: &Claim) -> bool {
        let Some(entry) = self.entries.get(&id) else { return false };
        let (queue, key) = (entry.queue, entry.key);
        if entry.damaged && !self.reads_what_it_took {
            self.set_damaged_aside(id);
            return false;
        }
        if let Some(key) = key {
            match self.key_stands(queue, key) {
                Some((owner, false)) if owner == id => {}
                Some((_, false)) => {
                    let due_at = self.now + KEY_WAIT_MS;
                    let before =
                        self.entries.get_mut(&id).map(|entry| std::mem::replace(&mut entry.due_at, due_at));
                    self.put_off.extend(before.map(|before| (id, before)));
                    return false;
                }
                Some((_, true)) => {
                    self.lines[queue].duplicates += 1;
                    self.complete(id);
                    return false;
                }
                None => self.take_key(queue, key, id),
            }
        }
        self.lease(id, claim);
        true
    }

    pub(super) fn set_damaged_aside(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.counters.failures += 1;
        entry.stages |= Stages::FAILED.bits();
        self.aside(id, SetAside::Corrupt, Reason::Corrupt);
    }

    fn take_key(&mut self, queue: usize, key: usize, id: u64) {
        let before = self.keys.insert((queue, key), KeyOwner { id, done_until: None });
        self.keys_taken.push(((queue, key), before));
    }

    fn lease(&mut self, id: u64, claim: &Claim) {
        let expires_at = self.now.saturating_add(claim.lease.as_millis() as i64);
        let (since, Some(message)) = (self.calls, MessageId::from_number(id)) else { return };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(TypeGate::Probing { left }) =
            entry.kind.and_then(|kind| self.lines[entry.queue].gates.get_mut(&kind))
        {
            *left = left.saturating_sub(1);
        }
        entry.counters.deliveries += 1;
        let token = LeaseToken { epoch: 0, claim: 0, message };
        entry.place = Place::Leased { token, process: claim.process, expires_at, since };
    }

    /// Goes on with what directly follows the first entry of a stream.
    pub(super) fn take_run(
        &mut self,
        head: u64,
        claim: &Claim,
        given: &mut Vec<u64>,
        goes_on: impl Fn(&[u64], (u64, &Entry)) -> bool,
    ) {
        let Some(entry) = self.entries.get(&head).filter(|entry| !entry.deferred && !entry.suspect) else {
            return;
        };
        let (queue, Some(stream)) = (entry.queue, entry.stream) else { return };
        let (mut last, mut length) = (head, 1);
        while length < self.lines[queue].policy.run_max && given.len() < claim.max as usize {
            let entries = self.lines[queue].streams.get(&stream).into_iter().flatten();
            let next =
                entries.copied().find(|id| *id > last && self.entries.get(id).is_some_and(|e| !e.deferred));
            let Some((next, entry)) = next.and_then(|id| self.entries.get(&id).map(|entry| (id, entry)))
            else {
                return;
            };
            let replayed = entry.key.is_some() && entry.counters.replays > 0;
            let ready = entry.is_waiting() && entry.due_at <= self.now && self.is_open(entry);
            if !ready || replayed || entry.suspect || entry.damaged || self.is_held(queue, stream, next) {
                return;
            }
            if !goes_on(given, (next, entry)) {
                return;
            }
            self.lease(next, claim);
            given.push(next);
            (last, length) = (next, length + 1);
        }
    }

    /// A delivery as the worker sees it, against what is known.
    fn compare(&mut self, delivery: &Delivery, claim: &Claim) {
        let id = delivery.message.id.number();
        let token = delivery.token();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Place::Leased { token: unset, expires_at, .. } = &mut entry.place else { return };
        *unset = token;
        let until = *expires_at;
        let entry = entry.clone();
        let what = |part: &str| format!("message {id}, process {}: {part}", claim.process.0);
        self.expect("I4", || what("counters"), &delivery.counters, &entry.counters);
        self.expect("I4", || what("cause"), &delivery.cause, &entry.cause);
        self.expect("I6", || what("suspect"), &delivery.suspect, &entry.suspect);
        self.expect("I1", || what("stages"), &delivery.stages.bits(), &entry.stages);
        self.expect("I9", || what("bytes"), &delivery.message.payload, &entry.bytes);
        self.expect("I9", || what("priority"), &delivery.message.priority.get(), &entry.priority);
        let deadline = delivery.message.deadline_at.map(sickbay_core::Timestamp::millis);
        self.expect("I9", || what("deadline"), &deadline, &entry.deadline_at);
        self.expect("time", || what("end of lease"), &delivery.lease.expires_at.millis(), &until);
        let names = [
            (
                delivery.message.stream.as_ref().map(|s| s.as_str().to_owned()),
                entry.stream.map(|s| self.stream_names.0[s].clone()),
            ),
            (
                delivery.message.key.as_ref().map(|s| s.as_str().to_owned()),
                entry.key.map(|s| self.key_names.0[s].clone()),
            ),
            (
                delivery.message.message_type.as_ref().map(|s| s.as_str().to_owned()),
                entry.kind.map(|s| self.type_names.0[s].clone()),
            ),
        ];
        for (seen, expected) in names {
            self.expect("I9", || what("names"), &seen, &expected);
        }
    }
}

fn lets_through(gate: TypeGate) -> bool {
    matches!(gate, TypeGate::Open | TypeGate::Probing { left: 1.. })
}
