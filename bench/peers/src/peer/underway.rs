//! underway: step functions in PostgreSQL, one task per claim and two commits per task.

use std::sync::Arc;

use ::underway::task::Result as TaskResult;
use ::underway::{Queue, Task, Worker};
use anyhow::Result;
use jiff::{Span, ToSpan};
use sqlx_0_8::{Postgres, Transaction};

use crate::args::Args;
use crate::database::Database;
use crate::load::{self, Drained, ENQUEUE_BATCH, Message, Tally};

const QUEUE: &str = "messages";
const CONCURRENCY: usize = 16;
/// Every poll starts one more loop until the concurrency is reached.
const POLL_MS: i64 = 1;
/// It is given only every so many of the messages: a claim searches what is done already.
const SHARE: usize = 20;

pub(crate) fn settings() -> String {
    format!("concurrency {CONCURRENCY}, poll {POLL_MS} ms; one message of {SHARE}")
}

struct Handled(Arc<Tally>);

impl Task for Handled {
    type Input = Message;
    type Output = ();

    async fn execute(&self, _: Transaction<'_, Postgres>, message: Message) -> TaskResult<()> {
        self.0.handled(message.id);
        Ok(())
    }

    fn timeout(&self) -> Span {
        1.minute()
    }
}

pub(crate) async fn drain(args: &Args) -> Result<Drained> {
    let count = args.count.div_ceil(SHARE);
    let concurrency = CONCURRENCY;
    let database = Database::create(args, 1).await?;
    // Two connections listen; a loop uses one at a time, and its heartbeat another for a moment.
    let pool = database.pool_0_8(args, 2 * concurrency as u32 + 2).await?;
    ::underway::run_migrations(&pool).await?;
    let tally = Tally::new(count);
    let queue: Arc<Queue<Handled>> = Arc::new(Queue::builder().name(QUEUE).pool(pool.clone()).build().await?);
    let task = Handled(Arc::clone(&tally));
    let enqueue_began = load::now();
    for first in (0..count).step_by(ENQUEUE_BATCH) {
        let messages: Vec<_> = (first..count.min(first + ENQUEUE_BATCH)).map(Message::new).collect();
        queue.enqueue_multi(&pool, &task, &messages).await?;
    }
    let enqueue = enqueue_began.elapsed();
    database.settle().await?;

    let mut worker = Worker::new(queue, task);
    worker.set_concurrency_limit(concurrency);
    let began = load::now();
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_every(POLL_MS.milliseconds()).await }
    });
    let handled = tally.finished_at().await? - began;
    // It ends when the tasks under way are committed.
    worker.shutdown();
    running.await??;
    let drain = began.elapsed();
    database.expect("SELECT NOT EXISTS (SELECT FROM underway.task WHERE state <> 'succeeded')").await?;
    pool.close().await;
    database.remove().await?;
    Ok(Drained { count, enqueue, handled, drain })
}
