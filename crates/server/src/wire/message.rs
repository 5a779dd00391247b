//! Messages: what is pushed, and everything known of one.

use serde::{Deserialize, Serialize};
use sickbay_core::delivery::{Cause, Counters};
use sickbay_core::message::{self, Priority, Status};
use sickbay_core::port;
use sickbay_core::quarantine;
use sickbay_core::{Key, MessageId, MessageType, QueueName, StreamKey};

use super::failure::Attempt;
use super::headers::Headers;
use super::payload::{self, InvalidPayload};
use super::quarantine::DeadLetter;
use super::stage::Stages;
use super::{Span, Time};

/// A message to push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewMessage {
    /// Where it goes. May be left out where the request names a queue for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// What kind of message it is.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageType>,
    /// The stream whose order it keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamKey>,
    /// Its idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// 0 to 9, 9 first. Defaults to 4.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: Priority,
    /// Not delivered before this long after the push. Defaults to zero.
    #[serde(skip_serializing_if = "is_default")]
    pub delay: Span,
    /// Not handled later than this long after the push. Defaults to no deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// Names and values that travel with it.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// Stages that are finished already.
    #[serde(skip_serializing_if = "Stages::is_none")]
    pub stages: Stages,
    /// The bytes, if they are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The bytes, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why a message cannot be pushed as it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// Nobody says where it goes.
    #[error("the message names no \"queue\", and the request names none for all")]
    NoQueue,
    /// Its payload is wrong.
    #[error(transparent)]
    Payload(#[from] InvalidPayload),
}

impl NewMessage {
    /// The message as the store takes it; `queue` is where it goes if it does not say.
    pub fn into_core(self, queue: Option<&QueueName>) -> Result<message::NewMessage, InvalidMessage> {
        let queue = self.queue.or_else(|| queue.cloned()).ok_or(InvalidMessage::NoQueue)?;
        Ok(message::NewMessage {
            queue,
            payload: payload::join(self.payload, self.payload_base64)?,
            message_type: self.message_type,
            stream: self.stream,
            key: self.key,
            priority: self.priority,
            delay: self.delay.into(),
            deadline: self.deadline.map(Into::into),
            headers: self.headers.0,
            stages: self.stages.0,
        })
    }
}

impl From<message::NewMessage> for NewMessage {
    fn from(message: message::NewMessage) -> Self {
        let (payload, payload_base64) = payload::split(&message.payload);
        Self {
            queue: Some(message.queue),
            message_type: message.message_type,
            stream: message.stream,
            key: message.key,
            priority: message.priority,
            delay: message.delay.into(),
            deadline: message.deadline.map(Into::into),
            headers: Headers(message.headers),
            stages: Stages(message.stages),
            payload,
            payload_base64,
        }
    }
}

/// A push of many messages, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Where those go that do not say it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// At most 10,000.
    pub messages: Vec<NewMessage>,
}

impl From<Vec<message::NewMessage>> for Push {
    /// Names the queue once where all messages go to the same one.
    fn from(messages: Vec<message::NewMessage>) -> Self {
        let first = messages.first().map(|message| message.queue.clone());
        let queue = first.filter(|first| messages.iter().all(|message| message.queue == *first));
        let mut messages: Vec<NewMessage> = messages.into_iter().map(Into::into).collect();
        if queue.is_some() {
            messages.iter_mut().for_each(|message| message.queue = None);
        }
        Self { queue, messages }
    }
}

/// What became of one pushed message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// The message that carries what was pushed.
    pub id: MessageId,
    /// The id's first characters.
    pub short: String,
    /// Its key was known, and nothing was stored.
    pub duplicate: bool,
}

impl From<port::Pushed> for Pushed {
    fn from(pushed: port::Pushed) -> Self {
        let id = pushed.id();
        Self { id, short: id.short(), duplicate: matches!(pushed, port::Pushed::Duplicate(_)) }
    }
}

impl From<Pushed> for port::Pushed {
    fn from(pushed: Pushed) -> Self {
        if pushed.duplicate { Self::Duplicate(pushed.id) } else { Self::New(pushed.id) }
    }
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAnswer {
    /// One for each message, in order.
    pub pushed: Vec<Pushed>,
}

/// What became of a stream of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinesAnswer {
    /// Lines that are durably stored, empty ones included: to go on, leave out so many.
    pub lines_stored: u64,
    /// Messages that are new.
    pub new: u64,
    /// Messages whose key was known.
    pub duplicates: u64,
}

/// All that is known of one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageView {
    /// Its identity.
    pub id: MessageId,
    /// The id's first characters.
    pub short: String,
    /// Which road it is on.
    pub status: Status,
    /// The queue it is in.
    pub queue: QueueName,
    /// What kind of message it is.
    #[serde(rename = "type")]
    pub message_type: Option<MessageType>,
    /// The stream whose order it keeps.
    pub stream: Option<StreamKey>,
    /// Its idempotency key.
    pub key: Option<Key>,
    /// 0 to 9, 9 first.
    pub priority: Priority,
    /// When the store accepted it.
    pub pushed_at: Time,
    /// When it is no longer worth handling.
    pub deadline_at: Option<Time>,
    /// When it is delivered next, if that is known.
    pub due_at: Option<Time>,
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
    /// Its row of the quarantine, if it is dead or discarded.
    pub dead: Option<DeadLetter>,
    /// The token of its last delivery, if it is dead.
    pub last_delivery: Option<String>,
    /// Every attempt that did not simply succeed, oldest first.
    pub history: Vec<Attempt>,
    /// Names and values that travel with it.
    pub headers: Headers,
    /// The bytes that would be delivered, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The same, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The bytes it was pushed with, if a replay changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_payload: Option<String>,
    /// The same, if they are no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_payload_base64: Option<String>,
}

impl From<quarantine::MessageView> for MessageView {
    fn from(view: quarantine::MessageView) -> Self {
        let message = view.message;
        let (payload, payload_base64) = payload::split(&message.payload);
        let (original_payload, original_payload_base64) = payload::split_some(view.original_payload.as_ref());
        Self {
            id: message.id,
            short: message.id.short(),
            status: view.status,
            queue: message.queue,
            message_type: message.message_type,
            stream: message.stream,
            key: message.key,
            priority: message.priority,
            pushed_at: message.pushed_at.into(),
            deadline_at: message.deadline_at.map(Into::into),
            due_at: view.due_at.map(Into::into),
            counters: view.counters,
            stages: Stages(view.stages),
            cause: view.cause,
            suspect: view.suspect,
            worker: view.worker,
            dead: view.dead.map(Into::into),
            last_delivery: view.last_delivery,
            history: view.history.into_iter().map(Into::into).collect(),
            headers: Headers(message.headers),
            payload,
            payload_base64,
            original_payload,
            original_payload_base64,
        }
    }
}

impl MessageView {
    /// The message as the store tells it.
    pub fn into_core(self) -> Result<quarantine::MessageView, InvalidPayload> {
        let message = message::Message {
            id: self.id,
            queue: self.queue,
            message_type: self.message_type,
            stream: self.stream,
            key: self.key,
            priority: self.priority,
            pushed_at: self.pushed_at.into(),
            deadline_at: self.deadline_at.map(Into::into),
            headers: self.headers.0,
            payload: payload::join(self.payload, self.payload_base64)?,
        };
        Ok(quarantine::MessageView {
            message,
            original_payload: payload::join_some(self.original_payload, self.original_payload_base64)?,
            status: self.status,
            due_at: self.due_at.map(Into::into),
            counters: self.counters,
            stages: self.stages.0,
            cause: self.cause,
            suspect: self.suspect,
            worker: self.worker,
            dead: self.dead.map(Into::into),
            last_delivery: self.last_delivery,
            history: self.history.into_iter().map(Into::into).collect(),
        })
    }
}
