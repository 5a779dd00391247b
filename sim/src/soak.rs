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
/// So much larger the files may be in the last third than in the middle one: less than the log that waits for its
/// checkpoint.
const FILES_GROWTH_MAX: u64 = 2 << 20;
/// The same for the memory of the process: the allocator gives back late, and the oracle notes every message.
const MEMORY_GROWTH_MAX: u64 = 8 << 20;
/// So many steps before a violation are shown.
const SHOWN: usize = 30;

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
        let growths = self.growths().ok();
        json!({"steps": self.steps, "messages": self.messages, "deliveries": self.deliveries,
            "seconds": last.map(|sample| sample.at), "memory_bytes": last.map(|sample| sample.memory),
            "file_bytes": last.map(|sample| sample.files), "samples": self.samples.len(),
            "memory_growth_bytes": growths.as_ref().map(|growths| growths.memory),
            "file_growth_bytes": growths.as_ref().map(|growths| growths.files)})
    }

    /// Both sizes are flat: the last third is about as large as the second.
    pub fn check(&self) -> Result<()> {
        let growths = self.growths()?;
        for (what, growth, limit) in
            [("memory", growths.memory, MEMORY_GROWTH_MAX), ("files", growths.files, FILES_GROWTH_MAX)]
        {
            if growth > limit {
                bail!("{what} grew by {growth} bytes from the middle third to the last; {limit} are allowed");
            }
        }
        Ok(())
    }

    fn growths(&self) -> Result<Growths> {
        let memory: Vec<u64> = self.samples.iter().map(|sample| sample.memory).collect();
        let files: Vec<u64> = self.samples.iter().map(|sample| sample.files).collect();
        Ok(Growths { memory: growth("memory", &memory)?, files: growth("files", &files)? })
    }
}

/// By how many bytes each size grew.
struct Growths {
    memory: u64,
    files: u64,
}

/// Compares the median of the last third with that of the middle one: at the beginning everything fills, and a
/// single log that was large when it was measured says nothing.
fn growth(what: &str, sizes: &[u64]) -> Result<u64> {
    let third = sizes.len() / 3;
    if third == 0 {
        bail!("too few measurements of {what}: {}", sizes.len());
    }
    if sizes.contains(&0) {
        bail!("the size of {what} cannot be measured here");
    }
    let median = |part: &[u64]| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    Ok(median(&sizes[2 * third..]).saturating_sub(median(&sizes[third..2 * third])))
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
    use super::*;

    fn soaked(size: impl Fn(u64) -> (u64, u64)) -> Soaked {
        let sample = |n: u64| {
            let (memory, files) = size(n);
            Sample { at: n as f64, memory, files }
        };
        Soaked { samples: (0..30).map(sample).collect(), ..Soaked::default() }
    }

    #[test]
    fn what_grows_is_noticed_and_what_fills_and_stays_is_not() {
        // Nine megabytes of memory and two and a half of files from one third to the next.
        let (memory, files) = (900 << 10, 256 << 10);
        assert!(soaked(|n| (20 << 20, n.min(10) * files + 1)).check().is_ok());
        assert!(soaked(|n| ((20 << 20) + n.min(10) * memory, 1)).check().is_ok());
        let grows = soaked(|n| (20 << 20, n * files + 1)).check().unwrap_err().to_string();
        assert!(grows.starts_with("files grew"), "{grows}");
        let grows = soaked(|n| ((20 << 20) + n * memory, 1)).check().unwrap_err().to_string();
        assert!(grows.starts_with("memory grew"), "{grows}");
    }

    #[test]
    fn what_cannot_be_measured_is_not_called_flat() {
        assert!(soaked(|_| (0, 1)).check().is_err());
        assert!(soaked(|_| (1, 0)).check().is_err());
        let two = Soaked { samples: soaked(|_| (1, 1)).samples[..2].to_vec(), ..Soaked::default() };
        assert!(two.check().is_err());
    }
}
