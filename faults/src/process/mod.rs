//! Real processes on real files: killed, stopped, deployed, upgraded, out of space, out of time, robbed of their file.
//!
//! The children are this very program, called with a word that says what to do.

pub mod child;
mod deploys;
mod full;
mod jumps;
mod kills;
mod pause;
mod remote;
mod replaced;
mod upgrade;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

pub use deploys::deploys;
pub use full::full;
pub use jumps::jumps;
pub use kills::{Kills, kills};
pub use pause::pause;
pub use remote::remote;
pub use replaced::replaced;
pub use upgrade::upgrade;

/// What came of a scenario that is either right or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As promised.
    Well,
    /// It cannot be tried here; why.
    Skipped(String),
    /// Something was not as promised.
    Badly(String),
}

/// Starts a child of ours; its words come through a pipe.
fn start(word: &str, store: &Path) -> Result<Child> {
    start_complaining_to(word, store, Stdio::null())
}

/// The same, with a place for what it has to complain about.
fn start_complaining_to(word: &str, store: &Path, complaints: Stdio) -> Result<Child> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(program);
    command.arg(word).arg(store).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
    command.spawn().with_context(|| format!("the child {word}"))
}

fn send(child: &Child, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a child without an id")?;
    kill_process(pid, signal).with_context(|| format!("{signal:?} to {pid:?}"))
}

/// A folder in memory where there is one: a killed process does not care whether the disk is one.
fn folder() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { tempfile::TempDir::new_in(memory)? } else { tempfile::TempDir::new()? })
}

/// Asks again and again until there is an answer; an error if there is none for a minute.
async fn in_time<T>(mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..6000 {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        wait_async(std::time::Duration::from_millis(10)).await;
    }
    anyhow::bail!("nothing happened for a minute")
}

#[expect(clippy::disallowed_methods, reason = "real processes take real time")]
async fn wait_async(duration: std::time::Duration) {
    tokio::time::sleep(duration).await;
}

/// Lets real time pass: these are real processes.
#[expect(clippy::disallowed_methods, reason = "a stopped process is measured by the machine's clock")]
fn wait(duration: std::time::Duration) {
    std::thread::sleep(duration);
}
