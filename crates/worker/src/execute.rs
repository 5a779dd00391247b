//! Running the handler: panics and overruns become answers here.

use std::sync::Arc;
use std::task::Poll;

use sickbay_core::classify::RawError;
use sickbay_core::{QueuePolicy, Reason, Timestamp};

use crate::answer::Answer;
use crate::context::Context;
use crate::guarded::{Guarded, caught};
use crate::held::Held;
use crate::shared::Shared;

/// How a handler's run ended.
pub(crate) enum Ended {
    /// With an answer.
    Answered(Answer),
    /// It was dropped: the lease is lost, or the worker stopped.
    Dropped,
}

/// Runs the handler on one delivery, within its time budget and as long as the lease is held.
pub(crate) async fn execute(
    shared: &Shared,
    policy: &QueuePolicy,
    held: &Arc<Held>,
    started: Timestamp,
) -> Ended {
    let budget_ends_at = started.plus(policy.time_budget);
    let message = &held.delivery.message;
    let failures = held.delivery.counters.failures.saturating_add(1);
    let last = failures >= policy.deliveries_max(message.message_type.as_ref());
    let context = Context::of(Arc::clone(held), Arc::clone(&shared.timer), budget_ends_at, last);
    held.begin();
    let mut work = match caught(|| shared.handler.handle(context)) {
        Ok(work) => Guarded::new(work),
        Err(words) => return Ended::Answered(shared.panicked(&words)),
    };
    // What answers at once needs neither a timer nor a way to be stopped.
    let answered = match futures::poll!(&mut work) {
        Poll::Ready(answered) => answered,
        Poll::Pending => tokio::select! {
            biased;
            answered = &mut work => answered,
            () = held.dropped.up() => return Ended::Dropped,
            () = shared.timer.sleep_until(budget_ends_at) => {
                held.told.raise();
                return Ended::Answered(shared.overran(policy));
            }
        },
    };
    match answered {
        Err(_) if sickbay_core::bug!(PanicLosesDelivery) => Ended::Dropped,
        answered => Ended::Answered(answered.unwrap_or_else(|words| shared.panicked(&words))),
    }
}

impl Shared {
    fn panicked(&self, words: &str) -> Answer {
        self.hands().tally.panics += 1;
        Answer::panicked(words)
    }

    fn overran(&self, policy: &QueuePolicy) -> Answer {
        self.hands().tally.overruns += 1;
        let text = format!("the handler ran longer than its time budget of {:?}", policy.time_budget);
        Answer::Raw(RawError::new(text).reason(Reason::TimeoutExceeded))
    }
}
