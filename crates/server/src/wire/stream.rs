//! Streams.

use serde::{Deserialize, Serialize};
use sickbay_core::stats::{self, StreamState};
use sickbay_core::{MessageId, QueueName, StreamKey};

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
    /// Messages in the stream, head included.
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
