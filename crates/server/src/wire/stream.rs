//! Streams.

use serde::{Deserialize, Serialize};
use sickbay_core::message::Status;
use sickbay_core::stats::{self, StreamState};
use sickbay_core::{MessageId, MessageType, QueueName, StreamKey};

use super::Time;

/// One stream as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamView {
    /// The queue.
    pub queue: QueueName,
    /// The key.
    pub key: StreamKey,
    /// Whether it moves.
    pub state: StreamState,
    /// The message at its head.
    pub head: Option<MessageId>,
    /// The first characters of the head's id.
    pub head_short: Option<String>,
    /// Since when it has been in this state, where that is known.
    pub since: Option<Time>,
    /// When the head is due, if it waits.
    pub due_at: Option<Time>,
    /// Messages in the stream: those that wait or are leased, and those in quarantine that hold it.
    pub length: u64,
}

impl From<stats::StreamView> for StreamView {
    fn from(view: stats::StreamView) -> Self {
        Self {
            queue: view.queue,
            key: view.key,
            state: view.state,
            head: view.head,
            head_short: view.head.map(MessageId::short),
            since: view.since.map(Into::into),
            due_at: view.due_at.map(Into::into),
            length: view.length,
        }
    }
}

impl From<StreamView> for stats::StreamView {
    fn from(view: StreamView) -> Self {
        Self {
            queue: view.queue,
            key: view.key,
            state: view.state,
            head: view.head,
            since: view.since.map(Into::into),
            due_at: view.due_at.map(Into::into),
            length: view.length,
        }
    }
}

/// The streams of a queue, blocked ones first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// At most as many as were asked for.
    pub streams: Vec<StreamView>,
}

/// How many streams are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsQuery {
    /// Defaults to 100, at most 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
}

/// Whether a stream was blocked and goes on now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// False if it was not blocked.
    pub released: bool,
}

/// A place in a stream that a dead letter keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHold {
    /// The dead letter.
    pub id: MessageId,
    /// The first characters of its id.
    pub short: String,
    /// Since when it holds the stream.
    pub since: Time,
}

/// A message of a stream that waits or is leased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// The message.
    pub id: MessageId,
    /// The first characters of its id.
    pub short: String,
    /// Its type.
    #[serde(rename = "type")]
    pub message_type: Option<MessageType>,
    /// Which road it is on.
    pub status: Status,
    /// When it may be delivered; followers wait for their turn besides.
    pub due_at: Time,
    /// It was let out of the order.
    pub deferred: bool,
    /// How often it failed since it was pushed, replayed or reset.
    pub failures: u32,
}

/// One stream with what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDetail {
    /// The stream as lists show it.
    pub stream: StreamView,
    /// The places that dead letters keep, in order, at most as many as were asked for.
    pub holds: Vec<StreamHold>,
    /// The entries in order, at most as many as were asked for.
    pub entries: Vec<StreamEntry>,
}

impl From<stats::StreamDetail> for StreamDetail {
    fn from(detail: stats::StreamDetail) -> Self {
        let hold = |hold: stats::StreamHold| StreamHold {
            id: hold.id,
            short: hold.id.short(),
            since: hold.since.into(),
        };
        let entry = |entry: stats::StreamEntry| StreamEntry {
            id: entry.id,
            short: entry.id.short(),
            message_type: entry.message_type,
            status: entry.status,
            due_at: entry.due_at.into(),
            deferred: entry.deferred,
            failures: entry.failures,
        };
        Self {
            stream: detail.view.into(),
            holds: detail.holds.into_iter().map(hold).collect(),
            entries: detail.entries.into_iter().map(entry).collect(),
        }
    }
}

impl From<StreamDetail> for stats::StreamDetail {
    fn from(detail: StreamDetail) -> Self {
        let hold = |hold: StreamHold| stats::StreamHold { id: hold.id, since: hold.since.into() };
        let entry = |entry: StreamEntry| stats::StreamEntry {
            id: entry.id,
            message_type: entry.message_type,
            status: entry.status,
            due_at: entry.due_at.into(),
            deferred: entry.deferred,
            failures: entry.failures,
        };
        Self {
            view: detail.stream.into(),
            holds: detail.holds.into_iter().map(hold).collect(),
            entries: detail.entries.into_iter().map(entry).collect(),
        }
    }
}

/// Which entries of a stream are reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetWhich {
    /// The first one that was not let out of the order.
    #[default]
    Head,
    /// All of them.
    All,
}

/// A wish to give a stream its attempts back and make it due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reset {
    /// Defaults to the head alone.
    pub entries: ResetWhich,
}

/// What a reset of a stream did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetAnswer {
    /// So many entries were looked at.
    pub entries: u64,
    /// So many got their attempts back; the others had used none, or are in a worker's hands.
    pub attempts_reset: u64,
    /// So many are due now that were not.
    pub hastened: u64,
    /// So many entries were beyond the limit of one request.
    pub left: u64,
}
