//! The sweeper: has a store do what time has made due, for stores that have no thread of their own.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::Clock;
use sickbay_core::port::Store;
use tokio::task::JoinHandle;

use crate::time::Timer;

/// Sweeps a store again and again, until it is dropped.
pub struct Sweeper {
    task: JoinHandle<()>,
}

impl Sweeper {
    /// Starts on the Tokio runtime of the caller. Once a second is a good pace: an expired lease comes
    /// back at most that late.
    pub fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, every: Duration) -> Self {
        let timer = Timer::new(clock);
        let task = tokio::spawn(async move {
            loop {
                timer.sleep_until(timer.now().plus(every)).await;
                // What could not be swept now is due at the next round as well.
                let _ = store.sweep().await;
            }
        });
        Self { task }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}
