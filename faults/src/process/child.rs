//! What the children do.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Pusher};
use sickbay_core::{NewMessage, QueueName, QueuePolicy, Settlement, Verdict, WorkerName};
use sickbay_store::{SqliteEffect, SqliteOptions, SqliteStore, SystemClock};
use sickbay_worker::{Context, StoreSource, Worker};

use super::{remote, replaced, upgrade};

/// The queue of all scenarios.
pub(super) fn queue() -> Result<QueueName> {
    Ok(QueueName::new("q")?)
}

/// A store as the scenarios open it.
pub(super) fn options() -> SqliteOptions {
    SqliteOptions::new(Arc::new(SystemClock::new())).log_bytes(512 << 10)
}

pub(super) fn claim(store: &SqliteStore, max: u32, lease: Duration) -> Result<Claim> {
    let worker = WorkerName::new("child")?;
    Ok(Claim { queue: queue()?, worker, process: store.process(), max, wait: Duration::ZERO, lease })
}

/// Carries out the word that a child was called with. False if it is none of ours.
pub fn run(word: &str, store: &Path) -> Result<bool> {
    match word {
        "child-busy" => crate::runtime().block_on(busy(store))?,
        "child-deployed" => tokio::runtime::Runtime::new()?.block_on(deployed(store))?,
        "child-holding" => crate::runtime().block_on(holding(store))?,
        "child-remote-holding" => tokio::runtime::Runtime::new()?.block_on(remote::holding(store))?,
        "child-remote-working" => tokio::runtime::Runtime::new()?.block_on(remote::working(store))?,
        "child-pushing" => crate::runtime().block_on(replaced::pushing(store))?,
        upgrade::OLD | upgrade::NEW => crate::runtime().block_on(upgrade::program(word, store))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// What the busy child says before it asks for messages, and before the numbers of those that it then holds.
pub(super) const ASKS: &str = "asks";
pub(super) const HOLDS: &str = "holds";

fn say(words: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(words.as_bytes())?;
    Ok(out.flush()?)
}

/// Pushes and works for as long as it lives; says what was pushed once that is durable, and what it holds.
async fn busy(store: &Path) -> Result<()> {
    let store = SqliteStore::open(store, options())?;
    // Whoever kills this process means the process, not the message in its hands.
    let policy = QueuePolicy { crash_budget: 1_000_000, ..QueuePolicy::default() };
    store.define_queue(&queue()?, policy).await?;
    let mut settlements = Vec::new();
    for round in 0u64.. {
        let batch = (0..round % 7 + 1).map(|n| Ok(NewMessage::new(queue()?, format!("{round}.{n}"))));
        let pushed = store.push(batch.collect::<Result<_>>()?).await?;
        let words: String = pushed.iter().map(|one| format!("{}\n", one.id().number())).collect();
        say(&words)?;
        let claim = claim(&store, 1 + (round % 6) as u32, Duration::from_secs(600))?;
        let exchange = Exchange { settlements: std::mem::take(&mut settlements), claim: Some(claim) };
        say(&format!("{ASKS}\n"))?;
        let deliveries = store.exchange(exchange).await?.deliveries;
        let numbers: String = deliveries.iter().map(|one| format!(" {}", one.message.id.number())).collect();
        say(&format!("{HOLDS}{numbers}\n"))?;
        for delivery in deliveries {
            let number = delivery.message.id.number();
            let effect = SqliteEffect::new(move |connection| {
                connection.execute("CREATE TABLE IF NOT EXISTS handled (number INTEGER)", [])?;
                connection.execute("INSERT INTO handled VALUES (?1)", [number as i64]).map(drop)
            });
            let settlement = Settlement { effect: Some(effect), ..Settlement::complete(delivery.token()) };
            settlements.push(settlement);
        }
    }
    Ok(())
}

/// A service whose handlers never end, and which stops when it is told to.
async fn deployed(store: &Path) -> Result<()> {
    let store = SqliteStore::open(store, options())?;
    let process = store.process();
    let source = StoreSource::new(Arc::new(store), queue()?, WorkerName::new("deployed")?, process);
    let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |_: Context| {
        let begun = begun.clone();
        async move {
            let _ = begun.send(());
            std::future::pending::<Verdict>().await
        }
    };
    let worker = Worker::new(Arc::new(source), handler, Arc::new(SystemClock::new()));
    let running = worker.concurrency(4).prefetch(4).stop_limit(Duration::from_millis(1)).start();
    begins.recv().await.context("no handler began")?;
    println!("working");
    told.recv().await;
    running.stop().await;
    Ok(())
}

/// Claims a message for a moment, says so, and settles when it is told to.
async fn holding(store: &Path) -> Result<()> {
    let store = SqliteStore::open(store, options())?;
    let lease =
        Duration::from_millis(std::env::var("LEASE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(200));
    hold(&store, claim(&store, 1, lease)?).await?;
    if std::env::var_os("TELL_TIME").is_some() {
        println!("{}", wall_clock());
    }
    Ok(())
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "this is about the wall clock of a process")]
pub(super) fn wall_clock() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Holds what a claim gets until it is told to settle it, and says what came of that.
pub(super) async fn hold(store: &dyn Deliveries, claim: Claim) -> Result<()> {
    let held = store.exchange(Exchange::claim(claim)).await?.deliveries;
    let token = held.first().context("nothing to hold")?.token();
    println!("holding");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let settled = store.exchange(Exchange::settle(vec![Settlement::complete(token)])).await?.settled;
    println!("{settled:?}");
    Ok(())
}
