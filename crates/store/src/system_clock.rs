//! The real clock.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sickbay_core::{Clock, Timestamp};

/// Time as the machine tells it, read from its wall clock once and counted on from there. A wall
/// clock that is set while the program runs moves no lease and no retry.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started_at: Timestamp,
    started: Instant,
}

impl SystemClock {
    /// A clock that begins at the machine's time.
    #[expect(clippy::disallowed_methods, reason = "the one place where time comes from")]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started_at: Timestamp::from_millis(0).plus(since_epoch), started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started_at.plus(self.started.elapsed())
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        Some(until.since(self.now()))
    }

    fn on_tick(&self, _tick: Arc<dyn Fn() -> bool + Send + Sync>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_the_wall_clock_and_never_goes_back() {
        let clock = SystemClock::new();
        let (first, second) = (clock.now(), clock.now());
        assert!(first.millis() > 1_700_000_000_000, "{first}");
        assert!(second >= first);
        assert_eq!(clock.wait_for(first), Some(Duration::ZERO));
        assert!(clock.wait_for(first.plus(Duration::from_secs(60))).unwrap() > Duration::from_secs(50));
    }
}
