//! A store that lives in another process.

mod deliveries;
mod desk;
mod overview;
mod policies;
mod presence;

use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use sickbay_core::port::ProcessId;

use crate::client::{Client, connect};
use crate::wire::Problem;
use policies::Policies;
use presence::Keeper;

/// The whole store of another process, reached through a [`Client`]. Workers use it like one of their own.
///
/// The owner notices when this process dies and makes suspect what it held. A process that ends well calls
/// [`RemoteStore::close`] first. Handlers' own writes cannot travel: a settlement that carries some is
/// refused (`SB0015`).
pub struct RemoteStore {
    client: Client,
    process: ProcessId,
    presence: Keeper,
    policies: Policies,
}

impl RemoteStore {
    /// The store that this client reaches.
    pub fn new(client: Client) -> Self {
        let process = ProcessId(random());
        let presence = Keeper::new(client.clone(), process);
        Self { client, process, presence, policies: Policies::default() }
    }

    /// Finds the owner of the store in this file.
    pub async fn connect(store: impl AsRef<Path>) -> Result<Self, Problem> {
        connect(store).await.map(Self::new)
    }

    /// This process, as its leases name it.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// The client, for everything that is not a store's business.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Says goodbye to the owner. What is still held comes back when its leases run out.
    pub async fn close(self) -> Result<(), Problem> {
        self.presence.leave().await
    }
}

/// A number that nobody else has.
pub(crate) fn random() -> u64 {
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() >> 1
}
