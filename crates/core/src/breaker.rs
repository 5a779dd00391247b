//! The circuit breaker (A14): a message type whose failures pile up is paused, tried again with
//! single messages, and let go on when one of them succeeds.
//!
//! It is a state machine without a clock: whoever runs it says what happened and when, carries out
//! the [`Change`]s, and calls [`Breaker::on_time`] at [`Breaker::next_at`].

mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::name::MessageType;
use crate::signature::Signature;
use crate::stats::TypeGate;

use window::Windows;

/// A cool-down doubles with every probe that fails, but not beyond this.
pub const COOL_DOWN_MAX: Duration = Duration::from_secs(600);
/// So many message types can be paused by one breaker at a time; further ones are let through.
pub const PAUSED_TYPES_MAX: usize = 1024;
/// Probes that do not answer are replaced no sooner than this.
const PROBE_WAIT_MIN: Duration = Duration::from_secs(1);

/// Which failures are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountBy {
    /// Those of a message type that share a signature.
    #[default]
    Signature,
    /// All those of a message type.
    Type,
}

/// When a message type is paused, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerPolicy {
    /// More failures than this within any 60 s pause the type. Defaults to 30.
    pub failures_per_minute: u32,
    /// How long it is paused before it is probed. Doubles with every failed probe, up to 10 min.
    /// Defaults to 30 s.
    pub cool_down: Duration,
    /// How many messages are let through to see. At least one; defaults to 1.
    pub probes: u32,
    /// Which failures are counted together. Defaults to those of one signature.
    pub by: CountBy,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            failures_per_minute: 30,
            cool_down: Duration::from_secs(30),
            probes: 1,
            by: CountBy::default(),
        }
    }
}

impl BreakerPolicy {
    /// The cool-down after so many failed probes in a row.
    fn cool_down_after(&self, failed_probes: u32) -> Duration {
        let most = COOL_DOWN_MAX.max(self.cool_down);
        let factor = 2u32.checked_pow(failed_probes).unwrap_or(u32::MAX);
        self.cool_down.saturating_mul(factor).min(most)
    }
}

/// What the breaker makes of a message type. An open breaker lets nothing through, as in electricity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Deliveries flow.
    Closed,
    /// Deliveries are paused.
    Open {
        /// Since when.
        since: Timestamp,
        /// When it is probed.
        until: Timestamp,
        /// What the failures that opened it have in common.
        signature: Signature,
    },
    /// A few deliveries are let through to see.
    Probing {
        /// When they are replaced, should none of them answer.
        until: Timestamp,
    },
}

/// A gate to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose gate.
    pub message_type: MessageType,
    /// What it becomes.
    pub gate: TypeGate,
    /// Why, in words for the console and the log.
    pub why: String,
}

/// Watches the failures of one queue. A type that nobody paused costs nothing but the memory of its
/// last minute's failures, of at most 1,024 signatures.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    windows: Windows,
    tripped: BTreeMap<MessageType, Tripped>,
}

#[derive(Clone, Copy, Debug)]
struct Tripped {
    state: BreakerState,
    failed_probes: u32,
    cool_down: Duration,
    probes: u32,
}

impl Breaker {
    /// A breaker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A delivery of this type failed. Late failures of deliveries from before a pause are ignored.
    pub fn on_failure(
        &mut self,
        policy: &BreakerPolicy,
        now: Timestamp,
        message_type: &MessageType,
        signature: Signature,
    ) -> Option<Change> {
        match self.tripped.get(message_type) {
            None => self.count(policy, now, message_type, signature),
            Some(Tripped { state: BreakerState::Probing { .. }, failed_probes, .. }) => {
                let failed_probes = failed_probes.saturating_add(1);
                let why = format!("a probe failed with {signature}");
                Some(self.open(policy, now, message_type, signature, failed_probes, &why))
            }
            Some(_) => None,
        }
    }

    /// A delivery of this type succeeded: if it was a probe, the type goes on.
    pub fn on_success(&mut self, message_type: &MessageType) -> Option<Change> {
        let tripped = self.tripped.get(message_type)?;
        if !matches!(tripped.state, BreakerState::Probing { .. }) {
            return None;
        }
        self.shut(message_type, "a probe succeeded")
    }

    /// Does what time has made due: paused types are probed, and silent probes are replaced.
    pub fn on_time(&mut self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (message_type, tripped) in &mut self.tripped {
            let why = match tripped.state {
                BreakerState::Open { until, .. } if until <= now => "the cool-down is over",
                BreakerState::Probing { until } if until <= now => "no probe has answered",
                _ => continue,
            };
            let until = now.plus(tripped.cool_down.max(PROBE_WAIT_MIN));
            tripped.state = BreakerState::Probing { until };
            changes.push(Change {
                message_type: message_type.clone(),
                gate: TypeGate::Probing { left: tripped.probes },
                why: format!("{why}; {} let through to see", tripped.probes),
            });
        }
        changes
    }

    /// Lets a type go on by hand; `None` if the breaker had not paused it.
    pub fn close(&mut self, message_type: &MessageType) -> Option<Change> {
        self.shut(message_type, "closed by hand")
    }

    /// Lets every type go on: the queue no longer wants a breaker.
    pub fn close_all(&mut self) -> Vec<Change> {
        let types: Vec<MessageType> = self.tripped.keys().cloned().collect();
        types.iter().filter_map(|one| self.shut(one, "the queue has no breaker any more")).collect()
    }

    /// What it makes of a type.
    pub fn state(&self, message_type: &MessageType) -> BreakerState {
        self.tripped.get(message_type).map_or(BreakerState::Closed, |tripped| tripped.state)
    }

    /// When [`on_time`](Self::on_time) has something to do next.
    pub fn next_at(&self) -> Option<Timestamp> {
        let due = |tripped: &Tripped| match tripped.state {
            BreakerState::Open { until, .. } | BreakerState::Probing { until } => Some(until),
            BreakerState::Closed => None,
        };
        self.tripped.values().filter_map(due).min()
    }

    fn count(
        &mut self,
        policy: &BreakerPolicy,
        now: Timestamp,
        message_type: &MessageType,
        signature: Signature,
    ) -> Option<Change> {
        let counted = match policy.by {
            CountBy::Signature => Some(signature),
            CountBy::Type => None,
        };
        let limit = policy.failures_per_minute;
        let failures = self.windows.add(now, message_type, counted);
        if failures <= u64::from(limit) || self.tripped.len() >= PAUSED_TYPES_MAX {
            return None;
        }
        let what = counted.map_or_else(|| "of this type".to_owned(), |one| format!("of signature {one}"));
        let why = format!("more than {limit} failures {what} within a minute");
        Some(self.open(policy, now, message_type, signature, 0, &why))
    }

    fn open(
        &mut self,
        policy: &BreakerPolicy,
        now: Timestamp,
        message_type: &MessageType,
        signature: Signature,
        failed_probes: u32,
        why: &str,
    ) -> Change {
        self.windows.forget(message_type);
        let cool_down = policy.cool_down_after(failed_probes);
        let until = now.plus(cool_down);
        let state = BreakerState::Open { since: now, until, signature };
        let probes = policy.probes.max(1);
        let tripped = Tripped { state, failed_probes, cool_down, probes };
        self.tripped.insert(message_type.clone(), tripped);
        let why = format!("{why}; paused until {until}");
        Change { message_type: message_type.clone(), gate: TypeGate::Tripped, why }
    }

    fn shut(&mut self, message_type: &MessageType, why: &str) -> Option<Change> {
        self.tripped.remove(message_type)?;
        Some(Change { message_type: message_type.clone(), gate: TypeGate::Open, why: why.to_owned() })
    }
}
