//! What a queue wants. Policy belongs to the queue and is read when it is applied, so a change takes
//! effect at the next decision.

mod retry;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use retry::{Backoff, RetryOverride, RetryPolicy};

use crate::breaker::BreakerPolicy;
use crate::classify::Rule;
use crate::failure::Reason;
use crate::name::MessageType;
use crate::signature::GroupingRule;

/// Whether a scheduled retry holds up the later messages of its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    /// Later messages wait until the retry is through.
    #[default]
    Strict,
    /// Later messages go on; the retry takes its turn when it is due.
    Available,
}

/// What becomes of a strict stream whose head is quarantined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenHeadQuarantined {
    /// The stream waits until the head is replayed, discarded, or the followers are released.
    #[default]
    Hold,
    /// The stream goes on without it.
    Pass,
}

/// Everything a queue wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueuePolicy {
    /// How failures are retried. Defaults to not at all: the first failure is the last.
    pub retry: RetryPolicy,
    /// Other retry policies for some message types or reasons; the first that matches wins.
    pub overrides: Vec<RetryOverride>,
    /// Rules that classify errors, before the presets; the first that matches wins.
    pub classification: Vec<Rule>,
    /// Rules that group failures, before the ordinary signature; the first that matches wins.
    pub grouping: Vec<GroupingRule>,
    /// How often a message may kill its worker, alone, before it is quarantined. Defaults to 3.
    pub crash_budget: u32,
    /// Defaults to strict.
    pub ordering: Ordering,
    /// Defaults to hold. Applies to strict streams.
    pub when_head_quarantined: WhenHeadQuarantined,
    /// How many consecutive messages of a stream one claim may take. Defaults to 16.
    pub run_max: u32,
    /// Pauses a message type whose failures pile up. Defaults to off.
    pub breaker: Option<BreakerPolicy>,
    /// How long the key of a completed message is remembered. Defaults to 24 h.
    pub key_window: Duration,
    /// How long completed messages are kept. Defaults to not at all.
    pub keep_completed: Duration,
    /// How long a lease lasts unless it is renewed. Defaults to 30 s.
    pub lease: Duration,
    /// How long a handler may run. Defaults to 5 min.
    pub time_budget: Duration,
}

impl Default for QueuePolicy {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::none(),
            overrides: Vec::new(),
            classification: Vec::new(),
            grouping: Vec::new(),
            crash_budget: 3,
            ordering: Ordering::default(),
            when_head_quarantined: WhenHeadQuarantined::default(),
            run_max: 16,
            breaker: None,
            key_window: Duration::from_secs(24 * 3600),
            keep_completed: Duration::ZERO,
            lease: Duration::from_secs(30),
            time_budget: Duration::from_secs(300),
        }
    }
}

impl QueuePolicy {
    /// The defaults with this retry policy.
    pub fn with_retry(retry: RetryPolicy) -> Self {
        Self { retry, ..Self::default() }
    }

    /// The retry policy for a failure of this message type and reason.
    pub fn retry_for(&self, message_type: Option<&MessageType>, reason: Reason) -> &RetryPolicy {
        let matching = self.overrides.iter().find(|o| o.matches(message_type, Some(reason)));
        matching.map_or(&self.retry, |o| &o.retry)
    }

    /// The most deliveries that any retry policy grants a message of this type. The gate refuses what
    /// was delivered more often, and so never speaks before [`decide`](crate::decide::decide) would.
    pub fn deliveries_max(&self, message_type: Option<&MessageType>) -> u32 {
        let own = self.overrides.iter().filter(|o| o.matches(message_type, None));
        let most = own.map(|o| o.retry.attempts_max()).max().unwrap_or(0);
        most.max(self.retry.attempts_max())
    }

    /// How often a message may kill its worker, alone; at least once.
    pub fn crash_budget(&self) -> u32 {
        self.crash_budget.max(1)
    }
}
