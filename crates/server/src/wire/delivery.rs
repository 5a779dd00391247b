//! Deliveries: a message in a worker's hands.

use serde::{Deserialize, Serialize};
use sickbay_core::delivery::{self, Cause, Counters, Lease};
use sickbay_core::message::{Message, Priority};
use sickbay_core::{Key, MessageId, MessageType, QueueName, StreamKey, WorkerName};

use super::headers::Headers;
use super::payload::{self, InvalidPayload};
use super::stage::Stages;
use super::{Span, Time, Token};

/// A message in a worker's hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The message's identity.
    pub id: MessageId,
    /// The id's first characters.
    pub short: String,
    /// What settles it.
    pub token: Token,
    /// When the lease was granted, by the store's clock.
    pub granted_at: Time,
    /// When the lease ends unless it is extended.
    pub expires_at: Time,
    /// Which attempt this is, counting from the first one ever.
    pub attempt: u32,
    /// The queue.
    pub queue: QueueName,
    /// What kind of message it is.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageType>,
    /// The stream whose order it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamKey>,
    /// Its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// 0 to 9, 9 first.
    pub priority: Priority,
    /// When the store accepted it.
    pub pushed_at: Time,
    /// When it is no longer worth handling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Time>,
    /// What was counted, this delivery included.
    pub counters: Counters,
    /// Stages that earlier attempts have finished.
    #[serde(default, skip_serializing_if = "Stages::is_none")]
    pub stages: Stages,
    /// Why it is delivered again; left out the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Its worker died holding it, so it is alone until it is settled.
    #[serde(default)]
    pub suspect: bool,
    /// Names and values that travel with it.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The bytes, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The bytes, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

impl From<delivery::Delivery> for Delivery {
    fn from(delivery: delivery::Delivery) -> Self {
        let message = delivery.message;
        let (payload, payload_base64) = payload::split(&message.payload);
        Self {
            id: message.id,
            short: message.id.short(),
            token: delivery.lease.token.into(),
            granted_at: delivery.lease.granted_at.into(),
            expires_at: delivery.lease.expires_at.into(),
            attempt: delivery.counters.attempt_number(),
            queue: message.queue,
            message_type: message.message_type,
            stream: message.stream,
            key: message.key,
            priority: message.priority,
            pushed_at: message.pushed_at.into(),
            deadline_at: message.deadline_at.map(Into::into),
            counters: delivery.counters,
            stages: Stages(delivery.stages),
            cause: delivery.cause,
            suspect: delivery.suspect,
            headers: Headers(message.headers),
            payload,
            payload_base64,
        }
    }
}

impl Delivery {
    /// The delivery as workers know it.
    pub fn into_core(self) -> Result<delivery::Delivery, InvalidPayload> {
        let message = Message {
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
        Ok(delivery::Delivery {
            message,
            lease: Lease {
                token: self.token.into(),
                granted_at: self.granted_at.into(),
                expires_at: self.expires_at.into(),
            },
            counters: self.counters,
            stages: self.stages.0,
            cause: self.cause,
            suspect: self.suspect,
        })
    }
}

/// A wish for deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Receive {
    /// At most so many. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long to wait for the first one. Defaults to not at all.
    pub wait: Span,
    /// How long the leases last. Defaults to what the queue's policy says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
    /// Who asks. Defaults to "api". Deliveries of one worker are thought to die together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// What was delivered more often is quarantined instead. Defaults to what the policy in force says; a
    /// worker that abandons with a limit of its own says it here too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What a worker gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Empty if there was nothing.
    pub deliveries: Vec<Delivery>,
}

/// A wish to hold leases longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// Which ones.
    pub tokens: Vec<Token>,
    /// How long from now.
    pub lease: Span,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extended {
    /// The leases that are lost; all others hold.
    pub lost: Vec<Token>,
}
