//! A delivery: a message in a worker's hands under a lease, and what is counted about it.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::LeaseToken;
use crate::message::Message;
use crate::stage::Stages;

/// An exclusive claim that expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token, which is also the delivery's identity.
    pub token: LeaseToken,
    /// When it was granted, by the store's clock: from then on time is counted by whoever holds it.
    pub granted_at: Timestamp,
    /// When the lease ends unless it is renewed, by the store's clock.
    pub expires_at: Timestamp,
}

/// What is counted about a message since it was pushed, last replayed or last reset. Deliveries are counted when
/// they are claimed, so a message that kills its worker counts too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Times it was handed out, the delivery at hand included.
    pub deliveries: u32,
    /// Times a handler or the gate failed it.
    pub failures: u32,
    /// Times its worker died with it in hand, alone or not.
    pub crashes: u32,
    /// Of those, the times it was alone in hand: only these are charged to it.
    pub charges: u32,
    /// Times it was given back without having been tried.
    pub releases: u32,
    /// Times its lease ran out under a living worker.
    pub expiries: u32,
    /// Times it was replayed from quarantine, over its whole life.
    pub replays: u32,
    /// Deliveries before the last replay or reset.
    pub earlier: u32,
}

impl Counters {
    /// The deliveries that count against the limit: neither given back untried nor lost to a crash,
    /// which has a budget of its own.
    pub const fn counted(&self) -> u32 {
        self.deliveries.saturating_sub(self.releases).saturating_sub(self.crashes)
    }

    /// The number of the delivery at hand, counting from the first one ever.
    pub const fn attempt_number(&self) -> u32 {
        self.earlier.saturating_add(self.deliveries)
    }

    /// The counters after a replay: a new life with the old history.
    #[must_use]
    pub const fn replayed(&self) -> Self {
        Self { replays: self.replays.saturating_add(1), ..self.reset() }
    }

    /// The counters of a message that was given its attempts back.
    #[must_use]
    pub const fn reset(&self) -> Self {
        Self {
            deliveries: 0,
            failures: 0,
            crashes: 0,
            charges: 0,
            releases: 0,
            expiries: 0,
            replays: self.replays,
            earlier: self.earlier.saturating_add(self.deliveries),
        }
    }

    /// True if nothing was counted in this life, so that there is nothing to give back.
    pub fn is_untouched(&self) -> bool {
        *self == self.reset()
    }
}

/// Why a message is delivered again. Every delivery after the first has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The last attempt failed.
    Failed,
    /// The worker died with it in hand.
    Crashed,
    /// The lease ran out under a living worker.
    LeaseExpired,
    /// It was given back untried, or the handler deferred it.
    Released,
    /// A person or rule sent it back from quarantine.
    Replayed,
}

impl Cause {
    /// The word that people see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Crashed => "crashed",
            Self::LeaseExpired => "lease expired",
            Self::Released => "released",
            Self::Replayed => "replayed",
        }
    }
}

/// A message in a worker's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The claim on it.
    pub lease: Lease,
    /// What was counted, this delivery included.
    pub counters: Counters,
    /// Stages that earlier attempts have finished.
    pub stages: Stages,
    /// Why it is delivered again; `None` the first time.
    pub cause: Option<Cause>,
    /// Its worker died holding it; it is alone in this worker's hands until it is settled.
    pub suspect: bool,
}

impl Delivery {
    /// The fencing token.
    pub const fn token(&self) -> LeaseToken {
        self.lease.token
    }
}
