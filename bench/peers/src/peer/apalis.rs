//! apalis-postgres: jobs in PostgreSQL, claimed in large batches by a fast poll.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::apalis::prelude::{
    BackendExt, Data, PollSnapshot, PollStrategy, TaskSink, WorkerBuilder, WorkerBuilderExt, WorkerContext,
};
use anyhow::{Result, anyhow};
use apalis_postgres::{Config, PostgresStorage};
use tokio::time::{Interval, MissedTickBehavior};

use crate::args::Args;
use crate::database::Database;
use crate::load::{self, Drained, ENQUEUE_BATCH, Latencies, Message, PRODUCER_PAUSE, Tally};

const QUEUE: &str = "messages";
const CONNECTIONS: u32 = 20;
const WORKERS: usize = 2;
const BATCH: usize = 2500;
const CONCURRENCY: usize = 1000;
const POLL: Duration = Duration::from_millis(5);
const ALL_DONE: &str = "SELECT NOT EXISTS (SELECT FROM apalis.jobs WHERE status <> 'Done')";

type Storage = PostgresStorage<Message>;

pub(crate) fn settings() -> String {
    format!(
        "{WORKERS} workers, batch {BATCH}, concurrency {CONCURRENCY}, poll {} ms, no separate lock; \
         acknowledges each batch behind the handlers",
        POLL.as_millis()
    )
}

pub(crate) async fn drain(args: &Args) -> Result<Drained> {
    let database = Database::create(args, CONNECTIONS).await?;
    let mut storage = storage(&database).await?;
    let enqueue_began = load::now();
    for first in (0..args.count).step_by(ENQUEUE_BATCH) {
        let messages = (first..args.count.min(first + ENQUEUE_BATCH)).map(Message::new).collect();
        storage.push_bulk(messages).await?;
    }
    let enqueue = enqueue_began.elapsed();
    database.settle().await?;

    let tally = Tally::new(args.count);
    let contexts: Vec<_> = (0..WORKERS).map(|n| WorkerContext::new(&format!("peers-{n}"))).collect();
    let began = load::now();
    let start =
        |context: &WorkerContext| tokio::spawn(work(storage.clone(), context.clone(), Arc::clone(&tally)));
    let running: Vec<_> = contexts.iter().map(start).collect();
    let handled = tally.finished_at().await? - began;
    // It ends when the acknowledgements that it gathered are committed.
    for (context, worker) in contexts.iter().zip(running) {
        stop(context, worker).await?;
    }
    let drain = began.elapsed();
    database.expect(ALL_DONE).await?;
    database.remove().await?;
    Ok(Drained { count: args.count, enqueue, handled, drain })
}

pub(crate) async fn latency(args: &Args) -> Result<Latencies> {
    let database = Database::create(args, CONNECTIONS).await?;
    let mut producer = storage(&database).await?;
    let count = load::latency_count(args.duration);
    let tally = Tally::new(count);
    let context = WorkerContext::new("peers");
    let running = tokio::spawn(work(producer.clone(), context.clone(), Arc::clone(&tally)));
    for id in 0..count {
        let message = Message::new(id);
        tally.sending(id);
        producer.push(message).await?;
        load::pause(PRODUCER_PAUSE).await;
    }
    let latencies = tally.latencies().await;
    stop(&context, running).await?;
    database.remove().await?;
    Ok(latencies)
}

async fn storage(database: &Database) -> Result<Storage> {
    PostgresStorage::setup(&database.pool).await?;
    let config = Config::default().queue(QUEUE).batch_size(BATCH).lock_tasks(false).persist_results(true);
    Ok(Storage::new(&database.pool).with_config(config))
}

async fn handle(message: Message, tally: Data<Arc<Tally>>) {
    let started_at = load::now();
    tally.started(message.id, started_at);
}

async fn work(storage: Storage, context: WorkerContext, tally: Arc<Tally>) -> Result<()> {
    let worker = WorkerBuilder::new(&context)
        .backend(storage.poll_with_strategy(Ticks::every(POLL)))
        .data(tally)
        .concurrency(CONCURRENCY)
        .build(handle);
    worker.run().await.map_err(|error| anyhow!("{error}"))
}

/// Wakes the worker at every tick. apalis' own interval forgets to ask for the next wake-up when a tick
/// falls on an empty fetch, and then the worker sleeps for good.
struct Ticks(Interval);

impl Ticks {
    fn every(period: Duration) -> Self {
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(interval)
    }
}

impl PollStrategy for Ticks {
    fn poll_drive(&mut self, context: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        let mut ticked = false;
        while self.0.poll_tick(context).is_ready() {
            ticked = true;
        }
        if ticked { Poll::Ready(Some(())) } else { Poll::Pending }
    }
}

async fn stop(context: &WorkerContext, running: tokio::task::JoinHandle<Result<()>>) -> Result<()> {
    context.stop().map_err(|error| anyhow!("{error}"))?;
    running.await?
}
