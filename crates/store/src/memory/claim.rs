//! What a claim gets (rules 6, 8 to 12, 18, 21 and 31).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use sickbay_core::clock::Timestamp;
use sickbay_core::decide::{Decision, SetAside};
use sickbay_core::delivery::{Delivery, Lease};
use sickbay_core::port::{Claim, ProcessId};
use sickbay_core::stats::TypeGate;
use sickbay_core::{LeaseToken, MessageId, MessageType, QueueName, StreamKey};

use super::push::Ownership;
use super::settle::Report;
use super::state::{Held, Owner, Place, Queue, Record, State};
use crate::door;

/// How long a message waits for the owner of its key (rule 6).
const KEY_WAIT: Duration = Duration::from_secs(1);

/// What came of trying to hand a message out.
enum Taken {
    Delivered(Box<Delivery>),
    /// It was completed unrun, put off or set aside. What is eligible has changed.
    Changed,
}

impl Queue {
    /// True if messages of this type are delivered (rules 9 and 31).
    pub(super) fn is_open(&self, message_type: Option<&MessageType>) -> bool {
        match message_type.and_then(|name| self.gates.get(name)) {
            None | Some(TypeGate::Open) => true,
            Some(TypeGate::Paused | TypeGate::Tripped) => false,
            Some(TypeGate::Probing { left }) => *left > 0,
        }
    }

    /// Rule 31: each delivery of a probed type counts down.
    fn count_probe(&mut self, message_type: Option<&MessageType>) {
        if let Some(TypeGate::Probing { left }) = message_type.and_then(|name| self.gates.get_mut(name)) {
            *left = left.saturating_sub(1);
        }
    }
}

impl State {
    /// Takes what the claim gets. The queue is known to exist.
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Vec<Delivery> {
        let last = (now, claim.worker.clone());
        self.claimed_from.entry(claim.process).or_default().insert(claim.queue.clone(), last);
        let mut taken = Vec::new();
        while (taken.len() as u64) < u64::from(claim.max) && self.claim_turn(claim, &mut taken, now) {}
        if !taken.is_empty() {
            self.claims += 1;
        }
        taken
    }

    /// Goes once through what is eligible. True if that changed on the way, and it is to be looked
    /// at again.
    fn claim_turn(&mut self, claim: &Claim, taken: &mut Vec<Delivery>, now: Timestamp) -> bool {
        for id in self.offered(claim, now) {
            if taken.len() as u64 >= u64::from(claim.max) {
                return false;
            }
            if !self.is_still_eligible(id) {
                continue;
            }
            let Some(record) = self.messages.get(&id) else { continue };
            let in_order = !record.deferred && !record.suspect;
            match self.take(id, claim, now) {
                Taken::Changed => return true,
                Taken::Delivered(delivery) => {
                    let stream = delivery.message.stream.clone().filter(|_| in_order);
                    taken.push(*delivery);
                    if let Some(stream) = stream {
                        self.claim_run(claim, &stream, id, taken, now);
                    }
                }
            }
        }
        false
    }

    /// What this very claim has taken may have been the last probe of a type, or another entry of
    /// the same stream.
    fn is_still_eligible(&self, id: MessageId) -> bool {
        let Some(record) = self.messages.get(&id) else { return false };
        let message = &record.message;
        let Some(queue) = self.queues.get(&message.queue) else { return false };
        let is_out = |stream| self.entries(&message.queue, stream).iter().any(|entry| !entry.is_waiting());
        queue.is_open(message.message_type.as_ref()) && !message.stream.as_ref().is_some_and(is_out)
    }

    /// Goes on with the entries that follow the head (rule 21).
    fn claim_run(
        &mut self,
        claim: &Claim,
        stream: &StreamKey,
        head: MessageId,
        taken: &mut Vec<Delivery>,
        now: Timestamp,
    ) {
        let run_max = self.queues.get(&claim.queue).map_or(1, |queue| queue.policy.run_max);
        let (mut last, mut length) = (head, 1);
        while length < run_max && (taken.len() as u64) < u64::from(claim.max) {
            let Some(next) = self.next_of_run(&claim.queue, stream, last, now) else { return };
            let Taken::Delivered(delivery) = self.take(next, claim, now) else { return };
            taken.push(*delivery);
            (last, length) = (next, length + 1);
        }
    }

    /// What the process may be given, best first (rule 18: suspects run alone).
    fn offered(&self, claim: &Claim, now: Timestamp) -> Vec<MessageId> {
        let hands = self.in_hands(claim.process);
        if hands.iter().any(|id| self.messages.get(id).is_some_and(|record| record.suspect)) {
            return Vec::new();
        }
        let eligible = self.eligible(&claim.queue, now);
        if !self.suspect_waits_for(claim.process, now) {
            return eligible.iter().map(|record| record.message.id).collect();
        }
        if !hands.is_empty() {
            return Vec::new();
        }
        eligible.iter().filter(|record| record.suspect).map(|record| record.message.id).take(1).collect()
    }

    fn suspect_waits_for(&self, process: ProcessId, now: Timestamp) -> bool {
        let queues = self.claimed_from.get(&process).into_iter().flatten();
        let recent = queues.filter(|(_, (last, _))| now.since(*last) <= door::WORKS_ON);
        recent.flat_map(|(queue, _)| self.eligible(queue, now)).any(|record| record.suspect)
    }

    /// What can be claimed from a queue now, in the order of rule 8.
    pub(super) fn eligible(&self, name: &QueueName, now: Timestamp) -> Vec<&Record> {
        let Some(queue) = self.queues.get(name).filter(|queue| !queue.paused) else { return Vec::new() };
        let mut eligible = Vec::new();
        let mut streams: BTreeMap<&StreamKey, Vec<&Record>> = BTreeMap::new();
        for record in
            self.messages.values().filter(|record| record.message.queue == *name && record.is_live())
        {
            match &record.message.stream {
                Some(stream) => streams.entry(stream).or_default().push(record),
                None if record.is_waiting() && record.due_at <= now => eligible.push(record),
                None => {}
            }
        }
        for (stream, entries) in streams {
            eligible.extend(queue.eligible_entries(stream, &entries, now));
        }
        eligible.retain(|record| queue.is_open(record.message.message_type.as_ref())); // rule 9
        eligible.sort_by_key(|record| (Reverse(record.message.priority), record.due_at, record.message.id));
        eligible
    }

    /// Hands one message out, unless its bytes or its key say otherwise.
    fn take(&mut self, id: MessageId, claim: &Claim, now: Timestamp) -> Taken {
        let Some(record) = self.messages.get(&id) else { return Taken::Changed };
        if !record.is_intact() {
            let decision = Decision::Quarantine { set_aside: SetAside::Corrupt, failure: door::corrupt() };
            self.apply(id, decision, Report::default(), now); // rule 12
            return Taken::Changed;
        }
        if self.key_forbids(id, now) {
            return Taken::Changed;
        }
        let token = LeaseToken { epoch: self.epoch, claim: self.claims + 1, message: id };
        let Some((record, queue)) = self.both(id) else { return Taken::Changed };
        queue.count_probe(record.message.message_type.as_ref());
        let expires_at = now.plus(claim.lease); // rule 10
        record.counters.deliveries += 1;
        record.last_token = Some(token);
        record.place = Place::Leased(Held {
            token,
            worker: claim.worker.to_string(),
            process: claim.process,
            started_at: now,
            expires_at,
        });
        Taken::Delivered(Box::new(Delivery {
            message: record.message.clone(),
            lease: Lease { token, granted_at: now, expires_at },
            counters: record.counters,
            stages: record.stages,
            cause: record.cause,
            suspect: record.suspect,
        }))
    }

    /// A message may meet a key that it no longer owns (rule 6).
    fn key_forbids(&mut self, id: MessageId, now: Timestamp) -> bool {
        let Some(record) = self.messages.get(&id) else { return true };
        let Some(key) = record.message.key.clone() else { return false };
        let queue = record.message.queue.clone();
        match self.owner(&queue, &key, now) {
            Ownership::Live(owner) if owner == id => false,
            Ownership::Live(_) => {
                if let Some(record) = self.messages.get_mut(&id) {
                    record.due_at = now.plus(KEY_WAIT);
                }
                true
            }
            Ownership::Done(_) => {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.duplicates += 1;
                }
                self.complete(id, now);
                true
            }
            Ownership::Free => {
                self.keys.insert((queue, key), Owner { id, done_until: None });
                false
            }
        }
    }
}
