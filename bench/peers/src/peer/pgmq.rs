//! pgmq: its SQL, as the crate of that name installs it, called in batches by a few connections.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::postgres::PgPool;
use sqlx::types::Json;

use crate::args::Args;
use crate::database::Database;
use crate::load::{self, Drained, ENQUEUE_BATCH, Message, Tally};

const QUEUE: &str = "messages";
const CONNECTIONS: u32 = 4;
/// How long a message stays invisible once it is read.
const VISIBILITY_S: i32 = 600;

pub(crate) fn settings(batch: u16) -> String {
    format!("{CONNECTIONS} connections, each reads {batch} and deletes them")
}

pub(crate) async fn drain(args: &Args, batch: u16) -> Result<Drained> {
    let database = Database::create(args, CONNECTIONS).await?;
    let installer = database.pool_0_8(args, 1).await?;
    ::pgmq::install::install_sql_from_embedded(&installer).await?;
    installer.close().await;
    sqlx::query("SELECT pgmq.create($1)").bind(QUEUE).execute(&database.pool).await?;
    let enqueue_began = load::now();
    for first in (0..args.count).step_by(ENQUEUE_BATCH) {
        let messages: Vec<_> =
            (first..args.count.min(first + ENQUEUE_BATCH)).map(|id| Json(Message::new(id))).collect();
        let sent: i64 = sqlx::query_scalar("SELECT count(*) FROM pgmq.send_batch($1, $2)")
            .bind(QUEUE)
            .bind(&messages)
            .fetch_one(&database.pool)
            .await?;
        ensure!(sent == messages.len() as i64, "{sent} of {} were sent", messages.len());
    }
    let enqueue = enqueue_began.elapsed();
    database.settle().await?;

    let tally = Tally::new(args.count);
    let began = load::now();
    let running: Vec<_> = (0..CONNECTIONS)
        .map(|_| tokio::spawn(work(database.pool.clone(), Arc::clone(&tally), batch)))
        .collect();
    for worker in running {
        worker.await??;
    }
    let drain = began.elapsed();
    let handled = tally.finished_at().await? - began;
    database.remove().await?;
    Ok(Drained { count: args.count, enqueue, handled, drain })
}

/// Reads, handles and deletes until every message was handled.
async fn work(pool: PgPool, tally: Arc<Tally>, batch: u16) -> Result<()> {
    let mut connection = pool.acquire().await?;
    while !tally.is_finished() {
        let rows: Vec<(i64, Json<Message>)> =
            sqlx::query_as("SELECT msg_id, message FROM pgmq.read($1, $2, $3)")
                .bind(QUEUE)
                .bind(VISIBILITY_S)
                .bind(i32::from(batch))
                .fetch_all(&mut *connection)
                .await?;
        if rows.is_empty() {
            // The rest is in the hands of the others.
            load::pause(Duration::from_millis(1)).await;
            continue;
        }
        for (_, Json(message)) in &rows {
            tally.handled(message.id);
        }
        let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        let deleted: i64 = sqlx::query_scalar("SELECT count(*) FROM pgmq.delete($1, $2)")
            .bind(QUEUE)
            .bind(&ids)
            .fetch_one(&mut *connection)
            .await?;
        ensure!(deleted == ids.len() as i64, "{deleted} of {} were deleted", ids.len());
    }
    Ok(())
}
