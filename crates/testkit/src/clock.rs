//! A clock that moves when told (D8).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sickbay_core::clock::{Clock, Timestamp};

type Tick = Arc<dyn Fn() -> bool + Send + Sync>;

/// A clock that stands still until it is moved. Clones are the same clock.
#[derive(Clone, Default)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    now: Mutex<Timestamp>,
    reads: AtomicU64,
    ticks: Mutex<Vec<Tick>>,
}

impl ManualClock {
    /// A clock that stands at 2026-01-01.
    pub fn new() -> Self {
        Self::at(Timestamp::from_millis(1_767_225_600_000))
    }

    /// A clock that stands at this time.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Moves it on, and tells everyone who waits.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
    }

    /// Moves it to a time, and tells everyone who waits.
    pub fn set(&self, now: Timestamp) {
        *self.inner.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
        // Called outside the lock: a tick may read the time or subscribe.
        let ticks = std::mem::take(&mut *self.ticks());
        let mut alive: Vec<Tick> = ticks.into_iter().filter(|tick| tick()).collect();
        self.ticks().append(&mut alive);
    }

    /// How often it was asked for the time.
    pub fn reads(&self) -> u64 {
        self.inner.reads.load(Ordering::Relaxed)
    }

    fn ticks(&self) -> std::sync::MutexGuard<'_, Vec<Tick>> {
        self.inner.ticks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.inner.reads.fetch_add(1, Ordering::Relaxed);
        *self.inner.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, _until: Timestamp) -> Option<Duration> {
        None
    }

    fn on_tick(&self, tick: Tick) {
        self.ticks().push(tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn it_moves_only_when_told_and_says_so_until_nobody_listens() {
        let clock = ManualClock::new();
        let before = clock.now();
        let calls = Arc::new(AtomicU32::new(0));
        let seen = calls.clone();
        clock.on_tick(Arc::new(move || seen.fetch_add(1, Ordering::Relaxed) < 1));
        assert_eq!(clock.now(), before);
        for _ in 0..3 {
            clock.clone().advance(Duration::from_secs(1));
        }
        assert_eq!(clock.now(), before.plus(Duration::from_secs(3)));
        assert_eq!(calls.load(Ordering::Relaxed), 2, "it answered false the second time");
    }
}
