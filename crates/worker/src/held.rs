//! A delivery in this worker's hands.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sickbay_core::decide::Facts;
use sickbay_core::{Delivery, LeaseToken, Stages, Timestamp};

use crate::flag::Flag;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicUsize, Ordering};

/// A delivery, and what the worker and the handler note about it. One allocation per delivery: the
/// buffer, the handler's context, the lease keeper and the outbox all point here.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) delivery: Delivery,
    pub(crate) claimed_at: Timestamp,
    /// The handler is told that it works in vain.
    pub(crate) told: Flag,
    /// The handler is to be dropped: the lease is lost, or the worker stops.
    pub(crate) dropped: Flag,
    /// Where it stands in the list of what is held; only touched under that list's lock.
    pub(crate) place: AtomicUsize,
    /// Until when it was renewed, by the clock of this worker; zero before the first time.
    renewed_until: AtomicI64,
    begun: AtomicBool,
    settled: AtomicBool,
    stages: AtomicU16,
    output: Mutex<Option<String>>,
}

impl Held {
    pub(crate) fn new(delivery: Delivery, claimed_at: Timestamp) -> Self {
        Self {
            claimed_at,
            told: Flag::default(),
            dropped: Flag::default(),
            place: AtomicUsize::new(usize::MAX),
            renewed_until: AtomicI64::new(0),
            begun: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            stages: AtomicU16::new(0),
            output: Mutex::new(None),
            delivery,
        }
    }

    pub(crate) fn token(&self) -> LeaseToken {
        self.delivery.lease.token
    }

    /// The store's time, when it is so late by the clock of this worker.
    pub(crate) fn store_time(&self, now: Timestamp) -> Timestamp {
        self.delivery.lease.granted_at.plus(now.since(self.claimed_at))
    }

    /// What a decision needs to know of it.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            id: self.delivery.message.id,
            message_type: self.delivery.message.message_type.as_ref(),
            counters: self.delivery.counters,
        }
    }

    /// When its lease ends, by the clock of this worker: that of the store may be another machine's, and wrong by
    /// any amount.
    pub(crate) fn expires_at(&self, lease: Duration) -> Timestamp {
        match self.renewed_until.load(Ordering::Relaxed) {
            0 if self.delivery.lease.expires_at == Timestamp::NEVER => Timestamp::NEVER,
            0 => self.claimed_at.plus(lease),
            until => Timestamp::from_millis(until),
        }
    }

    pub(crate) fn renewed_until(&self, until: Timestamp) {
        self.renewed_until.store(until.millis(), Ordering::Relaxed);
    }

    /// Tells the handler and has it dropped.
    pub(crate) fn lose(&self) {
        self.told.raise();
        self.dropped.raise();
    }

    /// A handler has seen it.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// True for the first who settles it; a delivery has one settlement.
    pub(crate) fn settle_once(&self) -> bool {
        !self.settled.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn finish_stages(&self, stages: Stages) {
        self.stages.fetch_or(stages.bits(), Ordering::Relaxed);
    }

    pub(crate) fn finished_stages(&self) -> Stages {
        Stages::from_bits(self.stages.load(Ordering::Relaxed))
    }

    pub(crate) fn set_output(&self, output: String) {
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
    }

    pub(crate) fn take_output(&self) -> Option<String> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A delivery of this number, of this claim.
#[cfg(test)]
pub(crate) fn sample(number: u64, claim: u64) -> Delivery {
    use sickbay_core::{Counters, Lease, Message, MessageId, Priority, QueueName};
    let id = MessageId::from_number(number).unwrap();
    let message = Message {
        id,
        queue: QueueName::new("q").unwrap(),
        message_type: None,
        stream: None,
        key: None,
        priority: Priority::default(),
        pushed_at: Timestamp::default(),
        deadline_at: None,
        headers: Vec::new(),
        payload: bytes::Bytes::new(),
    };
    let token = LeaseToken { epoch: 1, claim, message: id };
    let lease = Lease { token, granted_at: Timestamp::default(), expires_at: Timestamp::from_millis(30_000) };
    let counters = Counters { deliveries: 1, ..Counters::default() };
    Delivery { message, lease, counters, stages: Stages::NONE, cause: None, suspect: false }
}
