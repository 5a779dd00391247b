//! Many worker processes on one PostgreSQL server of our own: they are killed at random, and the server is.
//!
//! The children are the program of this crate, called with [`child::WORD`].

mod at_once;
pub mod child;
mod crashes;
mod look;
mod slots;
mod workers;

use anyhow::{Context, Result};
use sickbay_core::QueueName;
use sickbay_store::PostgresStore;
use tokio_postgres::{Client, NoTls};

pub use at_once::{AtOnce, Defect, at_once};
pub use crashes::{Crashes, crashes};
pub use workers::{Plan, Workers, workers};

/// The queue of all scenarios.
fn queue() -> Result<QueueName> {
    Ok(QueueName::new("q")?)
}

/// A connection behind the store's back.
async fn connect(address: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.context("PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

/// A store in a new database, as the parent sees it.
async fn open(address: &str, connections: usize) -> Result<PostgresStore> {
    let options = sickbay_store::PostgresOptions::default().connections(connections).listen(false);
    PostgresStore::migrate(address, &options).await?;
    Ok(PostgresStore::connect(address, options).await?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("a runtime")
}
