//! What a store holds, piece by piece, in a form that every store can give and take. This is how a store is
//! copied into another one.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::decide::SetAside;
use crate::delivery::{Cause, Counters};
use crate::failure::{Kind, Reason};
use crate::id::{LeaseToken, MessageId};
use crate::message::Message;
use crate::name::{Key, MessageType, QueueName};
use crate::policy::QueuePolicy;
use crate::quarantine::Attempt;
use crate::signature::Signature;
use crate::stage::Stages;
use crate::stats::TypeGate;

/// The kinds of records, in the order in which they are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// Queues.
    Queue,
    /// Types that are paused.
    Gate,
    /// Messages that wait.
    Waiting,
    /// Messages in quarantine, discarded ones included.
    Dead,
    /// Completed messages that are kept for a while.
    Completed,
    /// Idempotency keys.
    Key,
    /// Where adopted messages came from.
    Origin,
}

impl RecordKind {
    /// All of them, in order.
    pub const ALL: [Self; 7] =
        [Self::Queue, Self::Gate, Self::Waiting, Self::Dead, Self::Completed, Self::Key, Self::Origin];

    /// The one that comes after it.
    pub fn next(self) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind > self)
    }

    /// The word that people see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queues",
            Self::Gate => "paused types",
            Self::Waiting => "waiting messages",
            Self::Dead => "dead letters",
            Self::Completed => "completed messages",
            Self::Key => "keys",
            Self::Origin => "origins",
        }
    }
}

/// Where the reading of a store's records has got to. Only the store that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Records of this kind come next.
    pub kind: RecordKind,
    /// Those after this number …
    pub number: i64,
    /// … and this text.
    pub text: String,
}

impl Cursor {
    /// Before the first record of a kind.
    pub const fn start(kind: RecordKind) -> Self {
        Self { kind, number: i64::MIN, text: String::new() }
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::start(RecordKind::Queue)
    }
}

/// Records that follow each other, all of one kind.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// The records.
    pub records: Vec<Record>,
    /// Where to go on; `None` after the last record of the last kind.
    pub next: Option<Cursor>,
}

/// One thing that a store holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A queue.
    Queue(Box<QueueRecord>),
    /// A type that is paused.
    Gate(GateRecord),
    /// A message that waits.
    Waiting(Box<WaitingRecord>),
    /// A message in quarantine.
    Dead(Box<DeadRecord>),
    /// A completed message that is kept.
    Completed(Box<CompletedRecord>),
    /// An idempotency key.
    Key(KeyRecord),
    /// Where an adopted message came from.
    Origin(OriginRecord),
}

impl Record {
    /// Its kind.
    pub const fn kind(&self) -> RecordKind {
        match self {
            Self::Queue(_) => RecordKind::Queue,
            Self::Gate(_) => RecordKind::Gate,
            Self::Waiting(_) => RecordKind::Waiting,
            Self::Dead(_) => RecordKind::Dead,
            Self::Completed(_) => RecordKind::Completed,
            Self::Key(_) => RecordKind::Key,
            Self::Origin(_) => RecordKind::Origin,
        }
    }

    /// The queue it belongs to.
    pub const fn queue(&self) -> &QueueName {
        match self {
            Self::Queue(record) => &record.name,
            Self::Gate(record) => &record.queue,
            Self::Waiting(record) => &record.body.message.queue,
            Self::Dead(record) => &record.body.message.queue,
            Self::Completed(record) => &record.body.message.queue,
            Self::Key(record) => &record.queue,
            Self::Origin(record) => &record.queue,
        }
    }

    /// The message in it, if it is one.
    pub const fn body(&self) -> Option<&Body> {
        match self {
            Self::Waiting(record) => Some(&record.body),
            Self::Dead(record) => Some(&record.body),
            Self::Completed(record) => Some(&record.body),
            Self::Queue(_) | Self::Gate(_) | Self::Key(_) | Self::Origin(_) => None,
        }
    }
}

/// A queue, with what went through it. What is in it is told by the other records.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRecord {
    /// Its name.
    pub name: QueueName,
    /// What it wants.
    pub policy: QueuePolicy,
    /// It is paused.
    pub paused: bool,
    /// What went through it.
    pub flow: Flow,
}

/// What ever went through a queue; [`QueueStats`](crate::stats::QueueStats) says what each means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Ever pushed.
    pub pushed: i64,
    /// Ever completed.
    pub completed: i64,
    /// Ever found to be duplicates.
    pub duplicates: i64,
    /// Attempts that ever failed.
    pub failures: i64,
    /// Ever quarantined.
    pub quarantined: i64,
    /// Ever replayed.
    pub replayed: i64,
    /// Ever removed for good.
    pub removed: i64,
}

impl Flow {
    /// The figures in the order of their declaration.
    pub const fn figures(&self) -> [i64; 7] {
        [
            self.pushed,
            self.completed,
            self.duplicates,
            self.failures,
            self.quarantined,
            self.replayed,
            self.removed,
        ]
    }
}

/// A type that is paused, tripped or probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRecord {
    /// The queue.
    pub queue: QueueName,
    /// The type.
    pub message_type: MessageType,
    /// Never [`TypeGate::Open`].
    pub gate: TypeGate,
}

/// A message with everything that is known of it wherever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The message.
    pub message: Message,
    /// Its bytes are not those that were pushed: the checksum says so. They are carried on as they are, and stay
    /// known to be damaged.
    pub damaged: bool,
    /// The bytes it was pushed with, if a replay changed them.
    pub original_payload: Option<Bytes>,
    /// What was counted.
    pub counters: Counters,
    /// Finished stages.
    pub stages: Stages,
    /// Why it is or was last delivered again.
    pub cause: Option<Cause>,
    /// When it failed first.
    pub first_failed_at: Option<Timestamp>,
    /// Every attempt that did not simply succeed, oldest first.
    pub history: Vec<Attempt>,
}

impl Body {
    /// True if nothing ever happened to the message.
    pub fn is_untouched(&self) -> bool {
        self.counters == Counters::default()
            && self.stages == Stages::NONE
            && self.cause.is_none()
            && self.first_failed_at.is_none()
            && self.history.is_empty()
            && self.original_payload.is_none()
    }

    /// How many bytes of payload it has.
    pub fn bytes(&self) -> u64 {
        let original = self.original_payload.as_ref().map_or(0, Bytes::len);
        (self.message.payload.len() + original) as u64
    }
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRecord {
    /// The message.
    pub body: Body,
    /// When it may be delivered.
    pub due_at: Timestamp,
    /// Its worker died holding it.
    pub suspect: bool,
    /// It was let out of the order of its stream.
    pub deferred: bool,
}

/// A message in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadRecord {
    /// The message.
    pub body: Body,
    /// Its place in the quarantine: later ones have larger numbers.
    pub order: u64,
    /// Why it was set aside.
    pub set_aside: SetAside,
    /// Whether trying again could have helped.
    pub kind: Kind,
    /// What went wrong last.
    pub reason: Reason,
    /// What failures of this kind have in common.
    pub signature: Signature,
    /// The last error, or as much of its beginning as the store keeps beside the history.
    pub error: String,
    /// The token of its last delivery.
    pub last_delivery: Option<LeaseToken>,
    /// When it was set aside.
    pub quarantined_at: Timestamp,
    /// When it was discarded, if it was.
    pub discarded_at: Option<Timestamp>,
    /// What was said when it was discarded.
    pub discarded_why: Option<String>,
    /// Since when it holds its stream, if it does.
    pub holds_since: Option<Timestamp>,
}

/// A completed message that its queue keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedRecord {
    /// The message.
    pub body: Body,
    /// Until when it is kept.
    pub expires_at: Timestamp,
}

/// What became of the message that owns a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It waits.
    Live,
    /// It is done, and stands for the key until then.
    Done {
        /// The end of the window.
        until: Timestamp,
    },
    /// It is in quarantine: the key is free for another.
    Dead,
}

/// An idempotency key and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The queue.
    pub queue: QueueName,
    /// The key.
    pub key: Key,
    /// The message that owns it. It may be gone.
    pub owner: MessageId,
    /// What became of the owner.
    pub state: KeyState,
}

/// Where an adopted message came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginRecord {
    /// The queue.
    pub queue: QueueName,
    /// What the source called it.
    pub origin: String,
    /// The message it became. It may be gone.
    pub id: MessageId,
    /// When it was adopted.
    pub adopted_at: Timestamp,
}

/// Numbers that a store never gives again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The last number given to a message.
    pub last_number: u64,
    /// The last place given in the quarantine.
    pub last_dead: u64,
    /// The epoch of its lease tokens.
    pub epoch: u64,
}
