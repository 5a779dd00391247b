//! A worker at work, and how it is stopped (A15).

use std::sync::Arc;
use std::time::Duration;

use crate::held::Held;
use crate::shared::Shared;
use crate::sync::JoinHandle;

/// How long the last settlements may take once the handlers have ended.
const HAND_IN_LIMIT: Duration = Duration::from_secs(5);

/// A worker at work. Dropping it tells it to begin nothing more and gives back what it holds, without
/// waiting; [`stop`](Self::stop) waits.
pub struct Running {
    shared: Arc<Shared>,
    lanes: Vec<JoinHandle<()>>,
    stop_limit: Duration,
}

/// What a worker has done and holds. Settlements are counted when they have taken effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Deliveries taken.
    pub claimed: u64,
    /// Completed.
    pub done: u64,
    /// Failed and scheduled again.
    pub retried: u64,
    /// Set aside.
    pub quarantined: u64,
    /// Given back: untried, or because the handler deferred them.
    pub given_back: u64,
    /// Deliveries whose lease was lost before they were settled.
    pub lost: u64,
    /// Handlers' own writes that failed.
    pub effects_failed: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Handlers that overran their time budget.
    pub overruns: u64,
    /// Calls to the source that failed.
    pub source_errors: u64,
    /// What the last of them said.
    pub last_error: Option<String>,
    /// Handlers running now.
    pub running: u32,
    /// Deliveries waiting for a free handler now.
    pub buffered: u32,
    /// Deliveries whose leases are being kept now.
    pub in_hand: u32,
}

/// How a worker stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Handlers that came to their end after the stop was asked for.
    pub finished: u64,
    /// Deliveries given back that no handler had seen.
    pub given_back: u64,
    /// Handlers still running at the limit: cancelled, their deliveries given back.
    pub abandoned: u64,
}

impl Running {
    pub(crate) fn new(shared: Arc<Shared>, lanes: Vec<JoinHandle<()>>, stop_limit: Duration) -> Self {
        Self { shared, lanes, stop_limit }
    }

    /// What it has done and holds.
    pub fn stats(&self) -> Stats {
        let hands = self.shared.hands();
        let tally = &hands.tally;
        Stats {
            claimed: tally.claimed,
            done: tally.done,
            retried: tally.retried,
            quarantined: tally.quarantined,
            given_back: tally.given_back,
            lost: tally.lost,
            effects_failed: tally.effects_failed,
            panics: tally.panics,
            overruns: tally.overruns,
            source_errors: tally.source_errors,
            last_error: tally.last_error.clone(),
            running: hands.running,
            buffered: hands
                .buffer
                .iter()
                .map(|work| 1 + work.rest.as_ref().map_or(0, |r| r.len() as u32))
                .sum(),
            in_hand: hands.held.len() as u32,
        }
    }

    /// Returns once the worker takes no more deliveries: it was stopped, or its source cannot go on.
    pub async fn ended(&self) {
        self.shared.stopping.up().await;
    }

    /// Stops: begins nothing more, gives back what no handler has seen, and waits for the handlers that
    /// run, up to the limit. Those that run longer are cancelled and their deliveries given back. No
    /// delivery given back counts.
    pub async fn stop(mut self) -> Stopped {
        let deadline = self.shared.timer.now().plus(self.stop_limit);
        let before = self.begin_stop();
        let waited = tokio::select! {
            () = self.handlers_ended() => true,
            () = self.shared.timer.sleep_until(deadline) => false,
        };
        let abandoned = if waited { 0 } else { self.abandon() };
        let stopped = {
            let hands = self.shared.hands();
            let finished = hands.tally.concluded - before.concluded;
            let given_back = hands.tally.untried - before.untried;
            Stopped { finished, given_back, abandoned }
        };
        self.close().await;
        stopped
    }

    fn begin_stop(&self) -> crate::hands::Tally {
        let mut hands = self.shared.hands();
        let before = hands.tally.clone();
        self.shared.stopping.raise();
        hands.empty_buffer();
        self.shared.wake(&mut hands);
        before
    }

    /// Returns once nothing runs and nothing is asked for.
    async fn handlers_ended(&self) {
        loop {
            let told = self.shared.idle.notified();
            {
                let hands = self.shared.hands();
                if hands.running == 0 && hands.wanted == 0 && hands.unsettled == 0 {
                    return;
                }
            }
            told.await;
        }
    }

    /// Cancels what still runs and gives it back. A handler that blocks its thread cannot be ended, but
    /// its answer will change nothing.
    fn abandon(&self) -> u64 {
        let mut hands = self.shared.hands();
        let running: Vec<Arc<Held>> = hands.held.iter().filter(|held| !held.is_settled()).cloned().collect();
        for held in &running {
            if !sickbay_core::bug!(AbandonedNotReturned) {
                hands.release(Arc::clone(held));
            }
            held.lose();
        }
        self.shared.wake(&mut hands);
        running.iter().filter(|held| held.is_begun()).count() as u64
    }

    /// Hands in what is left.
    async fn close(&mut self) {
        self.shared.closed.raise();
        self.shared.wake_all_lanes();
        let give_up_at = self.shared.timer.now().plus(HAND_IN_LIMIT);
        for lane in &mut self.lanes {
            tokio::select! {
                _ = &mut *lane => {}
                () = self.shared.timer.sleep_until(give_up_at) => lane.abort(),
            }
        }
        self.shared.ended.raise();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_stop();
        self.shared.closed.raise();
        self.shared.wake_all_lanes();
    }
}
