//! The work that everything is measured on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use sickbay_core::port::{Claim, Desk, ProcessId, Store};
use sickbay_core::{NewMessage, QueueName, QueuePolicy, WorkerName};
use sickbay_store::{PostgresStore, SqliteOptions, SqliteStore, SystemClock};

/// A store that is measured.
pub(crate) trait Measured: Store + Clone + 'static {
    /// The process that works on it.
    fn own_process(&self) -> ProcessId;
}

impl Measured for SqliteStore {
    fn own_process(&self) -> ProcessId {
        self.process()
    }
}

impl Measured for PostgresStore {
    fn own_process(&self) -> ProcessId {
        self.process()
    }
}

/// A JSON document of 256 bytes.
pub(crate) fn payload(number: u64) -> Vec<u8> {
    let mut text = format!(
        r#"{{"type":"OrderPaid","eventId":"evt-{number:012}","amountCents":{},"note":""#,
        number % 9999
    );
    while text.len() < 254 {
        text.push('x');
    }
    text.push_str("\"}");
    text.into_bytes()
}

/// The queue that is measured.
pub(crate) fn queue() -> QueueName {
    QueueName::new("bench").unwrap_or_else(|_| unreachable!("the name is plain"))
}

/// A fresh store with one queue.
pub(crate) async fn store(folder: &Path, name: &str, policy: QueuePolicy) -> Result<SqliteStore> {
    let store = SqliteStore::open(folder.join(name), SqliteOptions::new(Arc::new(SystemClock::new())))?;
    store.define_queue(&queue(), policy).await?;
    Ok(store)
}

/// Messages of the standard size.
pub(crate) fn messages(count: usize) -> Vec<NewMessage> {
    let body = bytes(0);
    (0..count).map(|_| NewMessage::new(queue(), body.clone())).collect()
}

fn bytes(number: u64) -> bytes::Bytes {
    payload(number).into()
}

/// Pushes `count` messages in batches of a thousand.
pub(crate) async fn fill(store: &impl Measured, count: usize) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let part = left.min(1000);
        store.push(messages(part)).await?;
        left -= part;
    }
    Ok(())
}

/// A claim of this process.
pub(crate) fn claim(store: &impl Measured, max: u32, wait: Duration) -> Claim {
    Claim {
        queue: queue(),
        worker: WorkerName::new("bench").unwrap_or_else(|_| unreachable!("the name is plain")),
        process: store.own_process(),
        max,
        wait,
        lease: Duration::from_secs(600),
    }
}
