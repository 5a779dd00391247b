//! Figures about queues and streams (B12, B13).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::failure::Reason;
use crate::id::MessageId;
use crate::message::Status;
use crate::name::{MessageType, QueueName, StreamKey};
use crate::port::ProcessId;

/// What is in a queue and what went through it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Waiting to be delivered now, followers of streams and held types included.
    pub pending: u64,
    /// Waiting for their time without having failed.
    pub scheduled: u64,
    /// Failed and waiting for their retry.
    pub failed: u64,
    /// In workers' hands.
    pub active: u64,
    /// In quarantine.
    pub dead: u64,
    /// Discarded and not yet purged.
    pub discarded: u64,
    /// Ever pushed, adopted ones included.
    pub pushed: u64,
    /// Ever completed.
    pub completed: u64,
    /// Pushes that a key showed to be duplicates, and deliveries completed unrun for the same reason.
    pub duplicates: u64,
    /// Attempts that ever failed.
    pub failures: u64,
    /// Ever quarantined, each time counted.
    pub quarantined: u64,
    /// Ever replayed.
    pub replayed: u64,
    /// Ever removed for good: purged or cancelled.
    pub removed: u64,
    /// When the next scheduled or failed message is due.
    pub next_due_at: Option<Timestamp>,
    /// When the last one is.
    pub latest_due_at: Option<Timestamp>,
    /// Waiting messages by how often they failed.
    pub retry_counts: BTreeMap<u32, u64>,
    /// Dead letters by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Waiting messages that one more failure would quarantine.
    pub poison_candidates: u64,
    /// The queue is paused.
    pub paused: bool,
    /// Paused types, with who paused them.
    pub paused_types: Vec<(MessageType, TypeGate)>,
}

impl QueueStats {
    /// I1: every message ever pushed is in exactly one place.
    pub const fn adds_up(&self) -> bool {
        let here = self.pending + self.scheduled + self.failed + self.active + self.dead + self.discarded;
        self.pushed == here + self.completed + self.removed
    }

    /// Dead letters of this reason.
    pub fn dead_for(&self, reason: Reason) -> u64 {
        self.reasons.get(reason.as_str()).copied().unwrap_or(0)
    }
}

/// A process that works on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessView {
    /// The process, as its leases name it.
    pub process: ProcessId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The names of its workers, in order.
    pub workers: Vec<String>,
    /// The queues that they claim from, in order.
    pub queues: Vec<QueueName>,
    /// When it claimed last, or said that it lives.
    pub seen_at: Timestamp,
    /// How many messages it holds.
    pub holds: u64,
}

/// Whether messages of a type are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "gate")]
pub enum TypeGate {
    /// They are.
    Open,
    /// A person said no.
    Paused,
    /// The breaker said no.
    Tripped,
    /// The breaker lets so many through to see.
    Probing {
        /// How many are left.
        left: u32,
    },
}

/// Why a stream does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamState {
    /// Its head can be claimed.
    Ready,
    /// Its head is in a worker's hands.
    Leased,
    /// Its head waits for its retry or its time.
    Scheduled,
    /// Its head is in quarantine.
    Held,
}

/// One stream as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// The queue.
    pub queue: QueueName,
    /// The key.
    pub key: StreamKey,
    /// Whether it moves.
    pub state: StreamState,
    /// The message at its head.
    pub head: Option<MessageId>,
    /// Since when it has been in this state, where that is known.
    pub since: Option<Timestamp>,
    /// When the head is due, if it waits.
    pub due_at: Option<Timestamp>,
    /// Messages in the stream: those that wait or are leased, and those in quarantine that hold it.
    pub length: u64,
}

/// A place in a stream that a dead letter keeps: what was pushed later waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHold {
    /// The dead letter.
    pub id: MessageId,
    /// Since when it holds the stream.
    pub since: Timestamp,
}

/// A message of a stream that waits or is leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// The message.
    pub id: MessageId,
    /// Its type.
    pub message_type: Option<MessageType>,
    /// Which road it is on.
    pub status: Status,
    /// When it may be delivered; followers wait for their turn besides.
    pub due_at: Timestamp,
    /// It was let out of the order.
    pub deferred: bool,
    /// How often it failed in this life.
    pub failures: u32,
}

/// One stream with what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDetail {
    /// The stream as lists show it.
    pub view: StreamView,
    /// The places that dead letters keep, in order.
    pub holds: Vec<StreamHold>,
    /// The entries in order.
    pub entries: Vec<StreamEntry>,
}
