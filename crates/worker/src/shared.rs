//! What lanes, runners and the keeper of one worker share.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sickbay_core::Message;
use sickbay_core::gate::{Invalid, Validator};
use sickbay_core::port::Source;
use tokio::sync::Notify;

use crate::flag::Flag;
use crate::handler::Handler;
use crate::hands::Hands;
use crate::keeper::BreakerState;
use crate::lane::LANES;
use crate::rules::{Rules, RulesInForce};
use crate::sync::{Mutex, MutexGuard};
use crate::time::Timer;

pub(crate) struct Shared {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) handler: Box<dyn Handler>,
    pub(crate) validators: Validators,
    pub(crate) timer: Arc<Timer>,
    pub(crate) buffer_expiry: Option<Duration>,
    pub(crate) rules: RulesInForce,
    pub(crate) breaker: BreakerState,
    pub(crate) hands: Mutex<Hands>,
    pub(crate) lane_wakes: [Notify; LANES],
    pub(crate) keeper_wake: Notify,
    /// Told when a claim that waits asks for too much.
    pub(crate) recall: Notify,
    /// Told when a handler ends while the worker stops.
    pub(crate) idle: Notify,
    /// Nothing new is begun.
    pub(crate) stopping: Flag,
    /// Lanes end once nothing is in hand.
    pub(crate) closed: Flag,
    /// No lane works any longer.
    pub(crate) ended: Flag,
}

impl Shared {
    pub(crate) fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules in force now, or the last known ones while the source cannot be asked.
    pub(crate) async fn rules(&self) -> Arc<Rules> {
        match self.rules.ask(self.source.as_ref()).await {
            Ok(rules) => rules,
            Err(_) => self.rules.last(),
        }
    }

    /// Wakes a lane if there is something for it to do.
    pub(crate) fn wake(&self, hands: &mut Hands) {
        if let Some(lane) = hands.lane_to_wake(self.stopping.is_up()) {
            self.lane_wakes[lane].notify_one();
        }
    }

    pub(crate) fn wake_all_lanes(&self) {
        self.lane_wakes.iter().for_each(Notify::notify_one);
    }
}

/// All validators, one after the other.
#[derive(Default)]
pub(crate) struct Validators(pub(crate) Vec<Arc<dyn Validator>>);

impl Validator for Validators {
    fn validate(&self, message: &Message) -> Result<(), Invalid> {
        self.0.iter().try_for_each(|validator| validator.validate(message))
    }
}
