//! The wall clock is set back and forth under a running process: no lease is lost or prolonged by it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use sickbay_core::port::{Desk, Pusher};
use sickbay_core::{NewMessage, QueuePolicy};
use sickbay_store::SqliteStore;

use super::child::{options, queue};
use super::{Ended, folder};

/// Where distributions put the library that fakes time.
fn library() -> Option<PathBuf> {
    let machine = std::env::consts::ARCH;
    [
        format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1"),
        "/usr/lib64/faketime/libfaketime.so.1".into(),
    ]
    .into_iter()
    .map(PathBuf::from)
    .find(|path| path.exists())
}

/// A child holds a message for a minute while its wall clock jumps; then it settles.
pub fn jumps() -> Result<Ended> {
    let Some(library) = library() else {
        return Ok(Ended::Skipped("libfaketime is not installed".to_owned()));
    };
    for jump in ["+3600s", "-3600s", "+3650d"] {
        let answer = settle_after(&library, jump)?;
        if answer != "[Applied]" {
            return Ok(Ended::Badly(format!(
                "after a jump of {jump} a settlement was answered with {answer}"
            )));
        }
    }
    Ok(Ended::Well)
}

fn settle_after(library: &Path, jump: &str) -> Result<String> {
    let folder = folder()?;
    let (path, time) = (folder.path().join("store.db"), folder.path().join("time"));
    let store = SqliteStore::open(&path, options())?;
    crate::runtime().block_on(async {
        store.define_queue(&queue()?, QueuePolicy::default()).await?;
        store.push(vec![NewMessage::new(queue()?, "x")]).await?;
        anyhow::Ok(())
    })?;
    drop(store);
    std::fs::write(&time, "+0s\n")?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child-holding")
        .arg(&path)
        .env("LEASE_MS", "60000")
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &time)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    std::fs::write(&time, format!("{jump}\n"))?;
    child.stdin.take().context("no pipe")?.write_all(b"settle\n")?;
    line.clear();
    output.read_line(&mut line)?;
    child.wait()?;
    Ok(line.trim().to_owned())
}
