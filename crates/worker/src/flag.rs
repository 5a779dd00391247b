//! A flag that is raised once and can be waited for.

use tokio::sync::Notify;

use crate::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Flag {
    up: AtomicBool,
    raised: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        self.up.store(true, Ordering::Release);
        self.raised.notify_waiters();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Returns once the flag is up.
    pub(crate) async fn up(&self) {
        if self.is_up() {
            return;
        }
        let raised = self.raised.notified();
        tokio::pin!(raised);
        raised.as_mut().enable();
        if !self.is_up() {
            raised.await;
        }
    }
}
