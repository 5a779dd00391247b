//! How fast a store is copied: 200,000 messages of 256 bytes, 20,000 of them dead letters with a stack trace, from
//! SQLite to PostgreSQL and back. `SICKBAY_TEST_POSTGRES` says where the database is.
//!
//! ```text
//! cargo run --release -p sickbay-store --features postgres --example copy_rate
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use sickbay_core::decide::SetAside;
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Export, Import, PageSize, ProcessId, Pusher};
use sickbay_core::{
    Decision, Failure, NewMessage, QueueName, QueuePolicy, Settlement, StoreError, WorkerName,
};
use sickbay_store::{
    CopyState, PostgresAtRest, PostgresOptions, PostgresStore, SqliteAtRest, SqliteOptions, SqliteStore,
    SystemClock, copy,
};

const MESSAGES: usize = 200_000;
const DEAD: usize = 20_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("SICKBAY_TEST_POSTGRES")?;
    let folder = tempfile::tempdir()?;
    let (path, back) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let options = SqliteOptions::new(Arc::new(SystemClock::new()));
    fill(&SqliteStore::open(&path, options.clone())?).await?;
    let schema = format!("copy_rate_{}", std::process::id());
    let database = PostgresOptions::default().schema(&schema);
    PostgresStore::migrate(&address, &database).await?;
    {
        let source = SqliteAtRest::open_source(&path, &options)?;
        let target = PostgresAtRest::open_target(&address, &database).await?;
        measure("SQLite to PostgreSQL", &source, &target).await?;
    }
    let source = PostgresAtRest::open_source(&address, &database).await?;
    measure("PostgreSQL to SQLite", &source, &SqliteAtRest::open_target(&back, &options)?).await?;
    drop(source);
    let (client, connection) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("SET client_min_messages = error; DROP SCHEMA {schema} CASCADE")).await?;
    Ok(())
}

async fn fill(store: &SqliteStore) -> Result<(), Box<dyn std::error::Error>> {
    let queue = QueueName::new("orders")?;
    store.define_queue(&queue, QueuePolicy::default()).await?;
    for _ in 0..MESSAGES / 1000 {
        let message = NewMessage::new(queue.clone(), vec![7; 256]).message_type("OrderPaid".parse()?);
        store.push(vec![message; 1000]).await?;
    }
    let claim = Claim {
        queue,
        worker: WorkerName::new("worker")?,
        process: ProcessId(1),
        max: 500,
        wait: Duration::ZERO,
        lease: Duration::from_secs(60),
    };
    let failure = Failure::poison(format!("order is broken\n{}", "    at handler.rs:7\n".repeat(60)));
    for _ in 0..DEAD / 500 {
        let deliveries = store.exchange(Exchange::claim(claim.clone())).await?.deliveries;
        let set_aside = SetAside::NonRetryableError;
        let settle =
            |token| Settlement::new(token, Decision::Quarantine { set_aside, failure: failure.clone() });
        let settlements = deliveries.iter().map(|delivery| settle(delivery.token())).collect();
        store.exchange(Exchange::settle(settlements)).await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
async fn measure(what: &str, source: &dyn Export, target: &dyn Import) -> Result<(), StoreError> {
    let began = Instant::now();
    let mut copied_after = None;
    let copied = copy(source, target, PageSize::default(), |state, _| {
        if state == CopyState::Verifying {
            copied_after.get_or_insert_with(|| began.elapsed());
        }
    });
    let copied = copied.await?;
    let (whole, copying) = (began.elapsed(), copied_after.unwrap_or_default());
    let rate = |time: Duration| MESSAGES as f64 / time.as_secs_f64();
    println!(
        "{what}: copied in {copying:.2?} ({:.0} messages/s), compared after {whole:.2?} in all ({:.0} messages/s); {:?}",
        rate(copying),
        rate(whole),
        copied.records
    );
    Ok(())
}
