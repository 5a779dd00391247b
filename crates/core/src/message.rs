//! Messages: what is pushed, and what it becomes once the store has numbered it.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::MessageId;
use crate::name::{Key, MessageType, QueueName, StreamKey};
use crate::stage::Stages;

/// How urgent a message is: 0 (can wait) to 9 (first). Defaults to 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    /// How many priorities there are.
    pub const COUNT: u8 = 10;

    /// Checks and wraps a priority; `None` above 9.
    pub const fn new(priority: u8) -> Option<Self> {
        if priority < Self::COUNT { Some(Self(priority)) } else { None }
    }

    /// 0 to 9, 9 first.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(4)
    }
}

impl TryFrom<u8> for Priority {
    type Error = String;
    fn try_from(priority: u8) -> Result<Self, String> {
        Self::new(priority).ok_or_else(|| format!("priority {priority} is above 9"))
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> u8 {
        priority.0
    }
}

/// Names and values that travel with a message. Order is kept.
pub type Headers = Vec<(String, String)>;

/// A message to push.
///
/// ```
/// # use sickbay_core::{NewMessage, QueueName};
/// # use std::time::Duration;
/// let message = NewMessage::new(QueueName::new("orders")?, r#"{"order":7}"#)
///     .delay(Duration::from_secs(30))
///     .header("tenant", "acme");
/// # Ok::<(), sickbay_core::name::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Where it goes.
    pub queue: QueueName,
    /// The bytes. Delivered exactly as they came.
    pub payload: Bytes,
    /// What kind of message it is. Defaults to none.
    pub message_type: Option<MessageType>,
    /// The stream whose order it keeps. Defaults to none.
    pub stream: Option<StreamKey>,
    /// Its idempotency key. Defaults to none.
    pub key: Option<Key>,
    /// Defaults to 4 of 0 to 9.
    pub priority: Priority,
    /// Not delivered before this long after the push. Defaults to zero.
    pub delay: Duration,
    /// Not handled later than this long after the push. Defaults to no deadline.
    pub deadline: Option<Duration>,
    /// Names and values that travel with it. Defaults to none.
    pub headers: Headers,
    /// Stages that are finished already. Defaults to none.
    pub stages: Stages,
}

impl NewMessage {
    /// A message of these bytes with every default.
    pub fn new(queue: QueueName, payload: impl Into<Bytes>) -> Self {
        Self {
            queue,
            payload: payload.into(),
            message_type: None,
            stream: None,
            key: None,
            priority: Priority::default(),
            delay: Duration::ZERO,
            deadline: None,
            headers: Vec::new(),
            stages: Stages::NONE,
        }
    }

    /// Says what kind of message it is.
    #[must_use]
    pub fn message_type(mut self, message_type: MessageType) -> Self {
        self.message_type = Some(message_type);
        self
    }

    /// Puts it into a stream.
    #[must_use]
    pub fn stream(mut self, stream: StreamKey) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Gives it an idempotency key.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets its priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Holds it back for this long.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Gives it a deadline, counted from the push.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A message the store knows. Identity and bytes never change, also across replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its identity.
    pub id: MessageId,
    /// The queue it is in.
    pub queue: QueueName,
    /// What kind of message it is.
    pub message_type: Option<MessageType>,
    /// The stream whose order it keeps.
    pub stream: Option<StreamKey>,
    /// Its idempotency key.
    pub key: Option<Key>,
    /// 0 to 9, 9 first.
    pub priority: Priority,
    /// When the store accepted it.
    pub pushed_at: Timestamp,
    /// When it is no longer worth handling.
    pub deadline_at: Option<Timestamp>,
    /// Names and values that travel with it.
    pub headers: Headers,
    /// The bytes as they came.
    pub payload: Bytes,
}

/// Which road a message is on (B2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waits to be delivered now.
    Pending,
    /// Waits for its time, without having failed.
    Scheduled,
    /// Is in a worker's hands.
    Active,
    /// Is done.
    Completed,
    /// Failed and waits for its retry.
    Failed,
    /// Is in quarantine.
    Dead,
    /// Was discarded from quarantine and can be restored until it is purged.
    Discarded,
}

impl Status {
    /// The word that people see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }
}
