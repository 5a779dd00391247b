//! On PostgreSQL: through the library against the same statements written by hand (layout P3 of the notes),
//! with four connections and a hundred messages a batch; and how fast workers drain it.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::{NewMessage, QueueName, QueuePolicy, Settlement, WorkerName};
use sickbay_store::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::load::payload;
use crate::median;
use crate::work::drain_rate_on;

const CONNECTIONS: usize = 4;
const BATCH: usize = 100;
/// So many workers drain at once, each with two exchanges under way. More were slower on two cores.
const WORKERS: usize = 1;

const RAW: &str = "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw;
    CREATE TABLE raw.msg (queue int NOT NULL, due_at bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY,
        attempts int NOT NULL DEFAULT 0, payload bytea NOT NULL, PRIMARY KEY (queue, due_at, id))
        WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
    CREATE TABLE raw.lease (cid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, until bigint NOT NULL,
        ids bigint[] NOT NULL, attempts int[] NOT NULL, payloads bytea[] NOT NULL);
    ALTER TABLE raw.lease ALTER payloads SET STORAGE EXTERNAL";
const RAW_PUSH: &str =
    "INSERT INTO raw.msg (queue, due_at, payload) SELECT 1, $1, p FROM unnest($2::bytea[]) p";
const RAW_EXCHANGE: &str = "WITH a AS (DELETE FROM raw.lease WHERE cid = ANY($1)),
    c AS (SELECT ctid FROM raw.msg WHERE queue = 1 AND due_at <= $2 ORDER BY queue, due_at, id LIMIT $3
        FOR UPDATE SKIP LOCKED),
    m AS (DELETE FROM raw.msg WHERE ctid = ANY(ARRAY(SELECT ctid FROM c)) RETURNING id, attempts + 1 AS attempts, payload),
    l AS (INSERT INTO raw.lease (until, ids, attempts, payloads)
        SELECT $4, array_agg(id), array_agg(attempts), array_agg(payload) FROM m HAVING count(*) > 0 RETURNING cid)
    SELECT l.cid, m.attempts, m.payload FROM m, l";

pub(crate) async fn connect(address: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The server that is measured.
pub(crate) fn address() -> Result<String> {
    std::env::var("SICKBAY_BENCH_POSTGRES")
        .context("SICKBAY_BENCH_POSTGRES does not say where PostgreSQL is; `cargo xtask bench` starts one")
}

/// An empty store in a schema of its own, with the queue that is measured.
pub(crate) async fn store(schema: &str, policy: QueuePolicy) -> Result<PostgresStore> {
    let address = address()?;
    let gone = format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS {schema} CASCADE");
    connect(&address).await?.batch_execute(&gone).await?;
    let options = PostgresOptions::default().schema(schema).connections(2 * CONNECTIONS);
    PostgresStore::migrate(&address, &options).await?;
    let store = PostgresStore::connect(&address, options).await?;
    store.define_queue(&crate::load::queue(), policy).await?;
    Ok(store)
}

/// The ratio of both rates, in rounds that take turns.
pub(crate) async fn ratio(rounds: usize, count: usize) -> Result<Value> {
    let address = address()?;
    let (mut life, mut drained, mut detail) = (Vec::new(), Vec::new(), Vec::new());
    let mut worked = Vec::new();
    for _ in 0..rounds {
        let raw = [raw(&address, count, true).await?, raw(&address, count, false).await?];
        let own = [own(&address, count, true).await?, own(&address, count, false).await?];
        life.push(own[0] / raw[0]);
        drained.push(own[1] / raw[1]);
        detail.push(json!({"own": own.map(f64::round), "yardstick": raw.map(f64::round)}));
    }
    for _ in 0..rounds {
        worked.push(drain(count as u64, WORKERS).await?.round());
    }
    // The best of all rounds, as with the peers.
    let best = worked.iter().copied().fold(0.0, f64::max);
    Ok(json!({
        "ratio": median(life),
        "drain": median(drained),
        "rounds": detail,
        "drain_per_s": best,
        "drains": worked,
    }))
}

/// Messages a second that so many workers drain.
pub(crate) async fn drain(count: u64, workers: usize) -> Result<f64> {
    let store = store("drain", QueuePolicy::default()).await?;
    let rate = drain_rate_on(&store, count, workers).await?;
    store.close().await?;
    Ok(rate)
}

/// The hand-written loop: pushing as much as it takes, or taking what is there.
async fn raw(address: &str, count: usize, pushing: bool) -> Result<f64> {
    let client = connect(address).await?;
    client.batch_execute(RAW).await?;
    let fill = if pushing { 1000 } else { count };
    for _ in 0..fill / BATCH {
        raw_push(&client).await?;
    }
    let begin = Instant::now();
    let mut running = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = connect(address).await?;
        running.push(tokio::spawn(async move {
            let statement = client.prepare(RAW_EXCHANGE).await?;
            let (mut done, mut held) = (0, Vec::<i64>::new());
            while done < count / CONNECTIONS {
                if pushing {
                    raw_push(&client).await?;
                }
                let rows = client.query(&statement, &[&held, &2i64, &(BATCH as i64), &3i64]).await?;
                if rows.is_empty() && !pushing {
                    break;
                }
                held = rows.first().map(|row| row.get(0)).into_iter().collect();
                done += rows.len();
            }
            client.query(&statement, &[&held, &2i64, &0i64, &3i64]).await?;
            anyhow::Ok(done)
        }));
    }
    let mut done = 0;
    for task in running {
        done += task.await??;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

async fn raw_push(client: &Client) -> Result<()> {
    let bodies: Vec<_> = (0..BATCH).map(|n| payload(n as u64)).collect();
    let bodies: Vec<&[u8]> = bodies.iter().map(AsRef::as_ref).collect();
    client.execute(RAW_PUSH, &[&1i64, &bodies]).await?;
    Ok(())
}

/// The same through the library.
async fn own(address: &str, count: usize, pushing: bool) -> Result<f64> {
    connect(address).await?.batch_execute("DROP SCHEMA IF EXISTS sickbay CASCADE").await?;
    let options = PostgresOptions::default().connections(CONNECTIONS);
    PostgresStore::migrate(address, &options).await?;
    let store = PostgresStore::connect(address, options).await?;
    let queue = QueueName::new("bench")?;
    store.define_queue(&queue, QueuePolicy::default()).await?;
    let fill = if pushing { 1000 } else { count };
    for _ in 0..fill / BATCH {
        store.push(messages(&queue)).await?;
    }
    let begin = Instant::now();
    let mut running = Vec::new();
    for _ in 0..CONNECTIONS {
        let (store, queue) = (store.clone(), queue.clone());
        running.push(tokio::spawn(async move {
            let claim = Claim {
                queue: queue.clone(),
                worker: WorkerName::new("bench")?,
                process: store.process(),
                max: BATCH as u32,
                wait: std::time::Duration::ZERO,
                lease: std::time::Duration::from_secs(60),
            };
            let (mut done, mut held) = (0, Vec::new());
            while done < count / CONNECTIONS {
                if pushing {
                    store.push(messages(&queue)).await?;
                }
                let exchange = Exchange { settlements: held, claim: Some(claim.clone()) };
                let deliveries = store.exchange(exchange).await?.deliveries;
                held = deliveries.iter().map(|delivery| Settlement::complete(delivery.token())).collect();
                done += deliveries.len();
                if deliveries.is_empty() && !pushing {
                    break;
                }
            }
            store.exchange(Exchange::settle(held)).await?;
            anyhow::Ok(done)
        }));
    }
    let mut done = 0;
    for task in running {
        done += task.await??;
    }
    let rate = done as f64 / begin.elapsed().as_secs_f64();
    anyhow::ensure!(store.stats(&queue).await?.adds_up(), "the counts do not add up");
    store.close().await?;
    Ok(rate)
}

fn messages(queue: &QueueName) -> Vec<NewMessage> {
    (0..BATCH).map(|n| NewMessage::new(queue.clone(), payload(n as u64))).collect()
}
