//! Worker processes drain streams, some of them poisoned, while they are killed at random.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::{Desk, Overview, Pusher, Replay, Replayed};
use sickbay_core::{NewMessage, QueuePolicy, StreamKey};
use sickbay_store::PostgresStore;
use sickbay_testkit::cluster::Cluster;

use super::child::{HANDLED, Wish};
use super::slots::Slots;
use super::{connect, look, open, queue, runtime};
use crate::dice::Dice;

/// A failing message fails so often, a killing one kills so often, before it is quarantined.
pub(super) const ATTEMPTS: u32 = 3;
/// When nothing has moved for so long, nothing will.
const STALL: Duration = Duration::from_secs(90);

/// How much there is of what.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Worker processes at the same time.
    pub workers: usize,
    /// Messages in all.
    pub messages: u64,
    /// Streams that they are spread over.
    pub streams: u64,
    /// Streams with a poisoned message in them; every second of those kills its worker.
    pub poisoned: u64,
    /// Milliseconds between two kills, on average.
    pub kill_every_ms: usize,
    /// What is random follows from it.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    /// So many processes were killed by us.
    pub kills: u64,
    /// So many died in all, of a message too.
    pub deaths: u64,
    /// So many messages were handled.
    pub handled: u64,
    /// So many deliveries came after a first one.
    pub redeliveries: u64,
    /// So many deliveries ended with a lease that ran out.
    pub expiries: u64,
    /// So many messages were quarantined.
    pub quarantined: u64,
    /// What is gone, was done twice, or was done out of its order.
    pub lost: Vec<String>,
    /// Deliveries without a cause on record.
    pub unexplained: Vec<String>,
    /// Messages that were quarantined and are not poisoned.
    pub blamed: u64,
}

impl Plan {
    fn length(&self, stream: u64) -> u64 {
        (self.messages + self.streams - 1 - stream) / self.streams
    }

    /// The place of the poisoned message in a stream, if there is one.
    pub(super) fn poison(&self, stream: u64) -> Option<(u64, Wish)> {
        let every = self.streams / self.poisoned.max(1);
        let poisoned = stream.is_multiple_of(every) && stream / every < self.poisoned;
        let wish = if (stream / every).is_multiple_of(2) { Wish::Fail } else { Wish::Kill };
        poisoned.then_some((self.length(stream) * (1 + stream % 3) / 4, wish))
    }

    pub(super) fn stream_name(stream: u64) -> String {
        format!("stream-{stream}")
    }

    /// Those that wait behind a poisoned one.
    fn followers(&self) -> u64 {
        let behind = |stream| self.poison(stream).map_or(0, |(place, _)| self.length(stream) - place - 1);
        (0..self.streams).map(behind).sum()
    }

    /// The messages in the order in which they are pushed: one of each stream, again and again.
    fn message(&self, number: u64) -> Result<NewMessage> {
        let (stream, place) = (number % self.streams, number / self.streams);
        let wish = match self.poison(stream) {
            Some((poisoned, wish)) if poisoned == place => wish,
            _ => Wish::Succeed,
        };
        Ok(NewMessage::new(queue()?, wish.payload(place)).stream(StreamKey::new(Self::stream_name(stream))?))
    }
}

/// Runs it on a server of its own. `program` is the program of this crate.
pub fn workers(program: &Path, plan: Plan) -> Result<Workers> {
    let cluster = Cluster::start();
    runtime()?.block_on(run(program, &cluster.address(), plan))
}

async fn run(program: &Path, address: &str, plan: Plan) -> Result<Workers> {
    let store = open(address, 3).await?;
    let policy = QueuePolicy {
        crash_budget: ATTEMPTS,
        keep_completed: Duration::from_secs(24 * 3600),
        ..QueuePolicy::with_retry(RetryPolicy::cooldown(ATTEMPTS, Duration::from_millis(20)))
    };
    store.define_queue(&queue()?, policy).await?;
    let client = connect(address).await?;
    client.batch_execute(HANDLED).await?;
    let mut slots = Slots::start(program.to_owned(), address.to_owned(), plan.workers)?;
    let mut dice = Dice::new(plan.seed);
    let mut outcome = Workers::default();
    let pushing = tokio::spawn(push(store.clone(), plan));
    let settled = plan.messages - plan.followers();
    let well = supervise(&store, &mut slots, &mut dice, &plan, settled).await?;
    pushing.await??;
    if !well {
        outcome.lost.push(format!("nothing moves any more: {:?}", store.stats(&queue()?).await?));
        return Ok(outcome);
    }
    let dead = look::quarantine(&store, &plan, &mut outcome).await?;
    look::holds(&client, &plan, &mut outcome).await?;
    // The poison is taken out of them, and they take their old places.
    let healed = dead.iter().map(|(id, place)| Replay {
        payload: Some(Wish::Succeed.payload(*place).into()),
        ..Replay::raw(*id)
    });
    let replayed = store.replay(healed.collect()).await?;
    if replayed.iter().any(|one| *one != Replayed::Done) {
        bail!("a replay was refused: {replayed:?}");
    }
    if !supervise(&store, &mut slots, &mut dice, &plan, plan.messages).await? {
        outcome.lost.push(format!("nothing moves after the replay: {:?}", store.stats(&queue()?).await?));
    }
    slots.stop()?;
    (outcome.kills, outcome.deaths) = (slots.kills, slots.dead.len() as u64);
    look::handled(&client, &plan, &mut outcome).await?;
    look::redelivered(&store, &client, &plan, &slots.dead, &mut outcome).await?;
    let stats = store.stats(&queue()?).await?;
    if !stats.adds_up() || stats.completed != plan.messages {
        outcome.lost.push(format!("the counts do not add up: {stats:?}"));
    }
    store.close().await?;
    Ok(outcome)
}

async fn push(store: PostgresStore, plan: Plan) -> Result<()> {
    for begin in (0..plan.messages).step_by(500) {
        let batch = (begin..plan.messages.min(begin + 500)).map(|number| plan.message(number));
        store.push(batch.collect::<Result<_>>()?).await.context("a push")?;
    }
    Ok(())
}

/// Kills and replaces processes until so many messages are completed or quarantined and nothing is under way. False
/// if nothing moves any more.
async fn supervise(
    store: &PostgresStore,
    slots: &mut Slots,
    dice: &mut Dice,
    plan: &Plan,
    settled: u64,
) -> Result<bool> {
    let (mut moved, mut seen, mut kill_at) = (now(), 0, now());
    loop {
        wait(Duration::from_millis(20)).await;
        if now() >= kill_at {
            slots.kill_one(dice)?;
            kill_at = now() + Duration::from_millis(dice.roll(2 * plan.kill_every_ms) as u64);
        }
        slots.refill(store).await?;
        let stats = store.stats(&queue()?).await?;
        if stats.completed + stats.dead >= settled && stats.active + stats.failed == 0 {
            return Ok(true);
        }
        let progress = stats.completed + stats.dead + stats.failures + stats.pushed;
        if progress != seen {
            (moved, seen) = (now(), progress);
        } else if moved.elapsed() > STALL {
            return Ok(false);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real processes are killed by the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "real processes take real time")]
async fn wait(duration: Duration) {
    tokio::time::sleep(duration).await;
}
