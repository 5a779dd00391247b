//! The worker runtime on a store of another process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sickbay_core::port::{Desk, Overview, Pusher, Store};
use sickbay_core::{Failure, NewMessage, QueueName, QueuePolicy, Verdict, WorkerName};
use sickbay_server::{Api, Listener, RemoteStore, serve, socket_path};
use sickbay_store::{SqliteOptions, SqliteStore, SystemClock};
use sickbay_worker::{Context, StoreSource, Worker};
use tempfile::TempDir;

const MESSAGES: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_two_other_processes_handle_everything_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::new(clock.clone()).log_bytes(0)).unwrap());
    let listener = Listener::unix(socket_path(&path)).await.unwrap();
    let serving = serve(&Api::new(store.clone() as Arc<dyn Store>), listener);
    let queue = QueueName::new("orders").unwrap();
    store.define_queue(&queue, QueuePolicy::default()).await.unwrap();

    let handled: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let all = Arc::new(tokio::sync::Semaphore::new(0));
    let mut running = Vec::new();
    let mut remotes = Vec::new();
    for n in 0..2 {
        let remote = Arc::new(RemoteStore::connect(&path).await.unwrap());
        let name = WorkerName::new(format!("worker/{n}")).unwrap();
        let source = StoreSource::new(remote.clone(), queue.clone(), name, remote.process());
        let (handled, all) = (handled.clone(), all.clone());
        let handler = move |ctx: Context| {
            let (handled, all) = (handled.clone(), all.clone());
            async move {
                let payload = String::from_utf8_lossy(ctx.payload()).into_owned();
                let bad = payload.ends_with('7');
                *handled.lock().unwrap().entry(payload).or_default() += 1;
                all.add_permits(1);
                if bad { Verdict::poison(Failure::poison("it ends with a seven")) } else { Verdict::done() }
            }
        };
        running.push(Worker::new(Arc::new(source), handler, clock.clone()).concurrency(4).start());
        remotes.push(remote);
    }
    for n in 0..MESSAGES {
        store.push(vec![NewMessage::new(queue.clone(), n.to_string())]).await.unwrap();
    }
    drop(all.acquire_many(MESSAGES as u32).await.unwrap());
    for worker in running {
        worker.stop().await;
    }
    let handled = handled.lock().unwrap().clone();
    assert_eq!(handled.len(), MESSAGES);
    assert!(handled.values().all(|times| *times == 1), "{handled:?}");
    let stats = store.stats(&queue).await.unwrap();
    assert_eq!((stats.completed, stats.dead, stats.active), (270, 30, 0));
    assert!(stats.adds_up());
    for remote in remotes {
        // The worker's tasks let go of it when they have ended.
        while Arc::strong_count(&remote) > 1 {
            tokio::task::yield_now().await;
        }
        Arc::into_inner(remote).unwrap().close().await.unwrap();
    }
    serving.stop().await;
}
