//! What the memory store knows. Plain maps; every rule is a walk over them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sickbay_core::clock::Timestamp;
use sickbay_core::decide::SetAside;
use sickbay_core::delivery::{Cause, Counters};
use sickbay_core::failure::Failure;
use sickbay_core::message::{Message, Status};
use sickbay_core::port::ProcessId;
use sickbay_core::quarantine::{Attempt, AttemptEnd};
use sickbay_core::signature::Signature;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Key, LeaseToken, MessageId, MessageType, QueueName, QueuePolicy, Stages, StoreError, StreamKey,
    WorkerName,
};

use crate::door::{self, Limits};

/// Everything.
pub(super) struct State {
    pub limits: Limits,
    pub process: ProcessId,
    pub epoch: u64,
    pub closed: bool,
    /// The latest time seen: within one life of the store time does not go back.
    pub last_now: Timestamp,
    /// The number of the last message (rule 1).
    pub last: u64,
    /// The number of the last claim that handed something out (rule 10).
    pub claims: u64,
    /// How often anything was set aside: the order of the quarantine.
    pub set_asides: u64,
    pub queues: BTreeMap<QueueName, Queue>,
    pub messages: BTreeMap<MessageId, Record>,
    pub keys: BTreeMap<(QueueName, Key), Owner>,
    pub origins: BTreeMap<(QueueName, String), (MessageId, Timestamp)>,
    /// Completed messages, and until when they are kept (rule 32).
    pub kept: BTreeMap<MessageId, (Record, Timestamp)>,
    /// The queues each process has claimed from, when last, and by which worker (rules 18 and 41).
    pub claimed_from: BTreeMap<ProcessId, BTreeMap<QueueName, (Timestamp, WorkerName)>>,
}

/// A queue: its policy, its gates, and what went through it.
#[derive(Default)]
pub(super) struct Queue {
    pub policy: Arc<QueuePolicy>,
    pub paused: bool,
    pub gates: BTreeMap<MessageType, TypeGate>,
    /// Places that quarantined messages keep in their streams (rule 23).
    pub holds: BTreeMap<StreamKey, BTreeSet<MessageId>>,
    pub pushed: u64,
    pub completed: u64,
    pub duplicates: u64,
    pub failures: u64,
    pub quarantined: u64,
    pub replayed: u64,
    pub removed: u64,
}

/// A message and what became of it so far. What is done or removed has no record.
#[derive(Clone)]
pub(super) struct Record {
    pub message: Message,
    pub checksum: u64,
    pub original_payload: Option<Bytes>,
    pub counters: Counters,
    pub stages: Stages,
    pub cause: Option<Cause>,
    pub suspect: bool,
    /// Let out of its stream's order (rule 19).
    pub deferred: bool,
    /// When it may be delivered; it keeps it while it is leased (rule 8).
    pub due_at: Timestamp,
    pub place: Place,
    pub history: Vec<Attempt>,
    pub last_token: Option<LeaseToken>,
}

/// Where a message is.
#[derive(Clone)]
pub(super) enum Place {
    Waiting,
    Leased(Held),
    Dead(Dead),
    Discarded(Dead, Timestamp),
    Completed,
}

/// Who holds a message.
#[derive(Clone)]
pub(super) struct Held {
    pub token: LeaseToken,
    pub worker: String,
    pub process: ProcessId,
    pub started_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Why a message was set aside.
#[derive(Clone)]
pub(super) struct Dead {
    pub order: u64,
    pub set_aside: SetAside,
    pub failure: Failure,
    pub signature: Signature,
    pub quarantined_at: Timestamp,
}

/// Who carries a key, and until when it is known to be done.
pub(super) struct Owner {
    pub id: MessageId,
    pub done_until: Option<Timestamp>,
}

/// How an attempt ended, as its row in the history says it.
pub(super) struct Ending {
    pub end: AttemptEnd,
    pub failure: Option<Failure>,
    pub signature: Option<Signature>,
    pub ran: Option<std::time::Duration>,
    pub output: Option<String>,
}

impl Ending {
    pub(super) fn new(end: AttemptEnd) -> Self {
        Self { end, failure: None, signature: None, ran: None, output: None }
    }
}

impl Record {
    pub(super) fn held(&self) -> Option<&Held> {
        match &self.place {
            Place::Leased(held) => Some(held),
            _ => None,
        }
    }

    /// Its bytes are those that were pushed (rule 12).
    pub(super) fn is_intact(&self) -> bool {
        door::checksum(&self.message.payload) == self.checksum
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Waiting)
    }

    /// Waiting or leased: an entry of its stream, if it has one (rule 19).
    pub(super) fn is_live(&self) -> bool {
        matches!(self.place, Place::Waiting | Place::Leased(_))
    }

    pub(super) fn status(&self, now: Timestamp) -> Status {
        match self.place {
            Place::Waiting => door::waiting_status(self.counters.failures, self.due_at, now),
            Place::Leased(_) => Status::Active,
            Place::Dead(_) => Status::Dead,
            Place::Discarded(..) => Status::Discarded,
            Place::Completed => Status::Completed,
        }
    }

    /// Writes the row of the delivery at hand, or of an act on a message that nobody holds.
    pub(super) fn record(&mut self, ending: Ending, now: Timestamp) {
        let (started_at, worker) =
            self.held().map_or((now, String::new()), |held| (held.started_at, held.worker.clone()));
        self.history.push(Attempt {
            number: self.counters.attempt_number(),
            started_at,
            ended_at: now,
            worker,
            end: ending.end,
            failure: ending.failure,
            signature: ending.signature,
            ran: ending.ran,
            output: ending.output,
        });
    }
}

impl State {
    pub(super) fn queue(&self, name: &QueueName) -> Result<&Queue, StoreError> {
        self.queues.get(name).ok_or_else(|| self.unknown(name))
    }

    pub(super) fn queue_mut(&mut self, name: &QueueName) -> Result<&mut Queue, StoreError> {
        if !self.queues.contains_key(name) {
            return Err(self.unknown(name));
        }
        Ok(self.queues.entry(name.clone()).or_default())
    }

    fn unknown(&self, name: &QueueName) -> StoreError {
        door::unknown_queue(name, self.queues.keys().map(QueueName::as_str))
    }

    /// A message and its queue, which always exists.
    pub(super) fn both(&mut self, id: MessageId) -> Option<(&mut Record, &mut Queue)> {
        let record = self.messages.get_mut(&id)?;
        let queue = self.queues.get_mut(&record.message.queue)?;
        Some((record, queue))
    }

    /// Sets a message aside, wherever it was (rules 12, 13, 17, 27). Counting is the caller's.
    pub(super) fn set_aside(
        &mut self,
        id: MessageId,
        set_aside: SetAside,
        mut ending: Ending,
        now: Timestamp,
    ) {
        let order = self.set_asides + 1;
        let Some((record, queue)) = self.both(id) else { return };
        let Some(failure) = ending.failure.clone() else { return };
        let signature =
            ending.signature.unwrap_or_else(|| door::signature(&record.message, &failure, &queue.policy));
        ending.signature = Some(signature);
        record.record(ending, now);
        record.place = Place::Dead(Dead { order, set_aside, failure, signature, quarantined_at: now });
        record.suspect = false; // rule 18
        queue.quarantined += 1;
        queue.failures += u64::from(set_aside != SetAside::Operator);
        if let Some(stream) = &record.message.stream
            && !record.deferred
            && queue.holds_heads()
        {
            queue.holds.entry(stream.clone()).or_default().insert(id); // rule 23
        }
        self.set_asides = order;
    }

    /// Forgets a message for good.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Record> {
        let record = self.messages.remove(&id)?;
        self.disown(&record);
        Some(record)
    }

    /// Forgets the key of a message that leaves its queue without having been done.
    pub(super) fn disown(&mut self, record: &Record) {
        if let Some(key) = &record.message.key {
            let key = (record.message.queue.clone(), key.clone());
            if self
                .keys
                .get(&key)
                .is_some_and(|owner| owner.id == record.message.id && owner.done_until.is_none())
            {
                self.keys.remove(&key);
            }
        }
    }
}
