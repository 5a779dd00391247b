//! Figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sickbay_core::stats::{self, TypeGate};
use sickbay_core::{MessageType, QueueName};

use super::Time;

/// A message type that is held, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldType {
    /// The type.
    #[serde(rename = "type")]
    pub message_type: MessageType,
    /// What holds it.
    pub gate: TypeGate,
}

/// What is in a queue and what went through it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Waiting to be delivered now.
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
    /// Ever pushed.
    pub pushed: u64,
    /// Ever completed.
    pub completed: u64,
    /// Pushes and deliveries that a key showed to be duplicates.
    pub duplicates: u64,
    /// Attempts that ever failed.
    pub failures: u64,
    /// Ever quarantined, each time counted.
    pub quarantined: u64,
    /// Ever replayed.
    pub replayed: u64,
    /// Ever removed for good.
    pub removed: u64,
    /// When the next scheduled or failed message is due.
    pub next_due_at: Option<Time>,
    /// When the last one is.
    pub latest_due_at: Option<Time>,
    /// Waiting messages by how often they failed.
    pub retry_counts: BTreeMap<u32, u64>,
    /// Dead letters by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Waiting messages that one more failure would quarantine.
    pub poison_candidates: u64,
    /// The queue is paused.
    pub paused: bool,
    /// Types that are held.
    pub paused_types: Vec<HeldType>,
}

macro_rules! convert {
    ($from:ty, $to:ty, $held:expr) => {
        impl From<$from> for $to {
            fn from(stats: $from) -> Self {
                Self {
                    pending: stats.pending,
                    scheduled: stats.scheduled,
                    failed: stats.failed,
                    active: stats.active,
                    dead: stats.dead,
                    discarded: stats.discarded,
                    pushed: stats.pushed,
                    completed: stats.completed,
                    duplicates: stats.duplicates,
                    failures: stats.failures,
                    quarantined: stats.quarantined,
                    replayed: stats.replayed,
                    removed: stats.removed,
                    next_due_at: stats.next_due_at.map(Into::into),
                    latest_due_at: stats.latest_due_at.map(Into::into),
                    retry_counts: stats.retry_counts,
                    reasons: stats.reasons,
                    poison_candidates: stats.poison_candidates,
                    paused: stats.paused,
                    paused_types: stats.paused_types.into_iter().map($held).collect(),
                }
            }
        }
    };
}

convert!(stats::QueueStats, QueueStats, |(message_type, gate)| HeldType { message_type, gate });
convert!(QueueStats, stats::QueueStats, |held: HeldType| (held.message_type, held.gate));

/// A queue's name and figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedStats {
    /// The queue.
    pub name: QueueName,
    /// Its figures.
    pub stats: QueueStats,
}

/// The figures of all queues, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// One for each.
    pub queues: Vec<NamedStats>,
}

/// Whether the owner of the store is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Always "ok": a store that is not well answers with a problem.
    pub status: String,
    /// The version of the program that owns the store.
    pub version: String,
    /// The number of its process.
    pub pid: u32,
    /// How many queues there are.
    pub queues: u64,
}
