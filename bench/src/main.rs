//! Measures Sickbay on its embedded store and prints one JSON document. `cargo xtask bench` runs it, with the
//! peers, and prints the table.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

mod disk;
mod growth;
mod lifecycle;
mod load;
mod postgres;
mod postgres_growth;
mod raw;
mod work;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::growth::Scale;
use crate::work::Arrival;

/// As in the `sickbay` binary: deliveries are made on one thread and dropped on others.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FULL: Scale = Scale {
    backlog: 5_000_000,
    dead: 1_000_000,
    followers: 1_000_000,
    processed: 1_000_000,
    measured: 200_000,
};
const QUICK: Scale =
    Scale { backlog: 500_000, dead: 100_000, followers: 100_000, processed: 300_000, measured: 100_000 };

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some("memory") = arguments.first().map(String::as_str) {
        let folder = arguments.get(1).context("memory FOLDER BACKLOG")?;
        let backlog = arguments.get(2).context("memory FOLDER BACKLOG")?.parse()?;
        println!("{}", runtime.block_on(work::memory(Path::new(folder), backlog))?);
        return Ok(());
    }
    if let Some("dead") = arguments.first().map(String::as_str) {
        let path = arguments.get(1).context("dead FOLDER COUNT")?;
        let count = arguments.get(2).context("dead FOLDER COUNT")?.parse()?;
        return runtime.block_on(growth::cemetery(Path::new(path), count));
    }
    if let Some("drain-postgres") = arguments.first().map(String::as_str) {
        let usage = "drain-postgres COUNT WORKERS";
        let count = arguments.get(1).context(usage)?.parse()?;
        let workers = arguments.get(2).context(usage)?.parse()?;
        println!("{:.0}", runtime.block_on(postgres::drain(count, workers))?);
        return Ok(());
    }
    if let Some("pinned-postgres") = arguments.first().map(String::as_str) {
        let seconds = arguments.get(1).context("pinned-postgres SECONDS")?.parse()?;
        println!("{:.2}", runtime.block_on(postgres_growth::pinned(seconds, 100_000))?);
        return Ok(());
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let only: Vec<&str> = arguments.iter().filter(|a| a.starts_with('P')).map(String::as_str).collect();
    let wanted = |id: &str| only.is_empty() || only.contains(&id);
    let mut figures = Map::new();
    for id in ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P7_postgres", "P8", "P8_bulk", "P8_postgres", "P10"]
        .into_iter()
        .filter(|id| wanted(id))
    {
        eprintln!("measuring {id} …");
        figures.insert(id.to_owned(), runtime.block_on(measure(id, quick))?);
    }
    println!("{}", serde_json::to_string_pretty(&Value::Object(figures))?);
    Ok(())
}

/// The middle of several rounds.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measure(id: &str, quick: bool) -> Result<Value> {
    let rounds = 5;
    let mut values = Vec::new();
    match id {
        "P4" => return latency(quick).await,
        "P5" => return drain(rounds).await,
        "P6" => return postgres::ratio(3, if quick { 40_000 } else { 200_000 }).await,
        "P7_postgres" => return postgres_growth::growth(quick).await,
        "P8_postgres" => return postgres_growth::failures(quick).await,
        "P7" => return growth(if quick { QUICK } else { FULL }).await,
        "P10" => return memory(if quick { QUICK.backlog } else { FULL.backlog }).await,
        _ => {}
    }
    let mut detail = Vec::new();
    for _ in 0..rounds {
        let folder = tempfile::tempdir()?;
        let (own, yardstick) = pair(id, folder.path(), quick).await?;
        values.push(own / yardstick);
        detail.push(json!({"own": own.round(), "yardstick": yardstick.round()}));
    }
    Ok(json!({"ratio": median(values), "rounds": detail}))
}

/// What is measured and what it is measured against, in one round.
async fn pair(id: &str, folder: &Path, quick: bool) -> Result<(f64, f64)> {
    let count = if quick { 100_000 } else { 300_000 };
    let time = Duration::from_secs(2);
    Ok(match id {
        "P1" => {
            let raw = raw::rate(folder, count, 100)?;
            (lifecycle::rate(folder, count, 100).await?, raw)
        }
        "P2" | "P3" => {
            let disk = disk::fdatasync_rate(folder, Duration::from_secs(1))?;
            let own = lifecycle::push_rate(folder, if id == "P2" { 64 } else { 1 }, time).await?;
            (own, (disk + disk::fdatasync_rate(folder, Duration::from_secs(1))?) / 2.0)
        }
        "P8" | "P8_bulk" => {
            let arrival = if id == "P8" { Arrival::Service } else { Arrival::Bulk };
            let healthy = work::failure_time(folder, count / 5, false, arrival).await?;
            (work::failure_time(folder, count / 5, true, arrival).await? * 1e6, healthy * 1e6)
        }
        other => bail!("there is no measurement {other}"),
    })
}

async fn latency(quick: bool) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let time = Duration::from_secs(if quick { 4 } else { 10 });
    let (p50, p99) = work::latency(folder.path(), time).await?;
    Ok(json!({"p50_ms": p50, "p99_ms": p99}))
}

async fn drain(rounds: usize) -> Result<Value> {
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let folder = tempfile::tempdir()?;
        rates.push(work::drain_rate(folder.path(), 100_000).await?);
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    Ok(json!({"drain_per_s": best.round(), "median_per_s": median(rates).round()}))
}

async fn growth(scale: Scale) -> Result<Value> {
    let mut ratios = Map::new();
    for situation in ["backlog", "dead", "stream", "processed"] {
        let folder = tempfile::tempdir()?;
        ratios.insert(situation.to_owned(), json!(growth::ratio(folder.path(), situation, scale).await?));
    }
    Ok(Value::Object(ratios))
}

/// Memory is taken by a process of its own, so that nothing else is in it.
async fn memory(backlog: usize) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    drop(load::store(folder.path(), "memory.db", sickbay_core::QueuePolicy::default()).await?);
    let measure = |backlog: usize| -> Result<f64> {
        let output = std::process::Command::new(std::env::current_exe()?)
            .arg("memory")
            .arg(folder.path())
            .arg(backlog.to_string())
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
    };
    let idle = measure(0)?;
    let store = load::store(folder.path(), "memory.db", sickbay_core::QueuePolicy::default()).await?;
    load::fill(&store, backlog).await?;
    drop(store);
    Ok(json!({"idle_mb": idle, "backlog_mb": measure(backlog / 5)?}))
}
