//! The one place where it is decided what becomes of a message (A8).
//!
//! A failure, a panic, an overrun, a crash, an expired lease and a broker's own redelivery all meet
//! here. The function is pure: the same policy, delivery and outcome always give the same decision,
//! jitter included.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::Counters;
use crate::failure::{Failure, Kind, Reason};
use crate::gate::Refusal;
use crate::id::MessageId;
use crate::name::MessageType;
use crate::policy::QueuePolicy;

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler is done with it.
    Done,
    /// The handler failed it.
    Failed(Failure),
    /// The gate kept it from the handler.
    Refused(Refusal),
    /// The handler asked for it again after this long.
    Deferred(Duration),
    /// It was given back and never reached a handler.
    NotRun,
    /// Its worker died with it in hand.
    Crashed {
        /// Nothing else was in the worker's hands.
        alone: bool,
        /// What is known of the death: signal, exit code, last output.
        evidence: String,
    },
    /// Its lease ran out under a living worker.
    LeaseExpired,
}

/// Why a message was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SetAside {
    /// It was delivered more often than its queue allows.
    PoisonMessage,
    /// Its failure will not go away by trying again.
    NonRetryableError,
    /// It failed as often as its queue allows.
    MaxDeliveryCountExceeded,
    /// It killed its worker as often as its queue allows.
    CrashBudgetSpent,
    /// Its deadline passed.
    DeadlinePassed,
    /// Its bytes changed in the store.
    Corrupt,
    /// A person said so.
    Operator,
}

impl SetAside {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PoisonMessage,
        Self::NonRetryableError,
        Self::MaxDeliveryCountExceeded,
        Self::CrashBudgetSpent,
        Self::DeadlinePassed,
        Self::Corrupt,
        Self::Operator,
    ];

    /// The one that people see as this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// The word that people see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PoisonMessage => "PoisonMessage",
            Self::NonRetryableError => "NonRetryableError",
            Self::MaxDeliveryCountExceeded => "MaxDeliveryCountExceeded",
            Self::CrashBudgetSpent => "CrashBudgetSpent",
            Self::DeadlinePassed => "DeadlinePassed",
            Self::Corrupt => "Corrupt",
            Self::Operator => "Operator",
        }
    }
}

/// What the queue makes of an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is done.
    Complete,
    /// It failed and is delivered again after this long.
    Retry {
        /// Zero means at once.
        after: Duration,
        /// The failure to record.
        failure: Failure,
    },
    /// It is given back uncounted and delivered again after this long.
    Release {
        /// Zero means at once.
        after: Duration,
    },
    /// It is delivered again at once, counted, because its lease ended without an answer.
    Redeliver,
    /// It is set aside.
    Quarantine {
        /// Why.
        set_aside: SetAside,
        /// The failure to record.
        failure: Failure,
    },
}

/// What the decision needs to know about the delivery at hand.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The message.
    pub id: MessageId,
    /// Its type.
    pub message_type: Option<&'a MessageType>,
    /// What was counted, the delivery at hand included and its outcome not yet.
    pub counters: Counters,
}

/// Decides what becomes of a delivery under the policy in force now.
pub fn decide(policy: &QueuePolicy, facts: Facts<'_>, outcome: Outcome) -> Decision {
    match outcome {
        Outcome::Done => Decision::Complete,
        Outcome::Failed(failure) => failed(policy, facts, failure),
        Outcome::Refused(refusal) => refused(refusal),
        Outcome::Deferred(after) => Decision::Release { after },
        Outcome::NotRun => Decision::Release { after: Duration::ZERO },
        Outcome::Crashed { alone, evidence } => crashed(policy, facts, alone, evidence),
        Outcome::LeaseExpired => Decision::Redeliver,
    }
}

fn failed(policy: &QueuePolicy, facts: Facts<'_>, mut failure: Failure) -> Decision {
    if failure.kind == Kind::Poison && !crate::bug!(PoisonRetried) {
        return Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure };
    }
    let retry = policy.retry_for(facts.message_type, failure.reason);
    let failures = facts.counters.failures.saturating_add(u32::from(!crate::bug!(RetriedOnceTooOften)));
    // What the gate is bound to refuse next time need not wait for it.
    let delivered_out = facts.counters.counted() >= policy.deliveries_max(facts.message_type);
    if failures >= retry.attempts_max() || delivered_out {
        if failure.kind == Kind::Unknown {
            failure.kind = Kind::Poison;
        }
        return Decision::Quarantine { set_aside: SetAside::MaxDeliveryCountExceeded, failure };
    }
    let after = failure.retry_after.unwrap_or_else(|| retry.backoff(facts.id, failures));
    Decision::Retry { after, failure }
}

fn refused(refusal: Refusal) -> Decision {
    let (set_aside, failure) = match refusal {
        Refusal::TooManyDeliveries { count, limit } => (
            SetAside::PoisonMessage,
            Failure::new(
                Kind::Poison,
                Reason::PoisonMessage,
                format!("delivered {count} times; the limit is {limit}"),
            ),
        ),
        Refusal::Expired { late_by } => (
            SetAside::DeadlinePassed,
            Failure::new(Kind::Poison, Reason::Expired, format!("its deadline passed {late_by:?} ago")),
        ),
        Refusal::Invalid(failure) => (SetAside::NonRetryableError, failure),
    };
    Decision::Quarantine { set_aside, failure }
}

fn crashed(policy: &QueuePolicy, facts: Facts<'_>, alone: bool, evidence: String) -> Decision {
    let charges =
        facts.counters.charges.saturating_add(u32::from(alone && !crate::bug!(CrashBudgetOffByOne)));
    if alone && charges >= policy.crash_budget() {
        let failure = Failure::new(Kind::Poison, Reason::Crash, evidence);
        return Decision::Quarantine { set_aside: SetAside::CrashBudgetSpent, failure };
    }
    Decision::Redeliver
}
