//! Queues.

use serde::{Deserialize, Serialize};
use sickbay_core::{MessageType, QueueName};

use super::policy::Policy;
use super::stats::QueueStats;

/// A queue and what it wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Its name.
    pub name: QueueName,
    /// Its policy. Defaults to the defaults.
    #[serde(default)]
    pub policy: Policy,
}

/// All queues, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// Each with its policy.
    pub queues: Vec<Queue>,
}

/// A queue with its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    /// Its name.
    pub name: QueueName,
    /// Its policy.
    pub policy: Policy,
    /// What is in it and what went through it.
    pub stats: QueueStats,
}

/// Which part of a queue is paused or goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Part {
    /// Messages of this type only. Defaults to the whole queue.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageType>,
}

/// Something was done, and there is nothing to say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}
