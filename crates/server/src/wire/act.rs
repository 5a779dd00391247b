//! Acts on single messages and on batches of them.

use serde::{Deserialize, Serialize};
use sickbay_core::port;
use sickbay_core::{MessageId, QueueName};

use super::payload::{self, InvalidPayload};

/// Why a message is set aside by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Why {
    /// In words.
    pub why: String,
}

/// How one dead letter is sent back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayOne {
    /// To another queue than its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// With other bytes, if they are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// With other bytes, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

impl ReplayOne {
    /// The wish as the store takes it.
    pub fn into_core(self, id: MessageId) -> Result<port::Replay, InvalidPayload> {
        let payload = payload::join_some(self.payload, self.payload_base64)?;
        Ok(port::Replay { id, queue: self.queue, payload })
    }
}

/// The message to which something was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Its identity.
    pub id: MessageId,
    /// The id's first characters.
    pub short: String,
}

impl From<MessageId> for Acted {
    fn from(id: MessageId) -> Self {
        Self { id, short: id.short() }
    }
}

/// A wish to send one dead letter back, with its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Which one.
    pub id: MessageId,
    /// How.
    #[serde(default)]
    pub how: ReplayOne,
}

impl From<port::Replay> for Replay {
    fn from(replay: port::Replay) -> Self {
        let (payload, payload_base64) = payload::split_some(replay.payload.as_ref());
        Self { id: replay.id, how: ReplayOne { queue: replay.queue, payload, payload_base64 } }
    }
}

/// One act on a batch of messages: one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Send dead letters back.
    Replay {
        /// These.
        replays: Vec<Replay>,
    },
    /// Set live messages aside.
    DeadLetter {
        /// These.
        ids: Vec<MessageId>,
        /// In words.
        why: String,
    },
    /// Discard dead letters.
    Discard {
        /// These.
        ids: Vec<MessageId>,
        /// In words.
        why: String,
    },
    /// Bring discarded dead letters back.
    Restore {
        /// These.
        ids: Vec<MessageId>,
    },
    /// Remove what waits.
    Cancel {
        /// These.
        ids: Vec<MessageId>,
    },
    /// Make due what waits for its time.
    Hasten {
        /// These.
        ids: Vec<MessageId>,
    },
    /// Give what waits its attempts back.
    ResetAttempts {
        /// These.
        ids: Vec<MessageId>,
    },
}

/// What became of one act on one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is done.
    Done,
    /// There is no such message.
    NotFound,
    /// The message is in a state that does not allow it.
    Refused {
        /// Why, in words.
        why: String,
    },
}

impl From<port::Replayed> for Outcome {
    fn from(replayed: port::Replayed) -> Self {
        match replayed {
            port::Replayed::Done => Self::Done,
            port::Replayed::NotFound => Self::NotFound,
            port::Replayed::Refused { why } => Self::Refused { why },
        }
    }
}

impl From<Outcome> for port::Replayed {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::NotFound => Self::NotFound,
            Outcome::Refused { why } => Self::Refused { why },
        }
    }
}

/// What became of a batch of acts, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// One for each.
    pub outcomes: Vec<Outcome>,
}
