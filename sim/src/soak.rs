//! Mixed load with faults for a time, on one SQLite file that is never emptied by hand: the memory of the
//! process and the sizes of its files must stay flat.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use sickbay_testkit::script::Command;

use crate::generate::script;
use crate::oracle::Violation;
use crate::run::now;
use crate::stores::Kind;
use crate::world::{Changes, World};

/// Steps between two measurements.
const CHUNK: usize = 2000;
/// How much larger the last third may be than the first. What is kept besides is allowed for below.
const GROWTH_MAX: f64 = 1.5;
/// So many steps before a violation are shown.
const SHOWN: usize = 30;
/// Growth below this is noise: caches that fill, a log that waits for its checkpoint.
const NOISE_BYTES: u64 = 24 << 20;

/// What one measurement saw.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Resident memory of the process.
    pub memory: u64,
    /// The store's files together.
    pub files: u64,
}

/// What a soak did.
#[derive(Clone, Debug, Default)]
pub struct Soaked {
    /// Steps carried out.
    pub steps: u64,
    /// Messages acknowledged.
    pub messages: u64,
    /// Deliveries handed out.
    pub deliveries: u64,
    /// What was measured, in order.
    pub samples: Vec<Sample>,
}

impl Soaked {
    /// The figures, as one document.
    pub fn json(&self) -> Value {
        let last = self.samples.last();
        json!({"steps": self.steps, "messages": self.messages, "deliveries": self.deliveries,
            "seconds": last.map(|sample| sample.at), "memory_bytes": last.map(|sample| sample.memory),
            "file_bytes": last.map(|sample| sample.files), "samples": self.samples.len()})
    }

    /// Both sizes are flat: the last third is about as large as the second.
    pub fn check(&self) -> Result<()> {
        flat("memory", &self.samples.iter().map(|sample| sample.memory).collect::<Vec<_>>())?;
        flat("files", &self.samples.iter().map(|sample| sample.files).collect::<Vec<_>>())
    }
}

/// Compares the mean of the last third with the mean of the middle one: at the beginning everything fills.
fn flat(what: &str, sizes: &[u64]) -> Result<()> {
    let third = sizes.len() / 3;
    if third == 0 {
        bail!("too few measurements of {what}: {}", sizes.len());
    }
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len() as u64;
    let (before, after) = (mean(&sizes[third..2 * third]), mean(&sizes[2 * third..]));
    if after > before + NOISE_BYTES && after as f64 > before as f64 * GROWTH_MAX {
        bail!("{what} grew from {before} to {after} bytes");
    }
    Ok(())
}

/// Soaks for so long, or for so many chunks if that comes first. Each chunk of steps has another character; the
/// store stays the same. From chunk `traced` on it tells what every step changes.
pub fn soak(seed: u64, time: Duration, chunks_max: u64, traced: u64) -> Result<Soaked> {
    let started = now();
    let mut world = World::new(Kind::Sqlite);
    let mut soaked = Soaked::default();
    let mut chunk = 0;
    let mut changes = Changes::default();
    while (started.elapsed() < time && chunk < chunks_max) || soaked.samples.len() < 6 {
        let steps = script(seed.wrapping_add(chunk), CHUNK);
        for (at, step) in steps.iter().enumerate() {
            world.step(at + 1, step);
            if chunk >= traced {
                eprintln!("{chunk}.{at}: {step}");
                changes.since_last(&mut world, &mut |line| eprintln!("{line}"));
            }
            if let Some(violation) = world.violation() {
                return Err(shown(&mut world, chunk, &steps[..=at], &violation));
            }
        }
        chunk += 1;
        soaked.steps += CHUNK as u64;
        soaked.samples.push(sample(started, &world));
        world.forget();
    }
    world.drain();
    if let Some(violation) = world.violation() {
        bail!("at the end: {}: {}", violation.invariant, violation.text);
    }
    let done = world.done(0);
    (soaked.messages, soaked.deliveries) = (done.messages, done.deliveries);
    soaked.check()?;
    Ok(soaked)
}

/// A violation with what led to it: the steps before, and the messages of its queue that are named or could be claimed.
fn shown(world: &mut World, chunk: u64, steps: &[Command], violation: &Violation) -> anyhow::Error {
    let steps: Vec<String> =
        steps[steps.len().saturating_sub(SHOWN)..].iter().map(ToString::to_string).collect();
    let there: Vec<String> =
        world.oracle().tell().into_iter().map(|(id, text)| format!("  {id}: {text}")).collect();
    let Violation { invariant, text } = violation;
    anyhow::anyhow!(
        "chunk {chunk}: {invariant}: {text}\nat the end of these steps:\n{}\nmessages:\n{}\ngates: {}",
        steps.join("\n"),
        there.join("\n"),
        world.oracle().gates()
    )
}

fn sample(started: Instant, world: &World) -> Sample {
    let files = world.folder.as_deref().map(size_of).unwrap_or(0);
    Sample { at: started.elapsed().as_secs_f64(), memory: resident(), files }
}

fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Resident memory, where the system tells.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::flat;

    #[test]
    fn what_grows_is_noticed_and_what_fills_and_stays_is_not() {
        let grows: Vec<u64> = (0..30).map(|n| n * (40 << 20)).collect();
        let fills: Vec<u64> = (0..30u64).map(|n| n.min(10) * (40 << 20)).collect();
        assert!(flat("memory", &grows).is_err());
        assert!(flat("memory", &fills).is_ok());
        assert!(flat("memory", &[1, 2]).is_err());
    }
}
