//! What both sides of a copy must agree on: how many records of each kind each queue has, and a sum over all that is
//! in them. The order in which they are read does not matter.

use std::collections::BTreeMap;

use sickbay_core::quarantine::Attempt;
use sickbay_core::record::{
    Body, CompletedRecord, DeadRecord, KeyState, QueueRecord, Record, RecordKind, WaitingRecord,
};
use sickbay_core::stats::TypeGate;
use sickbay_core::{QueueName, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use crate::door::searched;
use crate::pack::{Packer, cause_code};

/// How many records, and the sum over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) count: u64,
    digest: u128,
}

/// The sums of a whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    by_queue: BTreeMap<(RecordKind, QueueName), Sum>,
}

impl Sums {
    pub(super) fn add(&mut self, record: &Record) {
        let mut packer = Packer(Vec::with_capacity(256));
        pack(&mut packer, record);
        let sum = self.by_queue.entry((record.kind(), record.queue().clone())).or_default();
        sum.count += 1;
        sum.digest = sum.digest.wrapping_add(xxh3_128(&packer.0));
    }

    /// How many records of a kind there are in all.
    pub(super) fn count(&self, kind: RecordKind) -> u64 {
        self.by_queue.iter().filter(|((of, _), _)| *of == kind).map(|(_, sum)| sum.count).sum()
    }

    /// The first thing in which the other store differs, in words.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let keys = self.by_queue.keys().chain(other.by_queue.keys());
        keys.into_iter().find_map(|key| {
            let sum = |sums: &Self| sums.by_queue.get(key).copied().unwrap_or_default();
            let (here, there) = (sum(self), sum(other));
            let (kind, queue) = (key.0.as_str(), &key.1);
            match here == there {
                true => None,
                false if here.count != there.count => Some(format!(
                    "queue {queue} has {} {kind} in the source and {} in the target",
                    here.count, there.count
                )),
                false => Some(format!(
                    "the {} {kind} of queue {queue} are not the same in the source and in the target",
                    here.count
                )),
            }
        })
    }
}

/// Everything that every store can hold, as bytes.
fn pack(packer: &mut Packer, record: &Record) {
    match record {
        Record::Queue(queue) => pack_queue(packer, queue),
        Record::Gate(gate) => {
            packer.text(gate.message_type.as_str());
            let (code, left) = match gate.gate {
                TypeGate::Open => (0, 0),
                TypeGate::Paused => (1, 0),
                TypeGate::Tripped => (2, 0),
                TypeGate::Probing { left } => (3, left),
            };
            packer.number(code);
            packer.number(u64::from(left));
        }
        Record::Waiting(waiting) => pack_waiting(packer, waiting),
        Record::Dead(dead) => pack_dead(packer, dead),
        Record::Completed(completed) => pack_completed(packer, completed),
        Record::Key(key) => {
            packer.text(key.key.as_str());
            packer.number(key.owner.number());
            match key.state {
                KeyState::Live => packer.number(0),
                KeyState::Dead => packer.number(1),
                KeyState::Done { until } => {
                    packer.number(2);
                    time(packer, until);
                }
            }
        }
        Record::Origin(origin) => {
            packer.text(&origin.origin);
            packer.number(origin.id.number());
            time(packer, origin.adopted_at);
        }
    }
}

fn pack_queue(packer: &mut Packer, queue: &QueueRecord) {
    packer.text(queue.name.as_str());
    packer.text(&serde_json::to_string(&queue.policy).unwrap_or_default());
    packer.number(u64::from(queue.paused));
    queue.flow.figures().into_iter().for_each(|figure| packer.number(figure as u64));
}

fn pack_waiting(packer: &mut Packer, waiting: &WaitingRecord) {
    pack_body(packer, &waiting.body);
    time(packer, waiting.due_at);
    packer.number(u64::from(waiting.suspect));
    packer.number(u64::from(waiting.deferred));
}

fn pack_dead(packer: &mut Packer, dead: &DeadRecord) {
    pack_body(packer, &dead.body);
    packer.number(dead.order);
    for text in [dead.set_aside.as_str(), dead.kind.as_str(), dead.reason.as_str(), searched(&dead.error)] {
        packer.text(text);
    }
    packer.number(dead.signature.to_bits());
    packer.maybe_text(dead.last_delivery.map(|token| token.to_string()).as_deref());
    time(packer, dead.quarantined_at);
    maybe_time(packer, dead.discarded_at);
    packer.maybe_text(dead.discarded_why.as_deref());
    maybe_time(packer, dead.holds_since);
}

fn pack_completed(packer: &mut Packer, completed: &CompletedRecord) {
    pack_body(packer, &completed.body);
    time(packer, completed.expires_at);
}

fn pack_body(packer: &mut Packer, body: &Body) {
    let message = &body.message;
    packer.number(message.id.number());
    packer.maybe_text(message.message_type.as_ref().map(sickbay_core::MessageType::as_str));
    packer.maybe_text(message.stream.as_ref().map(sickbay_core::StreamKey::as_str));
    packer.maybe_text(message.key.as_ref().map(sickbay_core::Key::as_str));
    packer.number(u64::from(message.priority.get()));
    time(packer, message.pushed_at);
    maybe_time(packer, message.deadline_at);
    packer.number(message.headers.len() as u64);
    for (name, value) in &message.headers {
        packer.text(name);
        packer.text(value);
    }
    bytes(packer, &message.payload);
    packer.number(u64::from(body.damaged));
    packer.number(u64::from(body.original_payload.is_some()));
    bytes(packer, body.original_payload.as_deref().unwrap_or_default());
    let c = &body.counters;
    for count in
        [c.deliveries, c.failures, c.crashes, c.charges, c.releases, c.expiries, c.replays, c.earlier]
    {
        packer.number(u64::from(count));
    }
    packer.number(u64::from(body.stages.bits()));
    packer.number(body.cause.map_or(0, cause_code) as u64);
    maybe_time(packer, body.first_failed_at);
    packer.number(body.history.len() as u64);
    body.history.iter().for_each(|attempt| pack_attempt(packer, attempt));
}

fn pack_attempt(packer: &mut Packer, attempt: &Attempt) {
    packer.number(u64::from(attempt.number));
    time(packer, attempt.started_at);
    time(packer, attempt.ended_at);
    packer.text(&attempt.worker);
    packer.number(attempt.end as u64);
    packer.outcome(attempt.failure.as_ref(), attempt.signature, attempt.ran, attempt.output.as_deref());
}

fn time(packer: &mut Packer, at: Timestamp) {
    packer.number(at.millis() as u64);
}

fn maybe_time(packer: &mut Packer, at: Option<Timestamp>) {
    packer.number(u64::from(at.is_some()));
    time(packer, at.unwrap_or_default());
}

fn bytes(packer: &mut Packer, bytes: &[u8]) {
    packer.number(bytes.len() as u64);
    packer.0.extend_from_slice(bytes);
}
