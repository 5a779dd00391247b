//! What a handler gets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sickbay_core::text::clean_output;
use sickbay_core::{
    Cause, Clock, Counters, Delivery, LeaseToken, Message, MessageId, MessageType, Stages, Timestamp,
};

use crate::held::Held;
use crate::time::Timer;

/// A delivery as its handler sees it. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    held: Arc<Held>,
    timer: Arc<Timer>,
    budget_ends_at: Timestamp,
    last: bool,
}

impl Context {
    /// A context outside of any worker, to call a handler in a test of its own.
    pub fn new(delivery: Delivery, clock: Arc<dyn Clock>, time_budget: Duration) -> Self {
        let now = clock.now();
        let held = Arc::new(Held::new(delivery, now));
        Self { held, timer: Arc::new(Timer::new(clock)), budget_ends_at: now.plus(time_budget), last: false }
    }

    pub(crate) fn of(held: Arc<Held>, timer: Arc<Timer>, budget_ends_at: Timestamp, last: bool) -> Self {
        Self { held, timer, budget_ends_at, last }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.held.delivery.message
    }

    /// The bytes as they were pushed.
    pub fn payload(&self) -> &Bytes {
        &self.message().payload
    }

    /// The message's identity, the same in every attempt.
    pub fn id(&self) -> MessageId {
        self.message().id
    }

    /// What kind of message it is.
    pub fn message_type(&self) -> Option<&MessageType> {
        self.message().message_type.as_ref()
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.message().headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// What was counted, this delivery included.
    pub fn counters(&self) -> Counters {
        self.held.delivery.counters
    }

    /// The number of this attempt: 1 for the first delivery ever.
    pub fn attempt(&self) -> u32 {
        self.counters().attempt_number()
    }

    /// True if a failure now would be the last, under every retry policy of the queue.
    pub fn is_last_attempt(&self) -> bool {
        self.last
    }

    /// Why it is delivered again; `None` the first time.
    pub fn cause(&self) -> Option<Cause> {
        self.held.delivery.cause
    }

    /// True if a worker died with it in hand and it has not been cleared since.
    pub fn is_suspect(&self) -> bool {
        self.held.delivery.suspect
    }

    /// The fencing token: hand it on to what should refuse writes of a holder that lost its lease.
    pub fn token(&self) -> LeaseToken {
        self.held.token()
    }

    /// The stages that are finished, those of this attempt included.
    pub fn stages(&self) -> Stages {
        self.held.delivery.stages.with(self.held.finished_stages())
    }

    /// Notes that this attempt has finished a stage. It is kept whatever becomes of the attempt, and
    /// the next one resumes after it.
    pub fn finish_stage(&self, stages: Stages) {
        self.held.finish_stages(stages);
    }

    /// Notes what the handler printed; its end is kept with the attempt.
    pub fn note_output(&self, output: &[u8]) {
        self.held.set_output(clean_output(output));
    }

    /// How much of the time budget is left.
    pub fn remaining(&self) -> Duration {
        self.budget_ends_at.since(self.timer.now())
    }

    /// True if the work is in vain: the lease is lost or about to be.
    pub fn is_cancelled(&self) -> bool {
        self.held.told.is_up()
    }

    /// Returns once the work is in vain. What the handler answers then changes nothing.
    pub async fn cancelled(&self) {
        self.held.told.up().await;
    }
}
