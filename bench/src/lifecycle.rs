//! Through the library: push, claim, acknowledge.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use sickbay_core::port::{Exchange, Pusher};
use sickbay_core::{QueuePolicy, Settlement};

use crate::load::{Measured, claim, fill, messages, store};

/// Messages a second through push, claim and acknowledgement, `batch` at a time.
pub(crate) async fn rate(folder: &Path, count: u64, batch: usize) -> Result<f64> {
    let store = store(folder, "lifecycle.db", QueuePolicy::default()).await?;
    fill(&store, 1000).await?;
    rate_on(&store, count, batch).await
}

/// The same on a store that holds something already. Two batches are on their way at any time, so that the writer
/// never waits for its callers.
pub(crate) async fn rate_on(store: &impl Measured, count: u64, batch: usize) -> Result<f64> {
    let begin = Instant::now();
    let one = || tokio::spawn(turns(store.clone(), count / 2, batch));
    let (first, second) = (one(), one());
    let done = first.await?? + second.await??;
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// Pushes, claims and acknowledges, until so many messages are through.
async fn turns(store: impl Measured, count: u64, batch: usize) -> Result<u64> {
    let (mut done, mut held) = (0u64, Vec::new());
    while done < count {
        let claim = Some(claim(&store, batch as u32, Duration::ZERO));
        let exchange = Exchange { settlements: std::mem::take(&mut held), claim };
        // Both reach the writer together and share its commit.
        let (pushed, exchanged) = tokio::join!(store.push(messages(batch)), store.exchange(exchange));
        pushed?;
        let deliveries = exchanged?.deliveries;
        done += deliveries.len() as u64;
        held = deliveries.iter().map(|delivery| Settlement::complete(delivery.token())).collect();
    }
    store.exchange(Exchange::settle(held)).await?;
    Ok(done)
}

/// Durable pushes a second by so many tasks, each pushing one message and awaiting its commit.
pub(crate) async fn push_rate(folder: &Path, tasks: usize, time: Duration) -> Result<f64> {
    let store = store(folder, &format!("push-{tasks}.db"), QueuePolicy::default()).await?;
    let pushed = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let mut running = Vec::new();
    for _ in 0..tasks {
        let (store, pushed) = (store.clone(), pushed.clone());
        running.push(tokio::spawn(async move {
            while begin.elapsed() < time {
                store.push(messages(1)).await?;
                pushed.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        }));
    }
    for task in running {
        task.await??;
    }
    Ok(pushed.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}
