//! Processes come and go.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::message::Status;
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, ProcessId, Pusher, Store};
use sickbay_core::quarantine::MessageView;
use sickbay_core::{ErrorKind, MessageId, NewMessage, QueueName, QueuePolicy, Settlement, WorkerName};
use sickbay_server::wire::problem::Reaction;
use sickbay_server::{Api, Client, Listener, RemoteStore, Serving, connect, serve, socket_path};
use sickbay_store::{MemoryEffect, MemoryStore};
use sickbay_testkit::ManualClock;
use tempfile::TempDir;

/// An owner and its socket.
struct Owner {
    store: Arc<MemoryStore>,
    serving: Option<Serving>,
    folder: TempDir,
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

impl Owner {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Arc::new(ManualClock::new())));
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let mut owner = Self { store, serving: None, folder: TempDir::new().unwrap() };
        owner.serve().await;
        owner
    }

    async fn serve(&mut self) {
        let listener = Listener::unix(socket_path(self.path())).await.unwrap();
        self.serving = Some(serve(&Api::new(self.store.clone() as Arc<dyn Store>), listener));
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("store.db")
    }

    async fn remote(&self) -> RemoteStore {
        RemoteStore::connect(self.path()).await.unwrap()
    }

    async fn push(&self) -> MessageId {
        self.store.push(vec![NewMessage::new(queue(), "x")]).await.unwrap()[0].id()
    }

    async fn view(&self, id: MessageId) -> MessageView {
        self.store.find(id.to_string().parse().unwrap()).await.unwrap().unwrap()
    }

    /// Lets everything else run until the message is what it should become.
    async fn becomes(&self, id: MessageId, wanted: impl Fn(&MessageView) -> bool) -> MessageView {
        for _ in 0..1_000_000 {
            let view = self.view(id).await;
            if wanted(&view) {
                return view;
            }
            tokio::task::yield_now().await;
        }
        panic!("it never did: {:#?}", self.view(id).await);
    }
}

/// Waits for something that comes soon, or never.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..1_000_000 {
        tokio::select! {
            biased;
            came = &mut future => return came,
            () = tokio::task::yield_now() => {}
        }
    }
    panic!("it never came");
}

/// Lets everything else run for a while.
async fn a_while() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

fn claim(process: ProcessId, wait: u64) -> Exchange {
    Exchange::claim(Claim {
        queue: queue(),
        worker: WorkerName::new("w").unwrap(),
        process,
        max: 1,
        wait: Duration::from_secs(wait),
        lease: Duration::from_secs(30),
    })
}

#[tokio::test]
async fn what_a_process_held_is_suspect_as_soon_as_it_is_gone() {
    let owner = Owner::new().await;
    let id = owner.push().await;
    let remote = owner.remote().await;
    let held = remote.exchange(claim(remote.process(), 0)).await.unwrap().deliveries;
    assert_eq!(held.len(), 1);
    drop(remote);
    let view = owner.becomes(id, |view| view.suspect).await;
    assert_eq!((view.status, view.counters.crashes, view.counters.charges), (Status::Pending, 1, 1));
    let evidence = &view.history[0].failure.as_ref().unwrap().error;
    assert!(evidence.contains("without a goodbye"), "{evidence}");
    let late =
        owner.store.exchange(Exchange::settle(vec![Settlement::complete(held[0].token())])).await.unwrap();
    assert_eq!(late.settled, [sickbay_core::settlement::Settled::LeaseLost]);
}

#[tokio::test]
async fn a_goodbye_leaves_no_suspect_behind() {
    let owner = Owner::new().await;
    let id = owner.push().await;
    let remote = owner.remote().await;
    assert_eq!(remote.exchange(claim(remote.process(), 0)).await.unwrap().deliveries.len(), 1);
    remote.close().await.unwrap();
    // Another one comes and is killed: whatever follows a lost visit has followed by then.
    let other = owner.push().await;
    let second = owner.remote().await;
    assert_eq!(second.exchange(claim(second.process(), 0)).await.unwrap().deliveries.len(), 1);
    drop(second);
    owner.becomes(other, |view| view.suspect).await;
    let view = owner.view(id).await;
    assert_eq!((view.status, view.suspect), (Status::Active, false), "its lease runs out in its own time");
}

#[tokio::test]
async fn a_claim_called_off_gives_back_what_it_would_have_got() {
    let owner = Owner::new().await;
    let remote = owner.remote().await;
    for round in 0..20 {
        let mut waiting = Box::pin(remote.exchange(claim(remote.process(), 3600)));
        // The claim gets as far as it gets in so many steps.
        for _ in 0..round * 3 {
            let polled = tokio::select! {
                biased;
                _ = &mut waiting => true,
                () = tokio::task::yield_now() => false,
            };
            assert!(!polled, "there was nothing to get");
        }
        let id = owner.push().await;
        drop(waiting);
        let exchanged = soon(remote.exchange(claim(remote.process(), 3600))).await.unwrap();
        let delivery = &exchanged.deliveries[0];
        assert_eq!((delivery.message.id, delivery.counters.counted()), (id, 1), "round {round}");
        remote.exchange(Exchange::settle(vec![Settlement::complete(delivery.token())])).await.unwrap();
    }
    assert_eq!(owner.store.stats(&queue()).await.unwrap().completed, 20);
}

#[tokio::test]
async fn the_owner_forgets_a_claim_that_was_called_off() {
    let owner = Owner::new().await;
    let remote = owner.remote().await;
    {
        let mut waiting = std::pin::pin!(remote.exchange(claim(remote.process(), 3600)));
        tokio::select! {
            biased;
            _ = &mut waiting => unreachable!(),
            () = a_while() => {}
        }
    }
    a_while().await;
    owner.push().await;
    let exchanged = soon(remote.exchange(claim(remote.process(), 3600))).await.unwrap();
    let counters = exchanged.deliveries[0].counters;
    assert_eq!((counters.deliveries, counters.releases), (1, 0), "nobody else had it before");
}

#[tokio::test]
async fn without_an_owner_it_says_so_and_with_a_new_one_it_goes_on() {
    let mut owner = Owner::new().await;
    let remote = owner.remote().await;
    let id = owner.push().await;
    remote.sweep().await.unwrap();
    let got = soon(remote.exchange(claim(ProcessId(7), 3600))).await.unwrap();
    assert_eq!(got.deliveries[0].message.id, id);
    let mut waiting = Box::pin(remote.exchange(claim(remote.process(), 3600)));
    for _ in 0..200 {
        tokio::select! {
            biased;
            _ = &mut waiting => unreachable!(),
            () = tokio::task::yield_now() => {}
        }
    }
    owner.serving.take().unwrap().abort().await;
    let gone = soon(waiting).await.unwrap_err();
    assert_eq!((gone.kind(), gone.code()), (ErrorKind::TryAgain, "SB0020"));
    let refused = remote.push(vec![NewMessage::new(queue(), "y")]).await.unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::TryAgain, "SB0020"));
    let problem = connect(owner.path()).await.err().unwrap();
    assert!(problem.is_owner_gone() && problem.reaction == Reaction::TryAgain, "{problem}");
    owner.serve().await;
    let pushed = remote.push(vec![NewMessage::new(queue(), "y")]).await.unwrap()[0].id();
    let again = remote.exchange(claim(remote.process(), 0)).await.unwrap().deliveries.remove(0);
    assert_eq!(again.message.id, pushed);
    drop(remote);
    owner.becomes(pushed, |view| view.suspect).await;
}

#[tokio::test]
async fn an_owner_that_stops_lets_nobody_wait() {
    let mut owner = Owner::new().await;
    let remote = owner.remote().await;
    let waiting = remote.exchange(claim(remote.process(), 3600));
    let serving = owner.serving.take().unwrap();
    let stopping = async {
        a_while().await;
        serving.stop().await;
    };
    let (waited, ()) = tokio::join!(soon(waiting), stopping);
    let error = waited.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::TryAgain, "SB0020"));
    assert!(!socket_path(owner.path()).exists(), "the socket is gone");
}

#[tokio::test]
async fn handlers_own_writes_cannot_travel() {
    let owner = Owner::new().await;
    let id = owner.push().await;
    let remote = owner.remote().await;
    let held = remote.exchange(claim(remote.process(), 0)).await.unwrap().deliveries.remove(0);
    let mut settlement = Settlement::complete(held.token());
    settlement.effect = Some(MemoryEffect::effect(|| Ok(())));
    let error = remote.exchange(Exchange::settle(vec![settlement])).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, "SB0015"));
    assert_eq!(owner.view(id).await.status, Status::Active);
}

#[tokio::test]
async fn a_policy_that_did_not_change_is_the_same_one() {
    let owner = Owner::new().await;
    let remote = owner.remote().await;
    let first = remote.policy(&queue()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &remote.policy(&queue()).await.unwrap()));
    let changed = QueuePolicy { crash_budget: 9, ..QueuePolicy::default() };
    owner.store.define_queue(&queue(), changed.clone()).await.unwrap();
    assert_eq!(*remote.policy(&queue()).await.unwrap(), changed, "in force at once");
    let error = remote.policy(&QueueName::new("p").unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "SB0001"));
}

#[tokio::test]
async fn connections_are_used_again() {
    let owner = Owner::new().await;
    let client = Client::unix(socket_path(owner.path()));
    for _ in 0..50 {
        client.health().await.unwrap();
    }
    let open = std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default();
    for _ in 0..50 {
        client.health().await.unwrap();
    }
    let after = std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default();
    assert!(after < open + 40, "{open} open files became {after}");
}
