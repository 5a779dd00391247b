//! How fast messages are pushed through the socket, against the library in the same run.
//!
//! ```text
//! cargo run --release -p sickbay-server --example socket_rate
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use sickbay_core::port::{Claim, Desk, Exchange, ProcessId, Store};
use sickbay_core::{NewMessage, QueueName, QueuePolicy, Settlement, WorkerName};
use sickbay_server::{Api, Listener, RemoteStore, serve, socket_path};
use sickbay_store::{SqliteOptions, SqliteStore, SystemClock};

const BATCH: usize = 100;
const ROUNDS: usize = 3;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store.db");
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::new(Arc::new(SystemClock::new())))?);
    let queue: QueueName = "orders".try_into()?;
    store.define_queue(&queue, QueuePolicy::default()).await?;
    let listener = Listener::unix(socket_path(&path)).await?;
    let serving = serve(&Api::new(store.clone() as Arc<dyn Store>), listener);
    let remote = Arc::new(RemoteStore::connect(&path).await?);
    let (process, there) = (remote.process(), remote.clone() as Arc<dyn Store>);
    let here = store.clone() as Arc<dyn Store>;
    for pushers in [1, 4] {
        let (mut library, mut socket) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            library += rate(&here, &queue, pushers).await?;
            socket += rate(&there, &queue, pushers).await?;
        }
        report(&format!("push, {pushers} at a time"), library, socket);
    }
    let (mut library, mut socket) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        library += drain(&here, &queue, store.process()).await?;
        socket += drain(&there, &queue, process).await?;
    }
    report("claim and complete", library, socket);
    drop(there);
    if let Some(remote) = Arc::into_inner(remote) {
        remote.close().await?;
    }
    serving.stop().await;
    Ok(())
}

fn report(what: &str, library: f64, socket: f64) {
    let (library, socket) = (library / ROUNDS as f64, socket / ROUNDS as f64);
    let ratio = socket / library;
    if std::env::args().any(|argument| argument == "--json") {
        println!(r#"{{"what":"{what}","library":{library:.0},"socket":{socket:.0},"ratio":{ratio:.3}}}"#);
    } else {
        println!("{what}: library {library:.0}/s, socket {socket:.0}/s, ratio {ratio:.2}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
fn now() -> Instant {
    Instant::now()
}

/// Messages per second that so many tasks push in batches of a hundred.
async fn rate(store: &Arc<dyn Store>, queue: &QueueName, pushers: usize) -> Result<f64, Failed> {
    const BATCHES: usize = 200;
    let started = now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..pushers {
        let (store, queue) = (store.clone(), queue.clone());
        tasks.spawn(async move {
            let payload = format!("{{\"order\":{}}}", "7".repeat(246));
            for _ in 0..BATCHES {
                let batch = (0..BATCH).map(|_| NewMessage::new(queue.clone(), payload.clone())).collect();
                store.push(batch).await?;
            }
            Ok::<(), sickbay_core::StoreError>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok((pushers * BATCHES * BATCH) as f64 / started.elapsed().as_secs_f64())
}

/// Messages per second that one worker takes and completes, a hundred in each exchange.
async fn drain(store: &Arc<dyn Store>, queue: &QueueName, process: ProcessId) -> Result<f64, Failed> {
    const TURNS: usize = 100;
    let started = now();
    let mut settlements = Vec::new();
    for _ in 0..TURNS {
        let claim = Claim {
            queue: queue.clone(),
            worker: WorkerName::new("bench")?,
            process,
            max: BATCH as u32,
            wait: Duration::ZERO,
            lease: Duration::from_secs(30),
        };
        let exchanged = store.exchange(Exchange { settlements, claim: Some(claim) }).await?;
        settlements = exchanged.deliveries.iter().map(|held| Settlement::complete(held.token())).collect();
    }
    store.exchange(Exchange::settle(settlements)).await?;
    Ok((TURNS * BATCH) as f64 / started.elapsed().as_secs_f64())
}
