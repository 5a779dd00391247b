//! Waiting, by the injected clock. The only file that may sleep.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::{Clock, Timestamp};
use tokio::sync::Notify;

/// A clock that can be waited for: the machine's by sleeping, a manual one by being told of its jumps.
pub(crate) struct Timer {
    clock: Arc<dyn Clock>,
    ticks: Arc<Notify>,
}

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let ticks = Arc::new(Notify::new());
        let weak = Arc::downgrade(&ticks);
        clock.on_tick(Arc::new(move || {
            let ticks = weak.upgrade();
            ticks.inspect(|ticks| ticks.notify_waiters()).is_some()
        }));
        Self { clock, ticks }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns once the clock shows `until` or later.
    pub(crate) async fn sleep_until(&self, until: Timestamp) {
        loop {
            let ticked = self.ticks.notified();
            tokio::pin!(ticked);
            ticked.as_mut().enable();
            if self.now() >= until {
                return;
            }
            match self.clock.wait_for(until) {
                None => ticked.await,
                Some(wait) => tokio::select! {
                    () = sleep(wait) => {}
                    () = ticked => {}
                },
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the worker's waiting is done")]
async fn sleep(wait: Duration) {
    tokio::time::sleep(wait).await;
}
