//! effectum: jobs in SQLite. As it comes, it commits with `synchronous=NORMAL` and a rollback journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::effectum::{Job, JobRunner, Queue, RunningJob, Worker};
use anyhow::{Context, Result};

use crate::args::Args;
use crate::load::{self, Drained, ENQUEUE_BATCH, Latencies, Message, PRODUCER_PAUSE, Tally};

const JOB: &str = "message";
const CONCURRENCY_MAX: u16 = 4096;
const CONCURRENCY_MIN: u16 = 2048;

pub(crate) fn settings() -> String {
    format!("concurrency {CONCURRENCY_MIN} to {CONCURRENCY_MAX}")
}

pub(crate) async fn drain(args: &Args) -> Result<Drained> {
    let folder = Folder::create(&args.dir)?;
    let queue = Queue::new(&folder.0.join("effectum.db")).await.map_err(as_anyhow)?;
    let enqueue_began = load::now();
    for first in (0..args.count).step_by(ENQUEUE_BATCH) {
        let jobs = (first..args.count.min(first + ENQUEUE_BATCH)).map(job).collect();
        queue.add_jobs(jobs).await.map_err(as_anyhow)?;
    }
    let enqueue = enqueue_began.elapsed();

    let tally = Tally::new(args.count);
    let began = load::now();
    let worker = start_worker(&queue, &tally).await?;
    let handled = tally.finished_at().await? - began;
    stop(worker, &queue).await?;
    // It stops slowly, so its last acknowledgements are left out.
    Ok(Drained { count: args.count, enqueue, handled, drain: handled })
}

pub(crate) async fn latency(args: &Args) -> Result<Latencies> {
    let folder = Folder::create(&args.dir)?;
    let queue = Queue::new(&folder.0.join("effectum.db")).await.map_err(as_anyhow)?;
    let count = load::latency_count(args.duration);
    let tally = Tally::new(count);
    let worker = start_worker(&queue, &tally).await?;
    for id in 0..count {
        let job = job(id);
        tally.sending(id);
        queue.add_job(job).await.map_err(as_anyhow)?;
        load::pause(PRODUCER_PAUSE).await;
    }
    let latencies = tally.latencies().await;
    stop(worker, &queue).await?;
    Ok(latencies)
}

fn job(id: usize) -> Job {
    Job::builder(JOB).payload(Message::new(id).to_json()).build()
}

async fn handle(job: RunningJob, tally: Arc<Tally>) -> ::effectum::Result<()> {
    let started_at = load::now();
    let message: Message = job.json_payload()?;
    tally.started(message.id, started_at);
    Ok(())
}

async fn start_worker(queue: &Queue, tally: &Arc<Tally>) -> Result<Worker> {
    Worker::builder(queue, Arc::clone(tally))
        .jobs([JobRunner::builder(JOB, handle).build()])
        .min_concurrency(CONCURRENCY_MIN)
        .max_concurrency(CONCURRENCY_MAX)
        .build()
        .await
        .map_err(as_anyhow)
}

async fn stop(worker: Worker, queue: &Queue) -> Result<()> {
    worker.unregister(Some(Duration::from_secs(30))).await.map_err(as_anyhow)?;
    queue.close(Duration::from_secs(30)).await.map_err(as_anyhow)
}

/// effectum's error is not `Sync`.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn as_anyhow(error: ::effectum::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

/// A folder for one database, removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn create(parent: &Path) -> Result<Self> {
        let path = parent.join(format!("effectum-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
