//! How many messages programs handle per second: a pool of Python programs that answer at once, and one
//! process per message beside it. From a queue in memory, 256 bytes a message.
//!
//! `cargo run --release -p sickbay-worker --features exec --example pool_rate [messages] [programs] [window]`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sickbay_core::port::{Desk, ProcessId, Pusher};
use sickbay_core::{Clock, NewMessage, QueueName, QueuePolicy, WorkerName};
use sickbay_store::{MemoryStore, SystemClock};
use sickbay_worker::exec::{ExecHandler, ExecPool, Program};
use sickbay_worker::{Context, Handler, StoreSource, Worker};
use tokio::sync::Notify;

/// How long a worker takes to get through so many messages with this handler.
#[expect(clippy::disallowed_methods, reason = "it measures the machine")]
async fn measure(
    handler: Arc<dyn Handler>,
    count: u64,
    concurrency: u32,
    clock: Arc<dyn Clock>,
) -> Result<Duration, Box<dyn Error>> {
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let queue = QueueName::new("rate")?;
    store.define_queue(&queue, QueuePolicy::default()).await?;
    let payload = format!("{{\"text\": \"{}\"}}", "x".repeat(244));
    for _ in 0..count.div_ceil(1000) {
        store.push(vec![NewMessage::new(queue.clone(), payload.clone()); 1000]).await?;
    }
    let (handled, finished) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let told = Arc::clone(&finished);
    let counted = move |ctx: Context| {
        let (handler, handled, told) = (Arc::clone(&handler), Arc::clone(&handled), Arc::clone(&told));
        async move {
            let answer = handler.handle(ctx).await;
            if handled.fetch_add(1, Ordering::Relaxed) + 1 == count {
                told.notify_one();
            }
            answer
        }
    };
    let source = StoreSource::new(store, queue, WorkerName::new("rate")?, ProcessId(1));
    let began = Instant::now();
    let running = Worker::new(Arc::new(source), counted, clock).concurrency(concurrency).start();
    finished.notified().await;
    let took = began.elapsed();
    running.stop().await;
    Ok(took)
}

fn show(name: &str, count: u64, took: Duration) {
    println!("{name}: {:.0} messages/s ({count} in {took:.2?})", count as f64 / took.as_secs_f64());
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut next = |otherwise| args.next().unwrap_or(Ok(otherwise));
    let (count, programs, window) = (next(100_000)?, next(2)?, next(64)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handlers/trivial.py");
    let program = Program::new("python3").arg(script);
    let pool = ExecPool::new(program, Arc::clone(&clock)).programs(programs as usize).window(window as usize);
    let took = measure(Arc::new(pool), count, (programs * window) as u32, Arc::clone(&clock)).await?;
    show(&format!("pool of {programs}, window {window}, start included"), count, took);
    let handler = ExecHandler::new("true", Arc::clone(&clock));
    let took = measure(Arc::new(handler), 1000, 4, clock).await?;
    show("one process per message", 1000, took);
    Ok(())
}
