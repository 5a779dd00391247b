//! A lane: takes turns with the source and runs what it gets, one delivery after the other, as long
//! as handlers answer at once. What does not answer at once goes to a runner. While one lane runs
//! handlers or waits for deliveries, the other one keeps the source busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sickbay_core::Timestamp;

use crate::guarded::Guarded;
use crate::hands::{Batch, Work};
use crate::runner::{attempt, follow, run};
use crate::shared::Shared;
use crate::sync::spawn;
use crate::turn::{Step, TURN_MAX};

pub(crate) const LANES: usize = 2;
/// How many deliveries a lane takes out of the buffer at a time.
const CHUNK: usize = 64;
/// How long a lane runs handlers before it hands in what it has.
const SLICE: Duration = Duration::from_millis(5);
/// A handler that answered at once but took this long blocks its thread.
const BLOCKING: Duration = Duration::from_millis(10);
/// How long lanes leave handlers to runners after one that blocked.
const CAUTION: Duration = Duration::from_secs(1);

/// Works until the worker is closed and its hands are empty.
pub(crate) async fn lane(shared: Arc<Shared>, lane: usize) {
    let mut batch = Batch::default();
    let mut chunk = VecDeque::with_capacity(CHUNK);
    first_policy(&shared).await;
    loop {
        match shared.plan(lane, &mut batch) {
            Step::Turn(plan) => shared.take_turn(plan).await,
            Step::Backoff(until) if shared.stopping.is_up() => shared.timer.sleep_until(until).await,
            Step::Backoff(until) => tokio::select! {
                () = shared.timer.sleep_until(until) => {}
                () = shared.stopping.up() => {}
            },
            Step::Park => shared.lane_wakes[lane].notified().await,
            Step::End => {
                shared.wake_all_lanes();
                return shared.ended.raise();
            }
        }
        run_inline(&shared, &mut batch, &mut chunk).await;
        if batch.outgoing.len() >= CHUNK {
            // A source that answers at once must not keep everything else from running.
            tokio::task::yield_now().await;
        }
    }
}

/// No delivery is judged before the queue's policy is known.
async fn first_policy(shared: &Shared) {
    while !shared.stopping.is_up() {
        let Err(error) = shared.rules.ask(shared.source.as_ref()).await else { return };
        let retry_at = shared.timer.now().plus(CAUTION);
        {
            let mut hands = shared.hands();
            hands.tally.source_errors += 1;
            hands.tally.last_error = Some(error.to_string());
        }
        tokio::select! {
            () = shared.timer.sleep_until(retry_at) => {}
            () = shared.stopping.up() => {}
        }
    }
}

/// Runs what is buffered until the buffer is empty, the outbox full, or the slice used up.
async fn run_inline(shared: &Arc<Shared>, batch: &mut Batch, chunk: &mut VecDeque<Work>) {
    if !begin(shared) {
        return;
    }
    let rules = shared.rules().await;
    let started = shared.timer.now();
    let (mut now, mut has_slot, mut blocking) = (started, true, false);
    while has_slot
        && now.since(started) < SLICE
        && batch.outgoing.len() < TURN_MAX
        && !shared.stopping.is_up()
    {
        let Some(work) = next(shared, chunk) else { break };
        let mut attempt = attempt(shared, &rules, &work.held);
        match poll_once(&mut attempt) {
            Poll::Ready(concluded) => {
                let ended = follow(shared, work, concluded, batch, |next| chunk.push_front(next));
                blocking |= ended.since(now) >= BLOCKING;
                now = ended;
            }
            Poll::Pending => {
                drop(spawn(run(Arc::clone(shared), Some((attempt, work)))));
                has_slot = another_slot(shared);
            }
        }
    }
    end(shared, chunk, has_slot, now, blocking);
}

fn next(shared: &Shared, chunk: &mut VecDeque<Work>) -> Option<Work> {
    if chunk.is_empty() {
        let mut hands = shared.hands();
        chunk.extend(std::iter::from_fn(|| hands.pop()).take(CHUNK));
    }
    chunk.pop_front()
}

/// Polls a future on behalf of whoever will wait for it; nobody does yet.
fn poll_once<T>(attempt: &mut Guarded<'_, T>) -> Poll<Result<T, String>> {
    std::pin::Pin::new(attempt).poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes a slot for the lane, if there is something to run and a slot is free.
fn begin(shared: &Arc<Shared>) -> bool {
    let mut hands = shared.hands();
    if hands.buffer.is_empty() || hands.running >= hands.concurrency {
        return false;
    }
    if shared.timer.now() < hands.inline_from {
        drop(hands);
        spawn_runners(shared, usize::MAX);
        return false;
    }
    hands.running += 1;
    true
}

/// A runner has taken over the lane's slot.
fn another_slot(shared: &Shared) -> bool {
    let mut hands = shared.hands();
    let free = hands.running < hands.concurrency;
    hands.running += u32::from(free);
    free
}

/// Gives back the slot and what was not begun.
fn end(shared: &Arc<Shared>, chunk: &mut VecDeque<Work>, has_slot: bool, now: Timestamp, blocking: bool) {
    let left = {
        let mut hands = shared.hands();
        hands.running -= u32::from(has_slot);
        if blocking {
            hands.inline_from = now.plus(CAUTION);
        }
        while let Some(work) = chunk.pop_back() {
            hands.buffer.push_front(work);
        }
        if shared.stopping.is_up() {
            hands.empty_buffer();
            shared.idle.notify_one();
        }
        !hands.buffer.is_empty()
    };
    if left {
        spawn_runners(shared, if blocking { usize::MAX } else { 1 });
    }
}

/// Starts runners for what is buffered, as far as slots are free.
fn spawn_runners(shared: &Arc<Shared>, most: usize) {
    let count = {
        let mut hands = shared.hands();
        let free = (hands.concurrency - hands.running) as usize;
        let count = free.min(hands.buffer.len()).min(most);
        hands.running += count as u32;
        count
    };
    for _ in 0..count {
        drop(spawn(run(Arc::clone(shared), None)));
    }
}
