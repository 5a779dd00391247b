//! A real disk is full: pushes are refused, nothing is lost, and it goes on when there is room.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use sickbay_core::port::{Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::{ErrorKind, NewMessage, QueuePolicy, Settlement};
use sickbay_store::{SqliteOptions, SqliteStore, SystemClock};

use super::Ended;
use super::child::{claim, queue};

/// A small disk; unmounted when it is dropped.
struct SmallDisk<'a>(&'a Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0).output());
    }
}

fn mount(folder: &Path, options: &str) -> Result<()> {
    let output = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Fills a disk of 256 MB. Needs the right to mount one.
pub fn full() -> Result<Ended> {
    let folder = tempfile::tempdir()?;
    if let Err(error) = mount(folder.path(), "size=256m") {
        return Ok(Ended::Skipped(format!("a small disk cannot be mounted: {error}")));
    }
    let _disk = SmallDisk(folder.path());
    let options = SqliteOptions::new(Arc::new(SystemClock::new()));
    let store = SqliteStore::open(folder.path().join("store.db"), options)?;
    let problem = crate::runtime().block_on(fill(&store, folder.path()))?;
    drop(store);
    Ok(problem.map_or(Ended::Well, Ended::Badly))
}

async fn fill(store: &SqliteStore, folder: &Path) -> Result<Option<String>> {
    store.define_queue(&queue()?, QueuePolicy::default()).await?;
    let message = || Ok::<_, anyhow::Error>(NewMessage::new(queue()?, vec![7; 100_000]));
    let mut stored = 0;
    let error = loop {
        match store.push(vec![message()?, message()?]).await {
            Ok(pushed) => stored += pushed.len() as u64,
            Err(error) => break error,
        }
        if stored > 10_000 {
            return Ok(Some("a disk of 256 MB holds 1000 MB".to_owned()));
        }
    };
    if (error.kind(), error.code()) != (ErrorKind::Full, "SB0005") {
        return Ok(Some(format!("a full disk was reported as {error}")));
    }
    // All that is there is delivered and settled although nothing more is taken in.
    let mut settled = 0;
    while settled < stored / 2 {
        let claim = claim(store, 20, Duration::from_secs(600))?;
        let held = match store.exchange(Exchange::claim(claim)).await {
            Ok(held) => held.deliveries,
            Err(error) => return Ok(Some(format!("nothing can be claimed on a full disk: {error}"))),
        };
        settled += held.len() as u64;
        let done = held.iter().map(|delivery| Settlement::complete(delivery.token())).collect();
        if let Err(error) = store.exchange(Exchange::settle(done)).await {
            return Ok(Some(format!("nothing can be settled on a full disk: {error}")));
        }
    }
    mount(folder, "remount,size=400m")?;
    let pushed = store.push(vec![message()?]).await;
    let stats = store.stats(&queue()?).await?;
    if pushed.is_err() || !stats.adds_up() || (stats.pushed, stats.completed) != (stored + 1, settled) {
        return Ok(Some(format!(
            "with room again: {pushed:?}, {stored} stored, {settled} settled, {stats:?}"
        )));
    }
    Ok(None)
}
