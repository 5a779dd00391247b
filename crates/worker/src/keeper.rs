//! The keeper: renews the leases of what is in hand, gives back what waited too long in the buffer,
//! and moves the breaker with the time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sickbay_core::Timestamp;
use sickbay_core::breaker::{Breaker, Change};
use sickbay_core::signature::Signature;

use crate::held::Held;
use crate::rules::Rules;
use crate::shared::Shared;

/// The breaker of this worker's queue.
#[derive(Default)]
pub(crate) struct BreakerState(Mutex<Breaker>);

impl BreakerState {
    fn with<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Works until no lane does.
pub(crate) async fn keeper(shared: Arc<Shared>) {
    let (mut retry_soon, mut known) = (false, Duration::ZERO);
    while !shared.ended.is_up() {
        let rules = shared.rules().await;
        let lease = rules.policy.lease;
        let expiry = shared.buffer_expiry.unwrap_or(lease / 2);
        let pace = if retry_soon { lease / 12 } else { lease / 3 };
        let pace = pace.min(expiry / 2).max(Duration::from_millis(1));
        let round_at = Some(shared.timer.now().plus(pace));
        let probe_at = shared.breaker.with(|breaker| breaker.next_at());
        let expires_at = shared.hands().oldest_buffered().map(|at| at.plus(expiry));
        let wake_at =
            [round_at, probe_at, expires_at].into_iter().flatten().min().unwrap_or(Timestamp::NEVER);
        tokio::select! {
            () = shared.timer.sleep_until(wake_at) => {}
            () = shared.keeper_wake.notified() => continue,
            () = shared.ended.up() => return,
        }
        expire_buffer(&shared, expiry);
        move_breaker(&shared, &rules).await;
        // What was claimed before the policy changed has the lease of then.
        let before = std::mem::replace(&mut known, lease);
        let before = if before.is_zero() { lease } else { before };
        retry_soon = !renew(&shared, lease, before).await;
    }
}

/// Others may be free for what waits here. It is given back uncounted, and as the buffer was longer
/// than of use, less is fetched for a while.
fn expire_buffer(shared: &Shared, expiry: Duration) {
    let now = shared.timer.now();
    let mut hands = shared.hands();
    if hands.expire_buffer(now, expiry) > 0 {
        hands.room = 0;
        hands.room_grows_from = now.plus(expiry * 4);
        if hands.waiting {
            hands.recalling = true;
            shared.recall.notify_one();
        }
        shared.wake(&mut hands);
    }
}

/// Renews what has used a third of its lease; everything if leases were shorter `before`. False if the source could
/// not be reached.
async fn renew(shared: &Shared, lease: Duration, before: Duration) -> bool {
    let shortest = lease.min(before);
    let now = shared.timer.now();
    let due: Vec<Arc<Held>> = {
        let hands = shared.hands();
        let used =
            |held: &&Arc<Held>| lease > before || held.expires_at(shortest).since(now) <= lease * 2 / 3;
        hands.held.iter().filter(used).filter(|held| !held.dropped.is_up()).cloned().collect()
    };
    let Some(first) = due.iter().map(|held| held.expires_at(shortest)).min() else { return true };
    let tokens = due.iter().map(|held| held.token()).collect();
    // Before it is too late the handlers must be told, whatever the source is doing.
    let margin = lease / 6;
    let too_late = Timestamp::from_millis(first.millis().saturating_sub(margin.as_millis() as i64));
    let answer = tokio::select! {
        biased;
        answer = shared.source.renew(tokens, lease) => answer.ok(),
        () = shared.timer.sleep_until(too_late) => None,
    };
    match answer {
        Some(lost) => {
            let lost: HashSet<_> = lost.into_iter().collect();
            for held in &due {
                if lost.contains(&held.token()) {
                    held.lose();
                } else {
                    held.renewed_until(now.plus(lease));
                }
            }
            true
        }
        None => {
            give_up(&due, shared.timer.now(), shortest, margin);
            false
        }
    }
}

/// The source is silent: who is about to lose its lease is told, who has lost it is dropped.
fn give_up(due: &[Arc<Held>], now: Timestamp, lease: Duration, margin: Duration) {
    for held in due {
        if held.expires_at(lease) <= now {
            held.lose();
        } else if held.expires_at(lease) <= now.plus(margin) {
            held.told.raise();
        }
    }
}

async fn move_breaker(shared: &Shared, rules: &Rules) {
    let now = shared.timer.now();
    let wanted = rules.policy.breaker.is_some();
    let changes =
        shared.breaker.with(|breaker| if wanted { breaker.on_time(now) } else { breaker.close_all() });
    for change in changes {
        shared.set_gate(change).await;
    }
}

impl Shared {
    /// Tells the breaker how a delivery ended, and does what it says.
    pub(crate) async fn tell_breaker(
        &self,
        rules: &Rules,
        held: &Held,
        done: bool,
        signature: Option<Signature>,
        now: Timestamp,
    ) {
        let (Some(policy), Some(message_type)) = (&rules.policy.breaker, &held.delivery.message.message_type)
        else {
            return;
        };
        let change = self.breaker.with(|breaker| match signature {
            Some(signature) => breaker.on_failure(policy, now, message_type, signature),
            None if done => breaker.on_success(message_type),
            None => None,
        });
        if let Some(change) = change {
            self.set_gate(change).await;
            self.keeper_wake.notify_one();
        }
    }

    async fn set_gate(&self, change: Change) {
        if let Err(error) = self.source.set_type_gate(&change.message_type, change.gate).await {
            let mut hands = self.hands();
            hands.tally.source_errors += 1;
            hands.tally.last_error = Some(error.to_string());
        }
    }
}
