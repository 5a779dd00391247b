//! What the worker itself costs per delivery: a source in memory hands out prepared deliveries, the
//! handler does nothing.
//!
//! `cargo run --release -p sickbay-worker --example overhead [deliveries] [threads]`

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sickbay_core::port::{Source, SourceError, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Clock, Counters, Delivery, Key, Lease, LeaseToken, Message, MessageId, MessageType, Priority, QueueName,
    QueuePolicy, Stages, Timestamp,
};
use sickbay_worker::{Context, Worker};
use tokio::sync::Notify;

/// Hands out what was prepared; tells when all of it is settled.
struct Prepared {
    deliveries: Mutex<Vec<Delivery>>,
    policy: Arc<QueuePolicy>,
    left: Mutex<(usize, u64)>,
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
            left.0 -= turn.settlements.len();
            left.1 += 1;
            left.0
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
        Ok(Arc::clone(&self.policy))
    }

    async fn set_type_gate(&self, _: &MessageType, _: TypeGate) -> Result<(), SourceError> {
        Ok(())
    }

    async fn is_done(&self, _: &Key) -> Result<bool, SourceError> {
        Ok(false)
    }
}

/// The machine's clock, as the store has it.
struct MachineClock(Instant);

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_767_225_600_000).plus(self.0.elapsed())
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        Some(until.since(self.now()))
    }

    fn on_tick(&self, _: Arc<dyn Fn() -> bool + Send + Sync>) {}
}

fn prepare(count: u64, now: Timestamp) -> Option<Vec<Delivery>> {
    let queue = QueueName::new("overhead").ok()?;
    let message_type = MessageType::new("OrderPaid").ok();
    let payload = bytes::Bytes::from(vec![b'x'; 256]);
    (1..=count)
        .map(|number| {
            let id = MessageId::from_number(number)?;
            let token = LeaseToken { epoch: 1, claim: number, message: id };
            let message = Message {
                id,
                queue: queue.clone(),
                message_type: message_type.clone(),
                stream: None,
                key: None,
                priority: Priority::default(),
                pushed_at: now,
                deadline_at: None,
                headers: Vec::new(),
                payload: payload.clone(),
            };
            let lease = Lease { token, granted_at: now, expires_at: now.plus(Duration::from_secs(30)) };
            let counters = Counters { deliveries: 1, ..Counters::default() };
            Some(Delivery { message, lease, counters, stages: Stages::NONE, cause: None, suspect: false })
        })
        .collect()
}

async fn measure(name: &str, count: u64, pending: bool, clock: &Arc<dyn Clock>, began: &Instant) {
    let Some(deliveries) = prepare(count, clock.now()) else { return };
    let source = Arc::new(Prepared {
        deliveries: Mutex::new(deliveries),
        policy: Arc::new(QueuePolicy::default()),
        left: Mutex::new((count as usize, 0)),
        finished: Notify::new(),
    });
    let handler = move |_: Context| async move {
        if pending {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    };
    let before = began.elapsed();
    let running =
        Worker::new(source.clone(), handler, Arc::clone(clock)).concurrency(64).prefetch(1024).start();
    source.finished.notified().await;
    let took = began.elapsed() - before;
    let turns = source.left.lock().unwrap_or_else(PoisonError::into_inner).1;
    println!(
        "{name}: {:.0} ns per delivery, {:.0} deliveries/s, {:.0} settlements per turn",
        took.as_nanos() as f64 / count as f64,
        count as f64 / took.as_secs_f64(),
        count as f64 / turns as f64
    );
    running.stop().await;
}

#[expect(clippy::disallowed_methods, reason = "it measures the machine")]
fn main() -> std::io::Result<()> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500_000);
    let began = Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock(began));
    let only: Option<usize> = std::env::args().nth(2).and_then(|text| text.parse().ok());
    for threads in [1usize, 2].into_iter().filter(|threads| only.is_none_or(|only| only == *threads)) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        for (name, pending) in [("answers at once", false), ("waits three times", true)] {
            let clock = Arc::clone(&clock);
            let name = format!("{threads} thread(s), handler {name}");
            let task = runtime.spawn(async move { measure(&name, count, pending, &clock, &began).await });
            if let Err(error) = runtime.block_on(task) {
                eprintln!("{error}");
            }
        }
    }
    Ok(())
}
