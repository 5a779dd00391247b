//! Waiting for something to change, or for a time to come.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use sickbay_core::clock::{Clock, Timestamp};
use tokio::sync::Notify;

const HOUR: Duration = Duration::from_secs(3600);

/// Wakes waiting claims: after each change, after each tick of a manual clock, and when a time has
/// come on the real one.
pub(super) struct Bell {
    clock: Arc<dyn Clock>,
    changed: Arc<Notify>,
    alarm: Mutex<Option<Arc<Alarm>>>,
}

impl Bell {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let changed = Arc::new(Notify::new());
        let waiting = Arc::downgrade(&changed);
        clock.on_tick(Arc::new(move || ring(&waiting)));
        Self { clock, changed, alarm: Mutex::new(None) }
    }

    /// Something changed.
    pub(super) fn ring(&self) {
        self.changed.notify_waiters();
    }

    /// Asks `ready` again after each ring and at each time it names, until it has an answer.
    pub(super) async fn wait_until<T>(&self, mut ready: impl FnMut() -> Result<T, Timestamp>) -> T {
        loop {
            let mut rung = pin!(self.changed.notified());
            rung.as_mut().enable(); // from here on no ring is missed
            match ready() {
                Ok(answer) => return answer,
                Err(again_at) => self.set_alarm(again_at),
            }
            rung.await;
        }
    }

    fn set_alarm(&self, at: Timestamp) {
        if self.clock.wait_for(at).is_none() {
            return; // a manual clock rings by itself
        }
        let mut alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        alarm.get_or_insert_with(|| Alarm::start(&self.clock, &self.changed)).set(at);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm.get_mut().unwrap_or_else(PoisonError::into_inner) {
            alarm.stop();
        }
    }
}

fn ring(waiting: &Weak<Notify>) -> bool {
    waiting.upgrade().inspect(|changed| changed.notify_waiters()).is_some()
}

/// A thread that rings at a set time, until it is stopped.
struct Alarm {
    /// `None` once it is stopped.
    next: Mutex<Option<Timestamp>>,
    set: Condvar,
}

impl Alarm {
    fn start(clock: &Arc<dyn Clock>, changed: &Arc<Notify>) -> Arc<Self> {
        let alarm = Arc::new(Self { next: Mutex::new(Some(Timestamp::NEVER)), set: Condvar::new() });
        let (clock, waiting, own) = (clock.clone(), Arc::downgrade(changed), alarm.clone());
        std::thread::spawn(move || own.run(clock.as_ref(), &waiting));
        alarm
    }

    /// Rings at this time, and at none that was set for later.
    fn set(&self, at: Timestamp) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = next.map(|next| next.min(at));
        self.set.notify_all();
    }

    fn stop(&self) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.set.notify_all();
    }

    fn run(&self, clock: &dyn Clock, waiting: &Weak<Notify>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(mut at) = *next {
            if at <= clock.now() {
                at = Timestamp::NEVER;
                *next = Some(at);
                ring(waiting);
            }
            let wait = clock.wait_for(at).unwrap_or(HOUR).min(HOUR);
            next = self.set.wait_timeout(next, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
