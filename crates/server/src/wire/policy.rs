//! Policies with durations that people can read.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sickbay_core::breaker::{self, CountBy};
use sickbay_core::classify::Rule;
use sickbay_core::failure::Reason;
use sickbay_core::policy::{self, Ordering, WhenHeadQuarantined};
use sickbay_core::signature::GroupingRule;
use sickbay_core::{MessageType, QueuePolicy};

use super::Span;

/// How long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// Always the same.
    Cooldown(Span),
    /// The base, doubled with each failure.
    Exponential(Span),
}

/// How often and when a failed message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// How many failures quarantine a message.
    pub attempts: u32,
    /// Defaults to exponential with a base of 30 s.
    pub backoff: Backoff,
    /// No wait is longer. Defaults to 1 h.
    pub cap: Span,
    /// The share of the wait that is left to chance, 0 to 1. Defaults to 0.
    #[serde(serialize_with = "write_share", deserialize_with = "read_share")]
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        policy::RetryPolicy::default().into()
    }
}

impl From<policy::RetryPolicy> for Retry {
    fn from(retry: policy::RetryPolicy) -> Self {
        let backoff = match retry.backoff {
            policy::Backoff::Cooldown(pause) => Backoff::Cooldown(pause.into()),
            policy::Backoff::Exponential(base) => Backoff::Exponential(base.into()),
        };
        Self { attempts: retry.attempts, backoff, cap: retry.cap.into(), jitter: retry.jitter }
    }
}

impl From<Retry> for policy::RetryPolicy {
    fn from(retry: Retry) -> Self {
        let backoff = match retry.backoff {
            Backoff::Cooldown(pause) => policy::Backoff::Cooldown(pause.into()),
            Backoff::Exponential(base) => policy::Backoff::Exponential(base.into()),
        };
        Self { attempts: retry.attempts, backoff, cap: retry.cap.into(), jitter: retry.jitter }
    }
}

/// JSON has no word for what is not a number; the store shall refuse it, not the paper it is written on.
fn write_share<S: Serializer>(share: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if share.is_finite() { serializer.serialize_f64(*share) } else { serializer.collect_str(share) }
}

fn read_share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Share;
    impl Visitor<'_> for Share {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number between 0 and 1")
        }

        fn visit_f64<E: Error>(self, share: f64) -> Result<f64, E> {
            Ok(share)
        }

        fn visit_u64<E: Error>(self, share: u64) -> Result<f64, E> {
            Ok(share as f64)
        }

        fn visit_i64<E: Error>(self, share: i64) -> Result<f64, E> {
            Ok(share as f64)
        }

        fn visit_str<E: Error>(self, share: &str) -> Result<f64, E> {
            share.parse().map_err(|_| E::custom("a number between 0 and 1 is expected"))
        }
    }
    deserializer.deserialize_any(Share)
}

/// A retry policy for some message types or reasons only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Only for messages of this type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageType>,
    /// Only for failures with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What applies instead.
    pub retry: Retry,
}

/// When a message type is paused by itself, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Breaker {
    /// More failures than this within any minute pause the type.
    pub failures_per_minute: u32,
    /// How long it is paused before it is probed.
    pub cool_down: Span,
    /// How many messages are let through to see.
    pub probes: u32,
    /// Which failures are counted together.
    pub by: CountBy,
}

impl Default for Breaker {
    fn default() -> Self {
        breaker::BreakerPolicy::default().into()
    }
}

impl From<breaker::BreakerPolicy> for Breaker {
    fn from(breaker: breaker::BreakerPolicy) -> Self {
        Self {
            failures_per_minute: breaker.failures_per_minute,
            cool_down: breaker.cool_down.into(),
            probes: breaker.probes,
            by: breaker.by,
        }
    }
}

impl From<Breaker> for breaker::BreakerPolicy {
    fn from(breaker: Breaker) -> Self {
        Self {
            failures_per_minute: breaker.failures_per_minute,
            cool_down: breaker.cool_down.into(),
            probes: breaker.probes,
            by: breaker.by,
        }
    }
}

/// Everything a queue wants. What is left out has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How failures are retried. Defaults to not at all.
    pub retry: Retry,
    /// Other retry policies for some types or reasons; the first that matches wins.
    pub overrides: Vec<Override>,
    /// Rules that classify errors; the first that matches wins.
    pub classification: Vec<Rule>,
    /// Rules that group failures; the first that matches wins.
    pub grouping: Vec<GroupingRule>,
    /// How often a message may kill its worker, alone. Defaults to 3.
    pub crash_budget: u32,
    /// Defaults to strict.
    pub ordering: Ordering,
    /// Defaults to hold.
    pub when_head_quarantined: WhenHeadQuarantined,
    /// How many consecutive messages of a stream one claim may take. Defaults to 16.
    pub run_max: u32,
    /// Pauses a message type whose failures pile up. Defaults to off.
    pub breaker: Option<Breaker>,
    /// How long the key of a completed message is remembered. Defaults to 1 day.
    pub key_window: Span,
    /// How long completed messages are kept. Defaults to not at all.
    pub keep_completed: Span,
    /// How long a lease lasts unless it is extended. Defaults to 30 s.
    pub lease: Span,
    /// How long a handler may run. Defaults to 5 min.
    pub time_budget: Span,
}

impl Default for Policy {
    fn default() -> Self {
        QueuePolicy::default().into()
    }
}

impl From<QueuePolicy> for Policy {
    fn from(policy: QueuePolicy) -> Self {
        let overrides = policy.overrides.into_iter().map(|one| Override {
            message_type: one.message_type,
            reason: one.reason,
            retry: one.retry.into(),
        });
        Self {
            retry: policy.retry.into(),
            overrides: overrides.collect(),
            classification: policy.classification,
            grouping: policy.grouping,
            crash_budget: policy.crash_budget,
            ordering: policy.ordering,
            when_head_quarantined: policy.when_head_quarantined,
            run_max: policy.run_max,
            breaker: policy.breaker.map(Into::into),
            key_window: policy.key_window.into(),
            keep_completed: policy.keep_completed.into(),
            lease: policy.lease.into(),
            time_budget: policy.time_budget.into(),
        }
    }
}

impl From<Policy> for QueuePolicy {
    fn from(policy: Policy) -> Self {
        let overrides = policy.overrides.into_iter().map(|one| policy::RetryOverride {
            message_type: one.message_type,
            reason: one.reason,
            retry: one.retry.into(),
        });
        Self {
            retry: policy.retry.into(),
            overrides: overrides.collect(),
            classification: policy.classification,
            grouping: policy.grouping,
            crash_budget: policy.crash_budget,
            ordering: policy.ordering,
            when_head_quarantined: policy.when_head_quarantined,
            run_max: policy.run_max,
            breaker: policy.breaker.map(Into::into),
            key_window: policy.key_window.into(),
            keep_completed: policy.keep_completed.into(),
            lease: policy.lease.into(),
            time_budget: policy.time_budget.into(),
        }
    }
}
