//! How failures are retried (A7).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::failure::Reason;
use crate::id::MessageId;
use crate::name::MessageType;

/// How long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backoff {
    /// Always the same.
    Cooldown(Duration),
    /// `base × 2^failures`: with a base of 30 s, 1 min after the first failure, then 2, 4, 8 min.
    Exponential(Duration),
}

/// How often and when a failed message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// How many failures quarantine a message. 0 and 1 both mean that the first failure is the last.
    pub attempts: u32,
    /// Defaults to exponential with a base of 30 s.
    pub backoff: Backoff,
    /// No wait is longer than this. Defaults to 1 h.
    pub cap: Duration,
    /// The share of the wait, 0 to 1, that is left to chance. Defaults to 0.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            backoff: Backoff::Exponential(Duration::from_secs(30)),
            cap: Duration::from_secs(3600),
            jitter: 0.0,
        }
    }
}

impl RetryPolicy {
    /// The first failure is the last.
    pub fn none() -> Self {
        Self { attempts: 0, ..Self::default() }
    }

    /// So many attempts with the same pause between them.
    pub fn cooldown(attempts: u32, pause: Duration) -> Self {
        Self { attempts, backoff: Backoff::Cooldown(pause), ..Self::default() }
    }

    /// So many attempts with growing pauses.
    pub fn exponential(attempts: u32, base: Duration) -> Self {
        Self { attempts, backoff: Backoff::Exponential(base), ..Self::default() }
    }

    /// The failure that quarantines: at least the first.
    pub fn attempts_max(&self) -> u32 {
        self.attempts.max(1)
    }

    /// The wait after so many failures. Chance is drawn from the message and the count, so that the
    /// same question always has the same answer.
    pub fn backoff(&self, id: MessageId, failures: u32) -> Duration {
        let plain = match self.backoff {
            Backoff::Cooldown(pause) => pause,
            Backoff::Exponential(base) => doubled(base, failures),
        };
        let capped = plain.min(self.cap);
        let jitter = if self.jitter.is_finite() { self.jitter.clamp(0.0, 1.0) } else { 0.0 };
        if jitter == 0.0 {
            return capped;
        }
        let draw = xxh3_64_with_seed(&failures.to_le_bytes(), id.number());
        let chance = (draw >> 11) as f64 / (1u64 << 53) as f64;
        Duration::try_from_secs_f64(capped.as_secs_f64() * (1.0 - jitter * chance)).unwrap_or(capped)
    }
}

/// `base × 2^times`, as long as a duration can be.
fn doubled(base: Duration, times: u32) -> Duration {
    // A hundred doublings of the shortest duration already exceed the longest.
    (0..times.min(100)).fold(base, |wait, _| wait.saturating_mul(2))
}

/// A retry policy for some message types or reasons only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryOverride {
    /// Only for messages of this type.
    #[serde(default)]
    pub message_type: Option<MessageType>,
    /// Only for failures with this reason.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// What applies instead.
    pub retry: RetryPolicy,
}

impl RetryOverride {
    /// True if it is meant for this type and reason; a reason of `None` asks about any.
    pub fn matches(&self, message_type: Option<&MessageType>, reason: Option<Reason>) -> bool {
        let type_fits = self.message_type.as_ref().is_none_or(|wanted| Some(wanted) == message_type);
        let reason_fits = reason.is_none() || self.reason.is_none() || self.reason == reason;
        type_fits && reason_fits
    }
}
