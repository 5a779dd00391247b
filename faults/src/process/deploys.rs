//! A service is deployed again and again: nothing that it had in hand counts as failed or crashed.

use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};
use rustix::process::Signal;
use sickbay_core::port::{Desk, Overview, Pusher};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::{MessageId, NewMessage, QueuePolicy};
use sickbay_store::SqliteStore;

use super::child::{options, queue};
use super::{Ended, folder, send, start};

const MESSAGES: u64 = 12;

/// Starts the service, waits until it works, and tells it to stop; so many times.
pub fn deploys(count: u32) -> Result<Ended> {
    let folder = folder()?;
    let path = folder.path().join("store.db");
    let runtime = crate::runtime();
    let store = SqliteStore::open(&path, options())?;
    runtime.block_on(async {
        store.define_queue(&queue()?, QueuePolicy::default()).await?;
        let messages = (0..MESSAGES).map(|n| Ok(NewMessage::new(queue()?, n.to_string())));
        store.push(messages.collect::<Result<_>>()?).await?;
        anyhow::Ok(())
    })?;
    drop(store);
    for number in 0..count {
        let mut child = start("child-deployed", &path)?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("no pipe")?).read_line(&mut line)?;
        send(&child, Signal::TERM)?;
        let status = child.wait()?;
        if line.trim() != "working" || !status.success() {
            return Ok(Ended::Badly(format!("deploy {number}: said {line:?} and ended with {status}")));
        }
    }
    let store = SqliteStore::open(&path, options())?;
    runtime.block_on(async {
        let mut deliveries = 0;
        for number in 1..=MESSAGES {
            let id = MessageId::from_number(number).context("a number that is none")?;
            let Some(view) = store.find(id.to_string().parse()?).await? else {
                return Ok(Ended::Badly(format!("message {number} is gone")));
            };
            let c = view.counters;
            deliveries += c.deliveries;
            let released = view.history.iter().all(|attempt| attempt.end == AttemptEnd::Released);
            if (c.failures, c.crashes, c.charges) != (0, 0, 0) || !released || view.dead.is_some() {
                return Ok(Ended::Badly(format!("message {number} was blamed for a deploy: {view:?}")));
            }
        }
        Ok(if deliveries >= count {
            Ended::Well
        } else {
            Ended::Badly("hardly anything was delivered".into())
        })
    })
}
