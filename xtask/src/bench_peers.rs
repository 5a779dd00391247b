//! Runs `bench/peers`: other queues on the work that Sickbay is measured on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::servers::{Postgres, Rabbit};

/// The peers that need PostgreSQL.
pub(crate) const ON_POSTGRES: [&str; 6] =
    ["graphile_worker", "apalis_postgres", "pgmq", "pgmq_100", "pg_boss", "underway"];

/// Builds the comparison, starts the servers that its peers need and returns the figures by peer. A peer that
/// could not be measured has an `error` in their place.
///
/// `kind` is `drain` or `latency`; `extra` are further options of the program, as in
/// `run("drain", &["--count", "50000", "--only", "effectum,rabbitmq"])`. Without `--only`, `drain` measures
/// all peers and `latency` effectum alone. A server whose address is among the options is not started.
pub(crate) fn run(kind: &str, extra: &[&str]) -> Result<Value> {
    let program = build()?;
    let only = value_of(extra, "--only").unwrap_or(if kind == "latency" {
        "effectum"
    } else {
        "effectum,graphile_worker,apalis_postgres,pgmq,pgmq_100,pg_boss,underway,rabbitmq"
    });
    let wants = |names: &[&str]| only.split(',').any(|peer| names.contains(&peer));
    let postgres =
        (wants(&ON_POSTGRES) && value_of(extra, "--pg").is_none()).then(Postgres::start).transpose()?;
    let rabbit =
        (wants(&["rabbitmq"]) && value_of(extra, "--amqp").is_none()).then(Rabbit::start).transpose()?;

    let mut command = Command::new(program);
    command.arg(kind).arg("--dir").arg(std::env::temp_dir());
    command.arg("--node").arg(target()?.join("node"));
    if let Some(postgres) = &postgres {
        command.args(["--pg", &postgres.url]);
    }
    if let Some(rabbit) = &rabbit {
        command.args(["--amqp", &rabbit.url]);
    }
    command.args(extra).args(["--only", only]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("bench/peers")?;
    ensure!(output.status.success(), "bench/peers: {}", output.status);
    serde_json::from_slice(&output.stdout).context("bench/peers printed no JSON")
}

/// Builds the program, in a target folder of its own: its dependencies clash with ours.
fn build() -> Result<PathBuf> {
    let (root, target) = (root()?, target()?);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(root.join("bench/peers/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "bench/peers does not build: {status}");
    Ok(target.join("release/peers"))
}

fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")
}

/// Where the program is built and packages for it are installed.
fn target() -> Result<PathBuf> {
    Ok(root()?.join("target/peers"))
}

fn value_of<'a>(options: &[&'a str], name: &str) -> Option<&'a str> {
    options.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1])
}
