//! Quarantine: dead letters, their history, and how to ask for them (B1–B3).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::decide::SetAside;
use crate::delivery::{Cause, Counters};
use crate::failure::{Failure, Kind, Reason};
use crate::id::MessageId;
use crate::message::{Message, Status};
use crate::name::{MessageType, QueueName, StreamKey};
use crate::signature::Signature;
use crate::stage::Stages;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// It failed and was scheduled again.
    Failed,
    /// It was set aside.
    Quarantined,
    /// Its worker died.
    Crashed,
    /// Its lease ran out.
    LeaseExpired,
    /// It was given back untried, or deferred.
    Released,
    /// Not a delivery: a person or rule sent the message back from quarantine.
    Replayed,
    /// Not a delivery: a person gave the message its attempts back.
    Reset,
}

/// The record of one delivery and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which one: 1 for the first delivery ever, counting on across replays.
    pub number: u32,
    /// When it was handed out.
    pub started_at: Timestamp,
    /// When it was settled.
    pub ended_at: Timestamp,
    /// Who held it.
    pub worker: String,
    /// How it ended.
    pub end: AttemptEnd,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
    /// What failures of this kind have in common.
    pub signature: Option<Signature>,
    /// How long the handler ran; `None` if it never did.
    pub ran: Option<Duration>,
    /// The end of what the handler printed.
    pub output: Option<String>,
}

/// A dead letter as a row of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message's identity.
    pub id: MessageId,
    /// The queue it was in.
    pub queue: QueueName,
    /// Its type.
    pub message_type: Option<MessageType>,
    /// Its stream.
    pub stream: Option<StreamKey>,
    /// Why it was set aside.
    pub set_aside: SetAside,
    /// Whether trying again could have helped.
    pub kind: Kind,
    /// What went wrong last.
    pub reason: Reason,
    /// The last error's first line.
    pub error: String,
    /// What failures of this kind have in common.
    pub signature: Signature,
    /// What was counted in its last life.
    pub counters: Counters,
    /// When it was pushed.
    pub pushed_at: Timestamp,
    /// When it failed first.
    pub first_failed_at: Timestamp,
    /// When it failed last.
    pub last_failed_at: Timestamp,
    /// When it was set aside.
    pub quarantined_at: Timestamp,
    /// When it was discarded, if it was.
    pub discarded_at: Option<Timestamp>,
    /// Size of its payload.
    pub payload_bytes: u64,
}

/// All that is known of one message (B1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageView {
    /// The message. Its payload is the one that would be delivered.
    pub message: Message,
    /// The bytes it was pushed with, if a replay changed them.
    pub original_payload: Option<bytes::Bytes>,
    /// Which road it is on.
    pub status: Status,
    /// When it is delivered next, if that is known.
    pub due_at: Option<Timestamp>,
    /// What was counted.
    pub counters: Counters,
    /// Finished stages.
    pub stages: Stages,
    /// Why it is or was last delivered again.
    pub cause: Option<Cause>,
    /// Its worker died holding it.
    pub suspect: bool,
    /// Who holds it, if it is active.
    pub worker: Option<String>,
    /// The row of the quarantine, if it is dead or discarded.
    pub dead: Option<DeadLetter>,
    /// The token of its last delivery, if it is dead.
    pub last_delivery: Option<String>,
    /// Every attempt that did not simply succeed, oldest first.
    pub history: Vec<Attempt>,
}

/// Which dead letters are asked for. An empty filter means all that were not discarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuarantineFilter {
    /// Only of this queue.
    pub queue: Option<QueueName>,
    /// Only of this type.
    pub message_type: Option<MessageType>,
    /// Only with this reason.
    pub reason: Option<Reason>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only with this signature.
    pub signature: Option<Signature>,
    /// Only of this stream.
    pub stream: Option<StreamKey>,
    /// Only where the last error contains this text, ignoring case.
    pub error_contains: Option<String>,
    /// Only what was quarantined at or after this.
    pub since: Option<Timestamp>,
    /// Only what was quarantined before this.
    pub until: Option<Timestamp>,
    /// The discarded ones instead of those that wait.
    pub discarded: bool,
}

/// A page of a list, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Hand this in to go on; `None` at the end.
    pub next: Option<u64>,
}

/// Which part of a list is asked for, newest quarantined first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// At most so many rows.
    pub rows_max: u32,
    /// What the last page said, or `None` to begin.
    pub after: Option<u64>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { rows_max: 100, after: None }
    }
}
