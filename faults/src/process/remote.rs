//! A worker that reaches its store through the owner's socket is stopped until its lease is over, and goes on: somebody
//! else has the message by then, and what the worker settles changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use sickbay_core::port::{Deliveries, Desk, Exchange, Overview, Pusher, Store};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::Settled;
use sickbay_core::{Delivery, MessageId, NewMessage, QueuePolicy, Settlement, Verdict, WorkerName};
use sickbay_server::{Api, Listener, RemoteStore, serve, socket_path};
use sickbay_store::{SqliteStore, SystemClock};
use sickbay_worker::{Context, StoreSource, Worker};

use super::child::{claim, options, queue};
use super::{Ended, folder, in_time, send, start};

/// Long enough for a busy machine to begin a handler, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

/// Both kinds of workers: one that asks by hand, and the consumer runtime with its keeper.
pub fn remote() -> Result<Ended> {
    for (word, late) in [("child-remote-holding", "[LeaseLost]"), ("child-remote-working", "1 lost, 0 done")]
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        if let Some(problem) = runtime.block_on(stopped_past_its_lease(word, late))? {
            return Ok(Ended::Badly(format!("{word}: {problem}")));
        }
    }
    Ok(Ended::Well)
}

async fn stopped_past_its_lease(word: &str, late: &str) -> Result<Option<String>> {
    let folder = folder()?;
    let path = folder.path().join("store.db");
    let store = Arc::new(SqliteStore::open(&path, options())?);
    let ages = Duration::from_secs(24 * 3600);
    let policy = QueuePolicy { lease: LEASE, keep_completed: ages, ..QueuePolicy::default() };
    store.define_queue(&queue()?, policy).await?;
    store.push(vec![NewMessage::new(queue()?, "x")]).await?;
    let serving =
        serve(&Api::new(store.clone() as Arc<dyn Store>), Listener::unix(socket_path(&path)).await?);
    let mut child = start(word, &path)?;
    let came_of_it = resume_late(&store, &mut child).await;
    // A child that still stands must not be left behind.
    drop(child.kill());
    drop(child.wait());
    serving.stop().await;
    let (said, settled) = came_of_it?;
    if said != late || settled != [Settled::Applied] {
        return Ok(Some(format!("a late settlement came to {said}, that of the new holder to {settled:?}")));
    }
    let id = MessageId::from_number(1).context("a number that is none")?;
    let view = store.find(id.to_string().parse()?).await?.context("the message is gone")?;
    let stats = store.stats(&queue()?).await?;
    let ends: Vec<AttemptEnd> = view.history.iter().map(|attempt| attempt.end).collect();
    let explained = view.counters.deliveries == 2 && ends.first() == Some(&AttemptEnd::LeaseExpired);
    let once = stats.completed == 1 && stats.active == 0 && stats.adds_up();
    Ok((!explained || !once).then(|| format!("afterwards: {view:?}, {stats:?}")))
}

/// Stops the child while it holds the message, takes the message over, and lets the child go on. What the child says of
/// its settlement, and what came of the other one.
async fn resume_late(store: &SqliteStore, child: &mut Child) -> Result<(String, Vec<Settled>)> {
    let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    anyhow::ensure!(line.trim() == "holding", "the child said {line:?}");
    send(child, Signal::STOP)?;
    let token = in_time(async || {
        let held = store.exchange(Exchange::claim(claim(store, 1, Duration::from_secs(600))?)).await?;
        Ok(held.deliveries.first().map(Delivery::token))
    })
    .await?;
    send(child, Signal::CONT)?;
    child.stdin.take().context("no pipe")?.write_all(b"settle\n")?;
    line.clear();
    output.read_line(&mut line)?;
    let settled = store.exchange(Exchange::settle(vec![Settlement::complete(token)])).await?.settled;
    Ok((line.trim().to_owned(), settled))
}

/// Claims a message through the socket, says so, and settles when it is told to.
pub(super) async fn holding(store: &Path) -> Result<()> {
    let store = RemoteStore::connect(store).await?;
    let claim = sickbay_core::port::Claim {
        queue: queue()?,
        worker: WorkerName::new("child")?,
        process: store.process(),
        max: 1,
        wait: Duration::from_secs(10),
        lease: LEASE,
    };
    super::child::hold(&store, claim).await
}

/// The consumer runtime on the socket: its handler ends when it is told to.
pub(super) async fn working(store: &Path) -> Result<()> {
    let store = Arc::new(RemoteStore::connect(store).await?);
    let process = store.process();
    let source = StoreSource::new(store, queue()?, WorkerName::new("child")?, process);
    let handler = |_: Context| async {
        println!("holding");
        let told = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()));
        drop(told.await);
        Verdict::done()
    };
    // Without a claim that is left waiting, which would get the message once more.
    let worker = Worker::new(Arc::new(source), handler, Arc::new(SystemClock::new()));
    let running = worker.concurrency(1).prefetch(0).start();
    let stats = in_time(async || {
        let stats = running.stats();
        Ok((stats.lost + stats.done > 0).then_some(stats))
    })
    .await?;
    println!("{} lost, {} done", stats.lost, stats.done);
    Ok(())
}
