//! A store in another process keeps every promise that the store itself keeps.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_server::{Api, Client, Listener, RemoteStore, Serving, serve};
use sickbay_testkit::{Fixture, ManualClock};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::travelling::Travelling;

/// The runtime of all owners and connections. The suite itself runs on others, without any I/O.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap()
    })
}

/// Waits for something on that runtime, from wherever the suite is.
fn wait<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(future)).join().unwrap())
}

/// A store that is owned and served by one side and used from the other, through a socket.
struct Remote<F> {
    owner: F,
    serving: Option<Serving>,
    remote: Arc<RemoteStore>,
    folder: TempDir,
}

impl<F: Fixture> Remote<F> {
    fn new(owner: F) -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("store.sock");
        let remote = wait(async { Arc::new(RemoteStore::new(Client::unix(socket))) });
        let mut fixture = Self { owner, serving: None, remote, folder };
        fixture.serve();
        fixture
    }

    fn serve(&mut self) {
        let (store, socket) = (self.owner.store(), self.folder.path().join("store.sock"));
        self.serving = Some(wait(async move {
            let listener = Listener::unix(socket).await.unwrap();
            serve(&Api::new(store), listener)
        }));
    }
}

impl<F: Fixture> Fixture for Remote<F> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(Travelling { remote: self.remote.clone(), owner: self.owner.store() })
    }

    fn clock(&self) -> &ManualClock {
        self.owner.clock()
    }

    fn process(&self) -> ProcessId {
        self.owner.process()
    }

    fn crash(&mut self) {
        if let Some(serving) = self.serving.take() {
            wait(serving.abort());
        }
        self.owner.crash();
        self.serve();
    }

    fn reopen(&mut self) {
        if let Some(serving) = self.serving.take() {
            wait(serving.stop());
        }
        self.owner.reopen();
        self.serve();
    }

    fn effect(&self, key: &str) -> Effect {
        self.owner.effect(key)
    }

    fn effects(&self) -> Vec<String> {
        self.owner.effects()
    }

    fn damage(&self, id: MessageId) {
        self.owner.damage(id);
    }
}

mod sqlite {
    use super::Remote;
    use crate::owners::SqliteOwner;

    sickbay_testkit::conformance!(Remote::new(SqliteOwner::new()));
}

mod memory {
    use super::Remote;
    use crate::owners::MemoryOwner;

    sickbay_testkit::conformance!(Remote::new(MemoryOwner::new()));
}
