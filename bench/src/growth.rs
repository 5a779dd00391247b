//! Whether the cost of a message grows with what lies around it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sickbay_core::decide::SetAside;
use sickbay_core::port::Exchange;
use sickbay_core::{Decision, Failure, Kind, NewMessage, QueuePolicy, Reason, Settlement, StreamKey};

use crate::lifecycle::rate_on;
use crate::load::{Measured, claim, fill, messages, payload, queue, store};

/// How many messages lie around.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) backlog: usize,
    pub(crate) dead: usize,
    pub(crate) followers: usize,
    pub(crate) processed: u64,
    pub(crate) measured: u64,
}

/// The rate on a store in this situation, against the rate on one with a thousand messages just before and after.
pub(crate) async fn ratio(folder: &Path, situation: &str, scale: Scale) -> Result<f64> {
    let before = empty(scale.measured).await?;
    let store = store(folder, &format!("{situation}.db"), QueuePolicy::default()).await?;
    prepare(&store, situation, scale).await?;
    let first = rate_on(&store, scale.measured, 100).await?;
    let between = empty(scale.measured).await?;
    let second = rate_on(&store, scale.measured, 100).await?;
    let after = empty(scale.measured).await?;
    let mut empties = [before, between, after];
    empties.sort_by(f64::total_cmp);
    Ok(first.max(second) / empties[1])
}

/// Brings a store into a situation.
pub(crate) async fn prepare(store: &impl Measured, situation: &str, scale: Scale) -> Result<()> {
    match situation {
        "backlog" => return fill(store, scale.backlog).await,
        "dead" => bury(store, scale.dead).await?,
        "stream" => block(store, scale.followers).await?,
        _ => drop(rate_on(store, scale.processed, 100).await?),
    }
    fill(store, 1000).await
}

async fn empty(count: u64) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    crate::lifecycle::rate(folder.path(), count, 100).await
}

/// A store `dead.db` with so many dead letters, for commands that look at them.
pub(crate) async fn cemetery(folder: &Path, count: usize) -> Result<()> {
    bury(&store(folder, "dead.db", QueuePolicy::default()).await?, count).await
}

/// Quarantines so many messages.
async fn bury(store: &impl Measured, count: usize) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let part = left.min(1000);
        store.push(messages(part)).await?;
        let got = store.exchange(Exchange::claim(claim(store, 1000, Duration::ZERO))).await?.deliveries;
        let failure = Failure::new(Kind::Poison, Reason::HandlerException, "amount must be positive");
        let dead = got.iter().map(|delivery| {
            let decision =
                Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure: failure.clone() };
            Settlement::new(delivery.token(), decision)
        });
        store.exchange(Exchange::settle(dead.collect())).await?;
        left -= part;
    }
    Ok(())
}

/// A stream whose head waits for an hour, with so many followers.
async fn block(store: &impl Measured, followers: usize) -> Result<()> {
    let message = || -> Result<NewMessage> {
        Ok(NewMessage::new(queue(), payload(0)).stream(StreamKey::new("blocked")?))
    };
    store.push(vec![message()?.delay(Duration::from_secs(3600))]).await?;
    let mut left = followers;
    while left > 0 {
        let part = left.min(1000);
        store.push((0..part).map(|_| message()).collect::<Result<_>>()?).await?;
        left -= part;
    }
    Ok(())
}
