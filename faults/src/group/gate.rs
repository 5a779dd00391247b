//! A clock at which the writer of a store can be held: it looks at the time when it begins a turn.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sickbay_core::clock::{Clock, Timestamp};
use sickbay_testkit::ManualClock;

/// The name of the thread that is held.
const WRITER: &str = "sickbay-writer";

#[derive(Default)]
struct State {
    closed: bool,
    /// The writer stands at it.
    arrived: bool,
}

/// A manual clock with a gate.
pub(super) struct Gate {
    clock: ManualClock,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn new(clock: ManualClock) -> Self {
        Self { clock, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the writer begin a turn with nothing to do, and holds it there. Whatever it is asked for from now on is in its
    /// next turn.
    pub(super) fn hold(&self) {
        *self.state() = State { closed: true, arrived: false };
        self.clock.set(self.clock.now());
        let mut state = self.state();
        while !state.arrived {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets it go on.
    pub(super) fn let_go(&self) {
        self.state().closed = false;
        self.changed.notify_all();
    }
}

impl Clock for Gate {
    fn now(&self) -> Timestamp {
        if std::thread::current().name() == Some(WRITER) {
            let mut state = self.state();
            while state.closed {
                state.arrived = true;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.clock.now()
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        self.clock.wait_for(until)
    }

    fn on_tick(&self, tick: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.clock.on_tick(tick);
    }
}
