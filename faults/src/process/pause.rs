//! A process is stopped until its lease is over, and goes on: what it settles then changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use sickbay_core::port::{Desk, Overview, Pusher};
use sickbay_core::{MessageId, NewMessage, QueuePolicy};
use sickbay_store::SqliteStore;

use super::child::{options, queue};
use super::{Ended, folder, send, start, wait};

/// Stops a process that holds a message for longer than its lease lasts.
pub fn pause() -> Result<Ended> {
    let folder = folder()?;
    let path = folder.path().join("store.db");
    let runtime = crate::runtime();
    let store = SqliteStore::open(&path, options())?;
    runtime.block_on(async {
        store.define_queue(&queue()?, QueuePolicy::default()).await?;
        store.push(vec![NewMessage::new(queue()?, "x")]).await?;
        anyhow::Ok(())
    })?;
    drop(store);
    let mut child = start("child-holding", &path)?;
    let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    send(&child, Signal::STOP)?;
    wait(Duration::from_millis(300));
    send(&child, Signal::CONT)?;
    child.stdin.take().context("no pipe")?.write_all(b"settle\n")?;
    line.clear();
    output.read_line(&mut line)?;
    child.wait()?;
    if line.trim() != "[LeaseLost]" {
        return Ok(Ended::Badly(format!("a late settlement was answered with {}", line.trim())));
    }
    let store = SqliteStore::open(&path, options())?;
    runtime.block_on(async {
        let id = MessageId::from_number(1).context("a number that is none")?;
        let view = store.find(id.to_string().parse()?).await?;
        let counted = view.as_ref().map(|view| (view.counters.deliveries, view.counters.expiries));
        let right = counted == Some((1, 1));
        Ok(if right { Ended::Well } else { Ended::Badly(format!("after a late settlement: {view:?}")) })
    })
}
