//! Through the worker: how fast it drains, how soon it begins, what failures cost.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::Pusher;
use sickbay_core::{Failure, NewMessage, QueuePolicy, Verdict, WorkerName};
use sickbay_store::{SqliteStore, SystemClock};
use sickbay_worker::{Context, Handler, StoreSource, Worker};

use crate::load::{Measured, fill, payload, queue, store};

fn worker(store: &impl Measured, handler: impl Handler + 'static) -> Result<Worker> {
    let source =
        StoreSource::new(Arc::new(store.clone()), queue(), WorkerName::new("bench")?, store.own_process());
    Ok(Worker::new(Arc::new(source), handler, Arc::new(SystemClock::new())))
}

/// Waits until everything in the queue is settled, durably.
async fn drained(store: &impl Measured, total: u64, done: &AtomicU64) -> Result<()> {
    let mut look = tokio::time::interval(Duration::from_millis(1));
    while done.load(Ordering::Relaxed) < total {
        look.tick().await;
    }
    loop {
        let stats = store.stats(&queue()).await?;
        if stats.pending + stats.scheduled + stats.failed + stats.active == 0 {
            return Ok(());
        }
        look.tick().await;
    }
}

/// Messages a second: a full queue is drained by handlers that only read the JSON.
pub(crate) async fn drain_rate(folder: &Path, count: u64) -> Result<f64> {
    drain_rate_on(&store(folder, "drain.db", QueuePolicy::default()).await?, count, 1).await
}

/// The same on an empty store, by so many workers.
pub(crate) async fn drain_rate_on(store: &impl Measured, count: u64, workers: usize) -> Result<f64> {
    fill(store, count as usize).await?;
    let done = Arc::new(AtomicU64::new(0));
    let seen = done.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            let body: serde_json::Value = serde_json::from_slice(ctx.payload())?;
            std::hint::black_box(body);
            seen.fetch_add(1, Ordering::Relaxed);
            Ok::<(), serde_json::Error>(())
        }
    };
    let begin = Instant::now();
    let start = |_| Ok(worker(store, handler.clone())?.concurrency(512).prefetch(1024).start());
    let running = (0..workers).map(start).collect::<Result<Vec<_>>>()?;
    drained(store, count, &done).await?;
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    for one in running {
        one.stop().await;
    }
    Ok(rate)
}

/// From just before the push to the start of the handler, in milliseconds, at about a hundred a second: p50 and p99.
pub(crate) async fn latency(folder: &Path, time: Duration) -> Result<(f64, f64)> {
    let store = store(folder, "latency.db", QueuePolicy::default()).await?;
    let zero = Instant::now();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let seen = waits.clone();
    let handler = move |ctx: Context| {
        let began = zero.elapsed().as_nanos() as u64;
        let sent = ctx.header("sent").and_then(|text| text.parse().ok()).unwrap_or(began);
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(began - sent);
        async {}
    };
    let running = worker(&store, handler)?.start();
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    while zero.elapsed() < time {
        pace.tick().await;
        let sent = (zero.elapsed().as_nanos() as u64).to_string();
        store.push(vec![NewMessage::new(queue(), payload(1)).header("sent", sent)]).await?;
    }
    running.stop().await;
    let mut waits = std::mem::take(&mut *waits.lock().unwrap_or_else(PoisonError::into_inner));
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    Ok((at(0.5), at(0.99)))
}

/// How the messages come in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// As in a service: 64 tasks push one message at a time and await its commit, while the worker works.
    Service,
    /// In batches of a thousand, all of them before the worker starts.
    Bulk,
}

/// Seconds until `count` messages are pushed and settled, of which every tenth fails three times, or none does.
pub(crate) async fn failure_time(folder: &Path, count: u64, poison: bool, arrival: Arrival) -> Result<f64> {
    let store = store(folder, &format!("failures-{poison}.db"), failing()).await?;
    failure_time_on(&store, count, poison, arrival).await
}

/// The policy of a queue whose messages fail three times.
pub(crate) fn failing() -> QueuePolicy {
    QueuePolicy::with_retry(RetryPolicy::cooldown(3, Duration::ZERO))
}

/// The same on an empty store.
pub(crate) async fn failure_time_on(
    store: &impl Measured,
    count: u64,
    poison: bool,
    arrival: Arrival,
) -> Result<f64> {
    let messages: Vec<NewMessage> = (0..count)
        .map(|n| {
            let message = NewMessage::new(queue(), payload(n));
            message.header("poison", if poison && n % 10 == 0 { "yes" } else { "no" })
        })
        .collect();
    let done = Arc::new(AtomicU64::new(0));
    let seen = done.clone();
    let handler = move |ctx: Context| {
        let fails = ctx.header("poison") == Some("yes");
        if !fails || ctx.counters().failures == 2 {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            if fails {
                Verdict::retry(Failure::transient("bank unavailable, request 42"))
            } else {
                Verdict::done()
            }
        }
    };
    let worker = worker(store, handler)?.concurrency(512).prefetch(1024);
    let begin = Instant::now();
    let running = match arrival {
        Arrival::Bulk => {
            push_all(store, &messages, 1000).await?;
            worker.start()
        }
        Arrival::Service => {
            let running = worker.start();
            let parts = messages.chunks(messages.len().div_ceil(64)).map(<[NewMessage]>::to_vec);
            futures::future::try_join_all(parts.map(|part| async move { push_all(store, &part, 1).await }))
                .await?;
            running
        }
    };
    drained(store, count, &done).await?;
    let seconds = begin.elapsed().as_secs_f64();
    running.stop().await;
    Ok(seconds)
}

async fn push_all(store: &impl Measured, messages: &[NewMessage], batch: usize) -> Result<()> {
    for part in messages.chunks(batch) {
        store.push(part.to_vec()).await?;
    }
    Ok(())
}

/// What this process holds in memory while a worker is idle, or after it has worked on a backlog, in megabytes.
pub(crate) async fn memory(folder: &Path, backlog: u64) -> Result<f64> {
    let store = SqliteStore::open(
        folder.join("memory.db"),
        sickbay_store::SqliteOptions::new(Arc::new(SystemClock::new())),
    )?;
    let done = Arc::new(AtomicU64::new(0));
    let seen = done.clone();
    let running = worker(&store, move |_: Context| {
        seen.fetch_add(1, Ordering::Relaxed);
        async {}
    })?
    .concurrency(512)
    .prefetch(1024)
    .start();
    let mut look = tokio::time::interval(Duration::from_millis(20));
    let begin = Instant::now();
    while done.load(Ordering::Relaxed) < backlog || begin.elapsed() < Duration::from_millis(500) {
        look.tick().await;
    }
    drop(running);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let kilobytes: f64 =
        line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
    Ok(kilobytes / 1024.0)
}
