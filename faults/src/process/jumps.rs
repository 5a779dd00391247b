//! The wall clock is set back and forth under a running process: no lease is lost or prolonged by it.
//! The machine's own clock is left alone; a library tells the child another time.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use sickbay_core::port::{Desk, Pusher};
use sickbay_core::{NewMessage, QueuePolicy};
use sickbay_store::SqliteStore;

use super::child::{options, queue, wall_clock};
use super::{Ended, folder, wait};

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

/// How long a lease lasts that must not be lost, and one that must not outlive a clock that is set back.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// A child holds a message while its wall clock jumps; then it settles.
pub fn jumps() -> Result<Ended> {
    let Some(library) = library() else {
        return Ok(Ended::Skipped("libfaketime is not installed".to_owned()));
    };
    let cases = [
        ("+3600s", 3600, LONG, "[Applied]"),
        ("-3600s", -3600, LONG, "[Applied]"),
        ("+3650d", 3650 * 86_400, LONG, "[Applied]"),
        ("-3600s", -3600, SHORT, "[LeaseLost]"),
    ];
    for (jump, seconds, lease, right) in cases {
        let (answer, wrong_by) = settle_after(&library, jump, lease)?;
        if answer != right {
            let what = format!(
                "after a jump of {jump} a settlement under a lease of {lease:?} was answered with {answer}"
            );
            return Ok(Ended::Badly(what));
        }
        if (wrong_by - seconds).abs() > 60 {
            return Ok(Ended::Badly(format!("a jump of {jump} was one of {wrong_by} s")));
        }
    }
    Ok(Ended::Well)
}

/// What the child's settlement was answered with, and by how many seconds its wall clock was wrong then.
fn settle_after(library: &Path, jump: &str, lease: Duration) -> Result<(String, i64)> {
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
        .env("LEASE_MS", lease.as_millis().to_string())
        .env("TELL_TIME", "1")
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
    if lease == SHORT {
        wait(2 * SHORT);
    }
    child.stdin.take().context("no pipe")?.write_all(b"settle\n")?;
    let mut said = output.lines();
    let mut next = || said.next().context("the child said nothing more")?.context("the pipe");
    let (answer, theirs) = (next()?, next()?.parse::<i64>().context("no time")?);
    child.wait()?;
    Ok((answer, theirs - wall_clock()))
}
