//! How a worker is made.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::Clock;
use sickbay_core::gate::Validator;
use sickbay_core::port::Source;
use tokio::sync::Notify;

use crate::flag::Flag;
use crate::handler::Handler;
use crate::hands::Hands;
use crate::keeper::{BreakerState, keeper};
use crate::lane::{LANES, lane};
use crate::rules::RulesInForce;
use crate::running::Running;
use crate::shared::{Shared, Validators};
use crate::sync::{Mutex, spawn};
use crate::time::Timer;

/// The most deliveries that are fetched ahead.
const PREFETCH_MAX: u32 = 1024;

/// Runs a handler on the deliveries of one source.
#[must_use = "a worker does nothing until it is started"]
pub struct Worker {
    source: Arc<dyn Source>,
    handler: Box<dyn Handler>,
    clock: Arc<dyn Clock>,
    validators: Validators,
    concurrency: u32,
    prefetch: Option<u32>,
    buffer_expiry: Option<Duration>,
    stop_limit: Duration,
}

impl Worker {
    /// A worker with every default.
    pub fn new(source: Arc<dyn Source>, handler: impl Handler + 'static, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            handler: Box::new(handler),
            clock,
            validators: Validators::default(),
            concurrency: 8,
            prefetch: None,
            buffer_expiry: None,
            stop_limit: Duration::from_secs(30),
        }
    }

    /// How many handlers run at the same time. At least 1; defaults to 8.
    pub fn concurrency(mut self, handlers: u32) -> Self {
        self.concurrency = handlers.clamp(1, u32::from(u16::MAX));
        self
    }

    /// How many deliveries are fetched ahead of the handlers, up to 1024. Defaults to four for each
    /// handler. More is faster where handlers are short; 0 fetches only what can begin at once.
    pub fn prefetch(mut self, deliveries: u32) -> Self {
        self.prefetch = Some(deliveries.min(PREFETCH_MAX));
        self
    }

    /// Adds something that checks messages before they reach the handler. What one refuses is poison.
    pub fn validator(mut self, validator: impl Validator + 'static) -> Self {
        self.validators.0.push(Arc::new(validator));
        self
    }

    /// How long a delivery waits here for a free handler before it is given back, uncounted, for
    /// other workers. Defaults to half the queue's lease.
    pub fn buffer_expiry(mut self, expiry: Duration) -> Self {
        self.buffer_expiry = Some(expiry);
        self
    }

    /// How long running handlers may go on when the worker is stopped. Defaults to 30 s.
    pub fn stop_limit(mut self, limit: Duration) -> Self {
        self.stop_limit = limit;
        self
    }

    /// Starts on the Tokio runtime of the caller.
    pub fn start(self) -> Running {
        let prefetch = self.prefetch.unwrap_or(self.concurrency.saturating_mul(4)).min(PREFETCH_MAX);
        let shared = Arc::new(Shared {
            source: self.source,
            handler: self.handler,
            validators: self.validators,
            timer: Arc::new(Timer::new(self.clock)),
            buffer_expiry: self.buffer_expiry,
            rules: RulesInForce::default(),
            breaker: BreakerState::default(),
            hands: Mutex::new(Hands::new(self.concurrency, prefetch)),
            lane_wakes: std::array::from_fn(|_| Notify::new()),
            keeper_wake: Notify::new(),
            recall: Notify::new(),
            idle: Notify::new(),
            stopping: Flag::default(),
            closed: Flag::default(),
            ended: Flag::default(),
        });
        let lanes = (0..LANES).map(|n| spawn(lane(Arc::clone(&shared), n))).collect();
        drop(spawn(keeper(Arc::clone(&shared))));
        Running::new(shared, lanes, self.stop_limit)
    }
}
