//! Bits turn over, files are cut short or vanish: it is noticed, or it does not matter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sickbay_testkit::ManualClock;

use crate::dice::Dice;
use crate::disk::{Disk, Image, Lie, Replay};
use crate::fixture::{DiskFixture, STORE, UNREADABLE};
use crate::observe::{difference, observe};
use crate::power::{Recording, record};
use crate::runtime;
use crate::vfs::Drive;

/// What was done to the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// One bit.
    Bit,
    /// Everything from some byte on is gone.
    Cut,
    /// A sector is zero.
    Sector,
    /// The file is gone.
    Gone,
}

/// Whether sums and mark lie beside the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// As in life.
    There,
    /// They are taken away first, to see that damage is found then.
    Removed,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// So many bits were turned over.
    pub flips: u64,
    /// So often a file was damaged in another way.
    pub others: u64,
    /// The store, or a look at it, said so.
    pub noticed: u64,
    /// Everything was as it should be.
    pub harmless: u64,
    /// Something was wrong and nobody said so.
    pub findings: Vec<String>,
}

impl Outcome {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.flips += other.flips;
        self.others += other.others;
        self.noticed += other.noticed;
        self.harmless += other.harmless;
        self.findings.extend(other.findings);
    }
}

/// Damages the files that a script leaves behind when its process is killed, so many times.
pub fn run(drive: &Arc<Drive>, seed: u64, count: usize, guard: Guard) -> Outcome {
    let recording = record(drive, seed, 30);
    let mut dice = Dice::new(seed);
    let mut outcome = Outcome::default();
    // Some moments of the script, each right after an answer.
    let moments: Vec<usize> = (0..8).map(|_| dice.roll(recording.script.len() + 1)).collect();
    let mut replay = Replay::new(Image::default(), &recording.record, Lie::Never);
    let mut images = Vec::new();
    let mut last = None;
    while replay.step() {
        if replay.answered() != last {
            last = replay.answered();
            images.extend(last.filter(|at| moments.contains(at)).map(|at| (at, replay.everything())));
        }
    }
    for _ in 0..count {
        let (answered, image) = &images[dice.roll(images.len())];
        let mut image = image.clone();
        if guard == Guard::Removed {
            image.names.retain(|name, _| !name.ends_with("-sums") && !name.ends_with("-mark"));
        }
        let Some((damage, words)) = damage(&mut image, &mut dice) else { continue };
        match damage {
            Damage::Bit => outcome.flips += 1,
            _ => outcome.others += 1,
        }
        match look(drive, &recording, *answered, image) {
            Ok(true) => outcome.harmless += 1,
            Ok(false) => outcome.noticed += 1,
            Err(finding) => {
                outcome.findings.push(format!("seed {seed}, {answered} answered, {words}:\n{finding}"));
            }
        }
    }
    outcome
}

/// Does something to one of the files.
fn damage(image: &mut Image, dice: &mut Dice) -> Option<(Damage, String)> {
    let beside = match dice.roll(20) {
        0..=9 => "",
        10..=16 => "-wal",
        17 | 18 => "-sums",
        _ => "-mark",
    };
    let name = format!("{STORE}{beside}");
    let what = match dice.roll(12) {
        0 => Damage::Cut,
        1 => Damage::Sector,
        // Without its file beside, nobody knows how far a store had got; that alone is harmless.
        2 if !beside.is_empty() && dice.once_in(4) => Damage::Gone,
        _ => Damage::Bit,
    };
    if what == Damage::Gone {
        image.names.remove(&name)?;
        return Some((what, format!("{name} gone")));
    }
    let file = image.file(&name).filter(|file| file.size() > 0)?;
    let at = dice.roll(file.size());
    match what {
        Damage::Cut => file.truncate(at),
        Damage::Sector => {
            let from = at / 512 * 512;
            let zeros = vec![0; 512.min(file.size() - from)];
            file.write(from, &zeros);
        }
        _ => file.flip(at * 8 + dice.roll(8)),
    }
    Some((what, format!("{what:?} at {at} of {name}")))
}

/// True if all is well, false if the damage was noticed, an error if neither.
fn look(drive: &Arc<Drive>, recording: &Recording, answered: usize, image: Image) -> Result<bool, String> {
    drive.insert(Disk::of(image));
    let expected = &recording.expected[answered];
    let look = || -> Result<bool, String> {
        let Ok(fixture) = DiskFixture::open(drive.clone(), ManualClock::at(expected.at)) else {
            return Ok(false);
        };
        match runtime().block_on(observe(&fixture, recording.numbers)) {
            Err(_) => Ok(false),
            Ok(seen) if seen == expected.seen => Ok(true),
            Ok(seen) if seen.last().is_some_and(|effects| effects.contains(UNREADABLE)) => Ok(false),
            Ok(seen) => Err(difference(&seen, &expected.seen)),
        }
    };
    catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_else(|| "without words".to_owned())))
    })
}
