//! The work that is measured.

use std::time::Duration;

use bytes::Bytes;
use sickbay::core::port::{Claim, Exchange};
use sickbay::{NewMessage, QueueName, QueuePolicy, Settlement, Sickbay, WorkerName};

use super::{Deadline, PAYLOAD_BYTES};

const PUSHERS: usize = 64;
const BATCH: u32 = 100;

fn queue() -> anyhow::Result<QueueName> {
    Ok(QueueName::new("bench")?)
}

fn payload() -> Bytes {
    let mut text = String::from("{\"order\":7,\"note\":\"");
    while text.len() < PAYLOAD_BYTES - 2 {
        text.push('x');
    }
    text.push_str("\"}");
    text.into()
}

pub(super) async fn prepare(bay: &Sickbay) -> anyhow::Result<()> {
    Ok(bay.define_queue(&queue()?, QueuePolicy::default()).await?)
}

/// One task that waits for each of its pushes.
pub(super) async fn one_by_one(bay: &Sickbay, time: Duration) -> anyhow::Result<f64> {
    let deadline = Deadline::after(time);
    let count = push_until(bay.clone(), deadline).await?;
    Ok(deadline.rate(count))
}

/// Many tasks that each wait for their pushes; the store commits for all of them together.
pub(super) async fn by_many(bay: &Sickbay, time: Duration) -> anyhow::Result<f64> {
    let deadline = Deadline::after(time);
    let tasks: Vec<_> = (0..PUSHERS).map(|_| tokio::spawn(push_until(bay.clone(), deadline))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    Ok(deadline.rate(count))
}

async fn push_until(bay: Sickbay, deadline: Deadline) -> anyhow::Result<u64> {
    let (queue, payload) = (queue()?, payload());
    let mut count = 0;
    while !deadline.is_over() {
        bay.push([NewMessage::new(queue.clone(), payload.clone())]).await?;
        count += 1;
    }
    Ok(count)
}

/// Batches that are pushed, claimed, and done. Each turn settles the last batch and claims the next.
pub(super) async fn cycle(bay: &Sickbay, time: Duration) -> anyhow::Result<f64> {
    let (queue, payload) = (queue()?, payload());
    let claim = Claim {
        queue: queue.clone(),
        worker: WorkerName::new("bench")?,
        process: bay.process(),
        max: BATCH,
        wait: Duration::ZERO,
        lease: Duration::from_secs(600),
    };
    let deadline = Deadline::after(time);
    let (mut count, mut settlements) = (0, Vec::new());
    while !deadline.is_over() {
        bay.push((0..BATCH).map(|_| NewMessage::new(queue.clone(), payload.clone()))).await?;
        count += settlements.len() as u64;
        let exchange = Exchange { settlements, claim: Some(claim.clone()) };
        let exchanged = bay.store().exchange(exchange).await?;
        settlements = exchanged.deliveries.iter().map(|held| Settlement::complete(held.token())).collect();
    }
    Ok(deadline.rate(count))
}
