//! The server is stopped at once (`pg_ctl stop -m immediate`) again and again, under load.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::settlement::Settled;
use sickbay_core::{ErrorKind, Key, MessageId, NewMessage, QueuePolicy, Settlement, StoreError, WorkerName};
use sickbay_store::PostgresStore;
use sickbay_testkit::cluster::Cluster;

use super::{open, queue, runtime};

const PRODUCERS: u64 = 3;
const CONSUMERS: usize = 3;
/// So many pushes are acknowledged between two crashes.
const PUSHES: u64 = 150;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Crashes {
    /// So often the server was stopped.
    pub cycles: u64,
    /// So many pushes were acknowledged.
    pub pushed: u64,
    /// So many calls were answered with "try again".
    pub refused: u64,
    /// What is gone or was done twice.
    pub lost: Vec<String>,
}

/// What was promised so far.
#[derive(Default)]
struct Promised {
    pushed: Mutex<HashSet<MessageId>>,
    done: Mutex<Vec<MessageId>>,
    answers: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
    /// Producers that may still push.
    producing: AtomicU64,
}

impl Promised {
    /// A call may fail while the server is away, and only so that it can be tried again.
    fn try_again(&self, error: StoreError) -> Result<()> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if error.kind() == ErrorKind::TryAgain { Ok(()) } else { Err(error).context("an outage") }
    }
}

/// Stops the server so many times.
pub fn crashes(cycles: u64) -> Result<Crashes> {
    let mut cluster = Cluster::start();
    let runtime = runtime()?;
    let promised = Arc::new(Promised::default());
    let store = runtime.block_on(async {
        let store = open(&cluster.address(), 8).await?;
        store.define_queue(&queue()?, QueuePolicy::default()).await?;
        anyhow::Ok(store)
    })?;
    let mut running = Vec::new();
    promised.producing.store(PRODUCERS, Ordering::SeqCst);
    for number in 0..PRODUCERS {
        running.push(runtime.spawn(produce(store.clone(), promised.clone(), number)));
    }
    for _ in 0..CONSUMERS {
        running.push(runtime.spawn(consume(store.clone(), promised.clone())));
    }
    for _ in 0..cycles {
        let before = promised.answers.load(Ordering::SeqCst);
        while promised.answers.load(Ordering::SeqCst) < before + PUSHES
            && !running.iter().any(tokio::task::JoinHandle::is_finished)
        {
            pause();
        }
        cluster.restart();
    }
    promised.stop.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for task in running {
            task.await??;
        }
        look(&store, &promised, cycles).await
    })
}

/// Each key is one message, and each message is done once.
async fn look(store: &PostgresStore, promised: &Promised, cycles: u64) -> Result<Crashes> {
    let pushed = promised.pushed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let done = promised.done.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let refused = promised.refused.load(Ordering::Relaxed);
    let mut outcome = Crashes { cycles, pushed: pushed.len() as u64, refused, lost: Vec::new() };
    let stats = store.stats(&queue()?).await?;
    if !stats.adds_up() || stats.completed != pushed.len() as u64 || stats.pushed != stats.completed {
        outcome.lost.push(format!("{} pushes were acknowledged: {stats:?}", pushed.len()));
    }
    let mut once = HashSet::new();
    for id in done {
        if !once.insert(id) || !pushed.contains(&id) {
            outcome.lost.push(format!("message {} was done twice or never pushed", id.number()));
        }
    }
    store.close().await?;
    Ok(outcome)
}

/// Pushes with keys until it is told to stop; tries again what may not have been done.
async fn produce(store: PostgresStore, promised: Arc<Promised>, producer: u64) -> Result<()> {
    for number in 0u64.. {
        if promised.stop.load(Ordering::SeqCst) {
            break;
        }
        let pushed = loop {
            let message = NewMessage::new(queue()?, "x").key(Key::new(format!("{producer}.{number}"))?);
            match store.push(vec![message]).await {
                Ok(pushed) => break pushed,
                Err(error) => promised.try_again(error)?,
            }
        };
        let mut known = promised.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(pushed.iter().map(|one| one.id()));
        promised.answers.fetch_add(1, Ordering::SeqCst);
    }
    promised.producing.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

/// Claims and completes until everything that was promised is done.
async fn consume(store: PostgresStore, promised: Arc<Promised>) -> Result<()> {
    let (mut held, mut settlements): (Vec<MessageId>, Vec<Settlement>) = (Vec::new(), Vec::new());
    loop {
        let claim = Claim {
            queue: queue()?,
            worker: WorkerName::new("consumer")?,
            process: store.process(),
            max: 5,
            wait: Duration::ZERO,
            lease: Duration::from_millis(500),
        };
        let exchange = Exchange { settlements: std::mem::take(&mut settlements), claim: Some(claim) };
        match store.exchange(exchange).await {
            Ok(exchanged) => {
                let settled = held.iter().zip(&exchanged.settled).filter(|(_, s)| **s == Settled::Applied);
                let mut done = promised.done.lock().unwrap_or_else(PoisonError::into_inner);
                done.extend(settled.map(|(id, _)| *id));
                held = exchanged.deliveries.iter().map(|delivery| delivery.message.id).collect();
                settlements = exchanged.deliveries.iter().map(|d| Settlement::complete(d.token())).collect();
            }
            // What was held may be done, and comes back if it is not.
            Err(error) => {
                promised.try_again(error)?;
                held.clear();
            }
        }
        if settlements.is_empty() && promised.producing.load(Ordering::SeqCst) == 0 {
            let stats = store.stats(&queue()?).await;
            if stats.is_ok_and(|stats| stats.pending + stats.active == 0) {
                return Ok(());
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real servers take real time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}
