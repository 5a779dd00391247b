//! Places for worker processes. Each is filled again when its process dies.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use sickbay_core::port::{Deliveries, ProcessId};
use sickbay_store::PostgresStore;

use super::child::WORD;
use crate::dice::Dice;

/// Seconds by which the machines' clocks are wrong.
const WRONG_BY: [&str; 3] = ["0", "600", "-600"];

struct Slot {
    child: Child,
    worker: String,
    process: ProcessId,
}

/// All worker processes of a run.
pub(super) struct Slots {
    program: PathBuf,
    address: String,
    slots: Vec<Slot>,
    started: u64,
    /// The workers whose process died.
    pub(super) dead: HashSet<String>,
    /// So many were killed by us.
    pub(super) kills: u64,
}

impl Slots {
    pub(super) fn start(program: PathBuf, address: String, count: usize) -> Result<Self> {
        let mut slots =
            Self { program, address, slots: Vec::new(), started: 0, dead: HashSet::new(), kills: 0 };
        for number in 0..count {
            let slot = slots.fill(number)?;
            slots.slots.push(slot);
        }
        Ok(slots)
    }

    /// Every second one has a name, so that its successor finds out that it died; the others' deaths are reported.
    fn is_named(number: usize) -> bool {
        number.is_multiple_of(2)
    }

    fn fill(&mut self, number: usize) -> Result<Slot> {
        self.started += 1;
        let worker = format!("worker-{number}-{}", self.started);
        let mut command = Command::new(&self.program);
        command.arg(WORD).arg(&self.address).arg(&worker).arg(WRONG_BY[number % WRONG_BY.len()]);
        if Self::is_named(number) {
            command.arg(format!("slot-{number}"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a worker process")?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("no pipe")?).read_line(&mut line)?;
        let process = ProcessId(line.trim().parse().context("a worker process did not start")?);
        Ok(Slot { child, worker, process })
    }

    /// Kills one of them.
    pub(super) fn kill_one(&mut self, dice: &mut Dice) -> Result<()> {
        let number = dice.roll(self.slots.len());
        self.slots[number].child.kill()?;
        self.kills += 1;
        Ok(())
    }

    /// Fills the places of those that died.
    pub(super) async fn refill(&mut self, store: &PostgresStore) -> Result<()> {
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            let Some(status) = slot.child.try_wait()? else { continue };
            ensure!(
                status.signal() == Some(9),
                "{} was not killed, but ended by itself: {status}",
                slot.worker
            );
            self.dead.insert(slot.worker.clone());
            if !Self::is_named(number) {
                store.process_died(slot.process, format!("{status}, seen by its supervisor")).await?;
            }
            self.slots[number] = self.fill(number)?;
        }
        Ok(())
    }

    /// Tells all of them to stop, and waits until they did.
    pub(super) fn stop(&mut self) -> Result<()> {
        for slot in &mut self.slots {
            drop(slot.child.stdin.take());
        }
        for slot in &mut self.slots {
            slot.child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // It may have ended long ago.
            drop(slot.child.kill());
            drop(slot.child.wait());
        }
    }
}
