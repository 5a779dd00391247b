//! graphile_worker: jobs in PostgreSQL, fetched through local queues and completed in batches as in its own
//! benchmark.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};

use crate::args::Args;
use crate::database::Database;
use crate::load::{self, Drained, ENQUEUE_BATCH, Latencies, Message, PRODUCER_PAUSE, Tally};

const SCHEMA: &str = "graphile_worker";
const CONNECTIONS: u32 = 20;
const CONCURRENCY: usize = 24;
const LOCAL_QUEUES: usize = 4;
const LOCAL_QUEUE: usize = 1000;
const POLL: Duration = Duration::from_millis(5);
const BATCH_DELAY: Duration = Duration::from_millis(5);
const ALL_DONE: &str = "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)";

#[derive(Debug, Clone)]
struct Handled(Arc<Tally>);

impl TaskHandler for Message {
    const IDENTIFIER: &'static str = "message";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let started_at = load::now();
        match context.get_ext::<Handled>() {
            Some(Handled(tally)) => {
                tally.started(self.id, started_at);
                Ok(())
            }
            None => Err("the tally is missing"),
        }
    }
}

pub(crate) fn settings() -> String {
    format!(
        "concurrency {CONCURRENCY}, {LOCAL_QUEUES} local queues of {LOCAL_QUEUE}, completes in batches every {} ms \
         behind the handlers",
        BATCH_DELAY.as_millis()
    )
}

pub(crate) async fn drain(args: &Args) -> Result<Drained> {
    let database = Database::create(args, CONNECTIONS).await?;
    let utils = migrated(&database).await?;
    let enqueue_began = load::now();
    for first in (0..args.count).step_by(ENQUEUE_BATCH) {
        let jobs: Vec<_> = (first..args.count.min(first + ENQUEUE_BATCH)).map(job).collect::<Result<_>>()?;
        utils.add_raw_jobs(&jobs).await?;
    }
    let enqueue = enqueue_began.elapsed();
    database.settle().await?;

    let tally = Tally::new(args.count);
    let worker = Arc::new(options(&database, &tally).init().await?);
    let began = load::now();
    let running = tokio::spawn(run(Arc::clone(&worker)));
    let handled = tally.finished_at().await? - began;
    // It ends when the completions still in its batches are committed.
    worker.request_shutdown();
    running.await??;
    let drain = began.elapsed();
    database.expect(ALL_DONE).await?;
    database.remove().await?;
    Ok(Drained { count: args.count, enqueue, handled, drain })
}

async fn run(worker: Arc<Worker>) -> Result<()> {
    Ok(worker.run().await?)
}

pub(crate) async fn latency(args: &Args) -> Result<Latencies> {
    let database = Database::create(args, CONNECTIONS).await?;
    let utils = migrated(&database).await?;
    let count = load::latency_count(args.duration);
    let tally = Tally::new(count);
    let worker = Arc::new(options(&database, &tally).init().await?);
    let running = tokio::spawn(run(Arc::clone(&worker)));
    for id in 0..count {
        let message = Message::new(id);
        tally.sending(id);
        utils.add_job(message, JobSpec::default()).await?;
        load::pause(PRODUCER_PAUSE).await;
    }
    let latencies = tally.latencies().await;
    worker.request_shutdown();
    running.await??;
    database.remove().await?;
    Ok(latencies)
}

fn job(id: usize) -> Result<RawJobSpec> {
    Ok(RawJobSpec {
        identifier: Message::IDENTIFIER.into(),
        payload: serde_json::to_value(Message::new(id))?,
        spec: JobSpec::default(),
    })
}

async fn migrated(database: &Database) -> Result<WorkerUtils> {
    let utils = WorkerUtils::new(database.pool.clone(), SCHEMA);
    utils.migrate().await?;
    Ok(utils)
}

fn options(database: &Database, tally: &Arc<Tally>) -> WorkerOptions {
    WorkerOptions::default()
        .pg_pool(database.pool.clone())
        .schema(SCHEMA)
        .concurrency(CONCURRENCY)
        .poll_interval(POLL)
        .complete_job_batch_delay(BATCH_DELAY)
        .fail_job_batch_delay(BATCH_DELAY)
        .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE).with_queue_count(LOCAL_QUEUES))
        .listen_os_shutdown_signals(false)
        .add_extension(Handled(Arc::clone(tally)))
        .define_job::<Message>()
}
