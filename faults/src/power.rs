//! The power goes: at every operation of the disk, in several ways, also while a store recovers.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sickbay_core::NewMessage;
use sickbay_core::clock::{Clock, Timestamp};
use sickbay_core::port::Pushed;
use sickbay_testkit::script::{Command, Runner};
use sickbay_testkit::{Fixture, ManualClock};

use crate::dice::Dice;
use crate::disk::{Disk, Image, Lie, Op, Replay};
use crate::fixture::DiskFixture;
use crate::observe::{Seen, difference, observe};
use crate::runtime;
use crate::script::{Expected, expected, expected_before, script};
use crate::vfs::Drive;

/// How a script is cut.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// So many commands.
    pub steps: usize,
    /// So many cuts at each operation.
    pub variants: usize,
    /// Once in so many cuts the power goes again during recovery.
    pub again_in: usize,
    /// Whether the disk lies.
    pub lies: Lie,
    /// Whether the store is taken to have answered each command before it was carried out.
    pub answers_early: bool,
    /// Stop after so many findings.
    pub findings_max: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { steps: 30, variants: 4, again_in: 8, lies: Lie::Never, answers_early: false, findings_max: 5 }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How often the power went. What is left of two cuts is the same now and then; it is looked at and counted once.
    pub cuts: u64,
    /// How many operations of the disk were cut at.
    pub operations: u64,
    /// What should not have been found.
    pub findings: Vec<String>,
}

/// A script that was run, and all that happened to the disk.
pub struct Recording {
    /// The script; empty if several callers acted at once.
    pub script: Vec<Command>,
    /// What was done, in words, one a step.
    pub words: Vec<String>,
    /// For each step, how many there are up to the last one that is carried out at the same time.
    pub ends: Vec<usize>,
    /// What happened.
    pub record: Vec<Op>,
    /// What must be found after each command.
    pub expected: Vec<Expected>,
    /// What may be found before the store was set up.
    pub before: Vec<Seen>,
    /// So many messages are looked for.
    pub numbers: u64,
}

/// Runs a script on an empty disk and writes everything down.
pub fn record(drive: &Arc<Drive>, seed: u64, steps: usize) -> Recording {
    let script = script(seed, steps);
    let numbers = script.iter().filter(|c| ["push", "adopt"].contains(&c.verb.as_str())).count() as u64 + 1;
    let disk = Disk::default();
    disk.record();
    drive.insert(disk.clone());
    let clock = ManualClock::new();
    let runtime = runtime();
    let mut fixture = DiskFixture::open(drive.clone(), clock)
        .unwrap_or_else(|error| panic!("a healthy disk, but: {error}"));
    runtime.block_on(async {
        let mut runner = Runner::new(&mut fixture).await;
        disk.answered(0);
        for (index, command) in script.iter().enumerate() {
            runner.run(command).await;
            disk.answered(index + 1);
        }
    });
    drop(fixture);
    let record = disk.recorded();
    let (expected, before) =
        runtime.block_on(async { (expected(&script, numbers).await, expected_before(numbers).await) });
    let words: Vec<String> = script.iter().map(ToString::to_string).collect();
    let ends = (1..=words.len()).collect();
    Recording { script, words, ends, record, expected, before, numbers }
}

/// Cuts the power at every operation of one script.
pub fn run(drive: &Arc<Drive>, seed: u64, plan: Plan) -> Outcome {
    cut_everywhere(drive, seed, plan, &record(drive, seed, plan.steps))
}

/// Cuts the power at every operation of what several callers did at once.
pub fn run_group(drive: &Arc<Drive>, seed: u64, plan: Plan) -> Outcome {
    let record = || crate::group::record(drive, seed, (plan.steps / 4).max(4));
    match catch_unwind(AssertUnwindSafe(record)) {
        Ok(recording) => cut_everywhere(drive, seed, plan, &recording),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            Outcome { findings: vec![format!("seed {seed}: {words}")], ..Outcome::default() }
        }
    }
}

fn cut_everywhere(drive: &Arc<Drive>, seed: u64, plan: Plan, recording: &Recording) -> Outcome {
    let mut outcome = Outcome::default();
    let mut dice = Dice::new(seed);
    let mut known = HashSet::new();
    let mut replay = Replay::new(Image::default(), &recording.record, plan.lies);
    while replay.step() && outcome.findings.len() < plan.findings_max {
        if !replay.is_operation() {
            continue;
        }
        outcome.operations += 1;
        for _ in 0..plan.variants {
            let image = replay.cut(&mut dice);
            if !known.insert((image.fingerprint(), replay.answered())) {
                continue;
            }
            let early = usize::from(plan.answers_early && replay.answered() < Some(recording.words.len()));
            let answered = replay.answered().map(|answered| answered + early);
            let cut = Cut { drive, recording, answered };
            let again = dice.once_in(plan.again_in).then(|| dice.number());
            outcome.cuts += 1 + u64::from(again.is_some());
            if let Err(finding) = cut.check(&image, again) {
                let answered = replay.answered().map_or("before it was set up".to_owned(), |count| {
                    let end = recording.ends.get(count).copied().unwrap_or(count);
                    format!("{count} answered, then {}", recording.words[count..end].join(", "))
                });
                outcome
                    .findings
                    .push(format!("seed {seed}, operation {}, {answered}:\n{finding}", replay.at()));
            }
        }
    }
    outcome
}

/// One power cut.
pub(crate) struct Cut<'a> {
    pub(crate) drive: &'a Arc<Drive>,
    pub(crate) recording: &'a Recording,
    pub(crate) answered: Option<usize>,
}

impl Cut<'_> {
    /// Looks at what is left, after a second cut during recovery if there is a seed for it.
    fn check(&self, image: &Image, again: Option<u64>) -> Result<(), String> {
        let Some(seed) = again else { return self.look(image) };
        let (before, after) = self.times();
        let early = self.interrupted(image, seed, before).and_then(|image| self.look(&image));
        if early.is_ok() || before == after {
            return early;
        }
        // Time may have moved before the first cut: then the store has written at it, and no clock goes back.
        self.interrupted(image, seed, after).and_then(|image| self.look(&image)).or(early)
    }

    /// The time before and after what was under way.
    fn times(&self) -> (Timestamp, Timestamp) {
        let Recording { expected, ends, .. } = self.recording;
        let start = ManualClock::new().now();
        let time = |index: usize| expected.get(index).map_or(start, |expected| expected.at);
        self.answered.map_or((start, start), |answered| {
            (time(answered), time(ends.get(answered).copied().unwrap_or(answered)))
        })
    }

    pub(crate) fn look(&self, image: &Image) -> Result<(), String> {
        let Some(answered) = self.answered else {
            let (seen, _) = self.recover(image, ManualClock::new())?;
            let known = self.recording.before.contains(&seen);
            return if known { Ok(()) } else { Err(difference(&seen, &self.recording.before[2])) };
        };
        // Of what was under way at the same time, any number may have been carried out, the first ones first.
        let end = self.recording.ends.get(answered).copied().unwrap_or(answered);
        let models = &self.recording.expected[answered..=end];
        let (before, after) = (&models[0], &models[models.len() - 1]);
        let late = self.recover(image, at(after.at))?;
        if models.iter().any(|model| model.at == after.at && matches(&late, model)) {
            return Ok(());
        }
        // Time may not have moved yet.
        let early = if after.at == before.at { late.clone() } else { self.recover(image, at(before.at))? };
        if matches(&early, before) {
            return Ok(());
        }
        Err(format!(
            "neither before:\n{}\nnor after:\n{}\nnumbers {} and {}, last of the model {} and {}",
            difference(&early.0, &before.seen),
            difference(&late.0, &after.seen),
            early.1,
            late.1,
            before.last_number,
            after.last_number
        ))
    }

    /// The power goes again while the store recovers.
    fn interrupted(&self, image: &Image, seed: u64, when: Timestamp) -> Result<Image, String> {
        let disk = Disk::of(image.clone());
        disk.record();
        self.drive.insert(disk.clone());
        drop(DiskFixture::open(self.drive.clone(), at(when)).map_err(|error| error.to_string())?);
        let record = disk.recorded();
        let mut dice = Dice::new(seed);
        let mut replay = Replay::new(image.clone(), &record, Lie::Never);
        for _ in 0..dice.roll(record.len() + 1) {
            replay.step();
        }
        Ok(replay.cut(&mut dice))
    }

    /// Opens what is left, looks at everything, and pushes one message more.
    fn recover(&self, image: &Image, clock: ManualClock) -> Result<(Seen, u64), String> {
        self.drive.insert(Disk::of(image.clone()));
        let recover = || -> Result<(Seen, u64), String> {
            let fixture =
                DiskFixture::open(self.drive.clone(), clock).map_err(|error| format!("refused: {error}"))?;
            runtime().block_on(async {
                let seen = observe(&fixture, self.recording.numbers).await.map_err(|e| e.to_string())?;
                Ok((seen, next_number(&fixture).await.unwrap_or(0)))
            })
        };
        catch_unwind(AssertUnwindSafe(recover)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(format!("panic: {}", text.unwrap_or_else(|| "without words".to_owned())))
        })
    }
}

fn at(time: Timestamp) -> ManualClock {
    ManualClock::at(time)
}

/// The number that the next message gets; none if there is no queue for it.
pub(crate) async fn next_number(fixture: &dyn Fixture) -> Option<u64> {
    let queue = "q".parse().ok()?;
    let pushed = fixture.store().push(vec![NewMessage::new(queue, "one more")]).await.ok()?;
    pushed.first().map(|pushed| match pushed {
        Pushed::New(id) | Pushed::Duplicate(id) => id.number(),
    })
}

/// The store looks like the model, and gives no number away twice.
fn matches((seen, next): &(Seen, u64), expected: &Expected) -> bool {
    *seen == expected.seen && *next == expected.last_number + 1
}
