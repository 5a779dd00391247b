//! One exchange per turn: settlements in, deliveries out.

use std::time::Duration;

use crate::delivery::Delivery;
use crate::id::LeaseToken;
use crate::name::{QueueName, WorkerName};
use crate::settlement::{Settled, Settlement};

/// A worker process. What one process holds dies together, so a suspect is alone in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// A wish for deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The queue.
    pub queue: QueueName,
    /// Who asks.
    pub worker: WorkerName,
    /// The process that would die with it.
    pub process: ProcessId,
    /// At most so many deliveries.
    pub max: u32,
    /// How long to wait for the first one. Zero means not at all.
    pub wait: Duration,
    /// How long the leases last.
    pub lease: Duration,
}

/// Settlements and a claim.
#[derive(Debug, Default)]
pub struct Exchange {
    /// What became of earlier deliveries.
    pub settlements: Vec<Settlement>,
    /// The wish for more, if any.
    pub claim: Option<Claim>,
}

impl Exchange {
    /// Only settles.
    pub fn settle(settlements: Vec<Settlement>) -> Self {
        Self { settlements, claim: None }
    }

    /// Only claims.
    pub fn claim(claim: Claim) -> Self {
        Self { settlements: Vec::new(), claim: Some(claim) }
    }
}

/// What came of an exchange.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// One answer per settlement, in order.
    pub settled: Vec<Settled>,
    /// The deliveries claimed; empty if there was nothing.
    pub deliveries: Vec<Delivery>,
}

/// A wish to hold leases longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Which ones.
    pub tokens: Vec<LeaseToken>,
    /// How long from now.
    pub lease: Duration,
}
