//! How many messages programs handle per second: a pool of Python programs that answer at once, and one
//! process per message beside it. Prepared deliveries of 256 bytes, so that no store is
//! measured.
//!
//! `cargo run --release -p sickbay-worker --features exec --example pool_rate [messages] [programs] [window]`

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sickbay_core::port::{Source, SourceError, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Clock, Counters, Decision, Delivery, Key, Lease, LeaseToken, Message, MessageId, MessageType, Priority,
    QueueName, QueuePolicy, Settlement, Stages,
};
use sickbay_store::SystemClock;
use sickbay_worker::exec::{ExecHandler, ExecPool, Program};
use sickbay_worker::{Handler, Worker};
use tokio::sync::Notify;

/// Hands out what was prepared; tells when all of it is done.
struct Prepared {
    deliveries: Mutex<Vec<Delivery>>,
    left: Mutex<usize>,
    finished: Notify,
}

#[async_trait]
impl Source for Prepared {
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError> {
        let taken = {
            let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
            let from = deliveries.len().saturating_sub(turn.want as usize);
            deliveries.split_off(from)
        };
        let left = {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let done = |settlement: &&Settlement| matches!(settlement.decision, Decision::Complete);
            *left -= turn.settlements.iter().filter(done).count();
            *left
        };
        if left == 0 {
            self.finished.notify_one();
        }
        if taken.is_empty() && turn.settlements.is_empty() {
            std::future::pending::<()>().await;
        }
        Ok((vec![Settled::Applied; turn.settlements.len()], taken))
    }

    async fn renew(&self, _: Vec<LeaseToken>, _: Duration) -> Result<Vec<LeaseToken>, SourceError> {
        Ok(Vec::new())
    }

    async fn policy(&self) -> Result<Arc<QueuePolicy>, SourceError> {
        Ok(Arc::default())
    }

    async fn set_type_gate(&self, _: &MessageType, _: TypeGate) -> Result<(), SourceError> {
        Ok(())
    }

    async fn is_done(&self, _: &Key) -> Result<bool, SourceError> {
        Ok(false)
    }
}

fn prepare(count: u64, clock: &dyn Clock) -> Result<Vec<Delivery>, Box<dyn Error>> {
    let queue = QueueName::new("rate")?;
    let payload = bytes::Bytes::from(format!("{{\"text\": \"{}\"}}", "x".repeat(244)));
    let delivery = |number| {
        let id = MessageId::from_number(number)?;
        let message = Message {
            id,
            queue: queue.clone(),
            message_type: None,
            stream: None,
            key: None,
            priority: Priority::default(),
            pushed_at: clock.now(),
            deadline_at: None,
            headers: Vec::new(),
            payload: payload.clone(),
        };
        let token = LeaseToken { epoch: 1, claim: number, message: id };
        let granted_at = clock.now();
        let lease = Lease { token, granted_at, expires_at: granted_at.plus(Duration::from_secs(600)) };
        let counters = Counters { deliveries: 1, ..Counters::default() };
        Some(Delivery { message, lease, counters, stages: Stages::NONE, cause: None, suspect: false })
    };
    Ok((1..=count).filter_map(delivery).collect())
}

/// How long a worker takes to get through so many messages with this handler.
#[expect(clippy::disallowed_methods, reason = "it measures the machine")]
async fn measure(
    handler: Arc<dyn Handler>,
    count: u64,
    concurrency: u32,
    clock: Arc<dyn Clock>,
) -> Result<Duration, Box<dyn Error>> {
    let source = Arc::new(Prepared {
        deliveries: Mutex::new(prepare(count, clock.as_ref())?),
        left: Mutex::new(count as usize),
        finished: Notify::new(),
    });
    let began = Instant::now();
    let running = Worker::new(source.clone(), handler, clock).concurrency(concurrency).start();
    source.finished.notified().await;
    let took = began.elapsed();
    running.stop().await;
    Ok(took)
}

fn show(name: &str, count: u64, took: Duration) {
    let rate = count as f64 / took.as_secs_f64();
    if std::env::args().any(|argument| argument == "--json") {
        return println!(r#"{{"what":"{name}","per_second":{rate:.0}}}"#);
    }
    println!("{name}: {:.0} messages/s ({count} in {took:.2?})", count as f64 / took.as_secs_f64());
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--json").map(|arg| arg.parse::<u64>());
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
