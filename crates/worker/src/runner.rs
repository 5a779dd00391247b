//! A runner: waits for a handler that did not answer at once, and goes on with what is buffered.

use std::sync::Arc;

use sickbay_core::decide::Decision;
use sickbay_core::{Failure, Settlement, Timestamp};

use crate::attend::{Concluded, attend};
use crate::guarded::Guarded;
use crate::hands::{Batch, Outgoing, Work};
use crate::held::Held;
use crate::rules::Rules;
use crate::shared::Shared;

/// A delivery being attended to.
pub(crate) type Attending = Guarded<'static, Concluded>;

/// How often a runner may go on without letting others run.
const TURNS_WITHOUT_REST: u32 = 64;

pub(crate) fn attempt(shared: &Arc<Shared>, rules: &Arc<Rules>, held: &Arc<Held>) -> Attending {
    Guarded::new(Box::pin(attend(Arc::clone(shared), Arc::clone(rules), Arc::clone(held))))
}

/// Holds one slot, and gives it back when nothing is left to do.
pub(crate) async fn run(shared: Arc<Shared>, mut begun: Option<(Attending, Work)>) {
    let mut batch = Batch::default();
    let (mut count, mut next) = (0u32, None);
    loop {
        let (attending, work) = match begun.take() {
            Some(begun) => begun,
            None => match hand_in(&shared, &mut batch, next.take()) {
                Some(work) => (attempt(&shared, &shared.rules().await, &work.held), work),
                None => return,
            },
        };
        let concluded = attending.await;
        follow(&shared, work, concluded, &mut batch, |work| next = Some(work));
        count += 1;
        if count.is_multiple_of(TURNS_WITHOUT_REST) {
            tokio::task::yield_now().await;
        }
    }
}

/// Hands in what was concluded and takes the next thing to do, or gives the slot back.
fn hand_in(shared: &Shared, batch: &mut Batch, next: Option<Work>) -> Option<Work> {
    let mut hands = shared.hands();
    hands.merge(batch);
    let stopping = shared.stopping.is_up();
    let next = if stopping {
        hands.buffer.extend(next);
        hands.empty_buffer();
        None
    } else {
        next.or_else(|| hands.pop())
    };
    if next.is_none() {
        hands.running -= 1;
    }
    shared.wake(&mut hands);
    if stopping {
        shared.idle.notify_one();
    }
    next
}

/// Does what follows from an attempt: its settlement, and the rest of its run, which goes on behind a
/// success and is given back behind a failure. Answers when the attempt ended.
pub(crate) fn follow(
    shared: &Shared,
    work: Work,
    concluded: Result<Concluded, String>,
    batch: &mut Batch,
    go_on: impl FnOnce(Work),
) -> Timestamp {
    let Work { held, rest } = work;
    let Concluded { settlement, goes_on, at } =
        concluded.unwrap_or_else(|words| broken(&held, &words, shared.timer.now()));
    let waits_for_effect = settlement.as_ref().is_some_and(|settlement| settlement.effect.is_some());
    let (rest, attached) = if waits_for_effect && goes_on { (None, rest) } else { (rest, None) };
    match settlement {
        _ if !held.settle_once() => {}
        Some(settlement) => batch.outgoing.push(Outgoing::new(held, settlement, attached)),
        None => batch.lost.push(held),
    }
    if let Some(next) = Work::next_of(rest) {
        if (goes_on || sickbay_core::bug!(RunGoesOnAfterFailure)) && !shared.stopping.is_up() {
            go_on(next);
        } else {
            batch.untried.extend(next.all());
        }
    }
    at
}

/// The worker itself panicked over this delivery. It must neither be lost nor stay leased.
fn broken(held: &Held, words: &str, at: Timestamp) -> Concluded {
    let failure = Failure::unknown(format!("the worker panicked: {words}"));
    let decision = Decision::Retry { after: std::time::Duration::from_secs(30), failure };
    Concluded { settlement: Some(Settlement::new(held.token(), decision)), goes_on: false, at }
}
