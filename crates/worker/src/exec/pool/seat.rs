//! Keeps one program running as long as there is work.

use std::sync::Arc;
use std::time::Duration;

use super::super::ended::not_started;
use super::super::process::lock;
use super::Shared;
use super::life::Life;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Works until the pool is closed.
pub(super) async fn keep(shared: Arc<Shared>, seat: usize) {
    let wake = lock(&shared.desk).wake_of(seat);
    let mut fruitless = 0u32;
    while !shared.is_closed() {
        let has_work = lock(&shared.desk).has_work(seat);
        if !has_work {
            wake.notified().await;
            continue;
        }
        let process = match shared.program.start() {
            Ok(process) => process,
            Err(error) => {
                // Each of them is told so, and the queue's policy says when to try again.
                let jobs = lock(&shared.desk).take_assigned(seat);
                jobs.into_iter().for_each(|job| job.answer(not_started(&shared.program.shown(), &error)));
                continue;
            }
        };
        let mut life = Life::begin(&shared, seat, process, Arc::clone(&wake));
        let ending = life.live().await;
        fruitless = if life.has_answered() { 0 } else { fruitless.saturating_add(1) };
        life.bury(&ending);
        rest(&shared, &wake, fruitless).await;
        shared.act(|desk| desk.is_up(seat));
    }
}

/// A program that dies before it has answered anything is not started again at once.
async fn rest(shared: &Shared, wake: &tokio::sync::Notify, fruitless: u32) {
    let Some(doublings) = fruitless.checked_sub(1) else { return };
    let pause = BACKOFF_MIN.saturating_mul(1 << doublings.min(16)).min(BACKOFF_MAX);
    let until = shared.timer.now().plus(pause);
    while !shared.is_closed() {
        tokio::select! {
            () = shared.timer.sleep_until(until) => return,
            () = wake.notified() => {}
        }
    }
}
