//! Operations of the disk fail: an error of the device, or no room. What was not acknowledged is there or not; what
//! was is there, also if the power goes after it; and the store goes on as the model does, or says that it does not.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sickbay_core::clock::Clock;
use sickbay_testkit::script::{Command, Runner};
use sickbay_testkit::{Fixture, ManualClock};

use crate::dice::Dice;
use crate::disk::{Disk, Failing, Fault, Image, Lie, Op, Replay};
use crate::fixture::{DiskFixture, ModelFixture, NOT_AGAIN};
use crate::observe::{Seen, difference, observe};
use crate::power::{Cut, Recording, record};
use crate::runtime;
use crate::script::model_step;
use crate::vfs::Drive;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How often something failed.
    pub faults: u64,
    /// How often the store went on by itself, and then like the model.
    pub went_on: u64,
    /// How often the power went after something had failed.
    pub cuts: u64,
    /// What should not have been found.
    pub findings: Vec<String>,
}

/// How far a script came.
enum End {
    /// A command failed, or may have failed; the store could not be asked afterwards, or not compared.
    Failed,
    /// It went on to the end: how the model looks if it dies then, and when that is.
    WentOn { seen: Seen, clock: ManualClock },
}

/// Runs a script again and again, each time with a failure at another operation.
pub fn run(drive: &Arc<Drive>, seed: u64, count: usize) -> Outcome {
    let recording = record(drive, seed, 20);
    let operations = drive.disk().operations();
    let mut dice = Dice::new(seed);
    let mut outcome = Outcome::default();
    for _ in 0..count {
        let how = if dice.once_in(2) { Failing::Broken } else { Failing::Full };
        let length = [1, 1, 3, 20][dice.roll(4)];
        let fault = Fault { at: dice.number() % operations, count: length, how };
        let disk = Disk::default();
        disk.record();
        disk.fail(fault);
        drive.insert(disk.clone());
        let mut trial = Trial { drive, disk: &disk, recording: &recording, outcome: &mut outcome };
        let tried = catch_unwind(AssertUnwindSafe(|| trial.run(&mut dice)));
        let problem = match tried {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => problem,
            Err(panic) => words(panic.as_ref()),
        };
        outcome.findings.push(format!("seed {seed}, {fault:?}: {problem}"));
    }
    outcome
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// One script on a disk with one fault.
struct Trial<'a> {
    drive: &'a Arc<Drive>,
    disk: &'a Disk,
    recording: &'a Recording,
    outcome: &'a mut Outcome,
}

/// What is known of a script under way, also after a panic.
#[derive(Default)]
struct Progress {
    /// The command under way; none before the store was set up.
    at: Cell<Option<usize>>,
    /// The disk is well again.
    healed: Cell<bool>,
    /// What had happened to the disk when it was healed.
    until_healed: RefCell<Vec<Op>>,
}

impl Trial<'_> {
    fn run(&mut self, dice: &mut Dice) -> Result<(), String> {
        let progress = Progress::default();
        let end = self.drive_script(&progress)?;
        // Whatever made it end, the disk is well from here on.
        self.heal(&progress);
        match end {
            End::Failed => {
                self.cut_at_failure(&progress, dice)?;
                after_restart(self.drive, &self.disk.image(), self.recording, progress.at.get())
            }
            End::WentOn { seen, clock } => self.cut_at_end(&seen, &clock, dice),
        }
    }

    /// Counts the fault once, however it was noticed.
    fn heal(&mut self, progress: &Progress) {
        if !progress.healed.replace(true) {
            *progress.until_healed.borrow_mut() = self.disk.recorded_so_far();
            self.outcome.faults += u64::from(self.disk.heal() > 0);
        }
    }

    fn drive_script(&mut self, progress: &Progress) -> Result<End, String> {
        let Ok(mut fixture) = DiskFixture::open(self.drive.clone(), ManualClock::new()) else {
            return Ok(End::Failed);
        };
        let run = || runtime().block_on(self.beside_the_model(&mut fixture, progress));
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = words(panic.as_ref());
            // Scripts do not expect a store that cannot be set up or opened again.
            let verb = progress.at.get().map(|at| self.recording.script[at].verb.as_str());
            let opens = ["reopen", "crash", "die"].map(Some).contains(&verb) && text.starts_with(NOT_AGAIN);
            if !progress.healed.get() && (verb.is_none() || opens) {
                return Ok(End::Failed);
            }
            Err(format!("at {verb:?} it panics: {text}"))
        })
    }

    /// Runs the script on the store and on the model. Their answers are the same until the disk fails, and again from
    /// then on, if the store goes on.
    async fn beside_the_model(
        &mut self,
        fixture: &mut DiskFixture,
        progress: &Progress,
    ) -> Result<End, String> {
        let onlooker = fixture.onlooker();
        let mut runner = Runner::new(fixture).await;
        let model = ModelFixture::new(ManualClock::new());
        let mut model_fixture = model.clone();
        let mut model_runner = Runner::new(&mut model_fixture).await;
        self.disk.answered(0);
        for (index, command) in self.recording.script.iter().enumerate() {
            progress.at.set(Some(index));
            let hits = self.disk.hits();
            let mut answer = runner.run(command).await;
            let failed = is_error(&answer);
            // Nobody is told that a store could not be closed as it should (then it was not), or that it could not write
            // down what time made due (then it tries again later). Nor can the model tell what was done already.
            let own = ["reopen", "crash", "die", "advance", "expire"].contains(&command.verb.as_str());
            if own && (failed || self.disk.hits() > hits) {
                return Ok(End::Failed);
            }
            if failed {
                if self.disk.hits() == 0 {
                    return Err(format!("{command} answers {answer} on a healthy disk"));
                }
                self.heal(progress);
                match self.branch(index, &onlooker).await? {
                    Branch::Before => catch_up(&mut model_runner, command).await,
                    Branch::After if gives_something(command) => return Ok(End::Failed),
                    Branch::After => drop(model_step(&mut model_runner, command).await),
                }
                // Whoever got no answer asks again.
                answer = runner.run(command).await;
                if is_error(&answer) {
                    return Err(format!("{command} still answers {answer}, on a healthy disk"));
                }
            }
            let expected = model_step(&mut model_runner, command).await;
            if answer != expected {
                return Err(format!("{command} answers {answer}, and not {expected}"));
            }
            self.disk.answered(index + 1);
        }
        self.outcome.went_on += u64::from(progress.healed.get());
        // What has not failed by now fails no more: nobody looks with a broken disk.
        self.heal(progress);
        // One number more for whoever asked again.
        let numbers = self.recording.numbers + 1;
        let live = observe(&onlooker, numbers).await.map_err(|error| format!("at the end: {error}"))?;
        let modelled = observe(&model, numbers).await.map_err(|error| error.to_string())?;
        if live != modelled {
            return Err(format!("at the end it looks wrong:\n{}", difference(&live, &modelled)));
        }
        drop(model_runner);
        model_fixture.crash();
        let seen = observe(&model, numbers).await.map_err(|error| error.to_string())?;
        Ok(End::WentOn { seen, clock: ManualClock::at(model.clock().now()) })
    }

    /// Whether the command that failed was carried out, as far as the store shows it on a healthy disk.
    async fn branch(&mut self, index: usize, onlooker: &DiskFixture) -> Result<Branch, String> {
        let live = observe(onlooker, self.recording.numbers).await;
        let live = live.map_err(|error| format!("a healthy disk cannot be read: {error}"))?;
        let model = |at: usize| self.recording.expected.get(at).map(|expected| &expected.live);
        let (before, after) = (model(index), model(index + 1));
        if before == Some(&live) {
            Ok(Branch::Before)
        } else if after == Some(&live) {
            Ok(Branch::After)
        } else {
            let model = before.cloned().unwrap_or_default();
            Err(format!("after {index} answers it goes on wrongly:\n{}", difference(&live, &model)))
        }
    }

    /// The power goes when something has just failed. What could not be synced may be lost, and nothing that was
    /// acknowledged with it.
    fn cut_at_failure(&mut self, progress: &Progress, dice: &mut Dice) -> Result<(), String> {
        let record = progress.until_healed.borrow();
        let mut replay = Replay::new(Image::default(), &record, Lie::Never);
        while replay.step() {}
        self.outcome.cuts += 1;
        let answered = replay.answered();
        let cut = Cut { drive: self.drive, recording: self.recording, answered };
        cut.look(&replay.cut(dice))
            .map_err(|problem| format!("a power cut after it, {answered:?} answered:\n{problem}"))
    }

    /// The process is killed at the end, or the power goes: all that was answered is there.
    fn cut_at_end(&mut self, seen: &Seen, clock: &ManualClock, dice: &mut Dice) -> Result<(), String> {
        let record = self.disk.recorded();
        let mut replay = Replay::new(Image::default(), &record, Lie::Never);
        while replay.step() {}
        self.outcome.cuts += 1;
        // A kill leaves what the system has in memory, whatever its disk could not sync.
        for (what, image) in [("a kill", self.disk.image()), ("a power cut", replay.cut(dice))] {
            let found = restarted(self.drive, &image, clock.clone(), self.recording.numbers + 1)
                .map_err(|problem| format!("{what} at the end: {problem}"))?;
            if found != *seen {
                return Err(format!("{what} at the end:\n{}", difference(&found, seen)));
            }
        }
        Ok(())
    }
}

/// What is known of a command that failed.
enum Branch {
    Before,
    After,
}

/// True if a command gives its caller something to go on with, which is missed if the answer is.
fn gives_something(command: &Command) -> bool {
    ["push", "adopt", "lease"].contains(&command.verb.as_str())
}

/// The runner of the store has counted a push that failed; the other one counts it, too.
async fn catch_up(runner: &mut Runner<'_>, command: &Command) {
    if ["push", "adopt"].contains(&command.verb.as_str()) {
        runner.run(&Command::bare("push").with("in", "nowhere")).await;
    }
}

/// Once the disk is well again, the store opens and is what it was before or after the command that failed.
fn after_restart(
    drive: &Arc<Drive>,
    image: &Image,
    recording: &Recording,
    answered: Option<usize>,
) -> Result<(), String> {
    let times = match answered {
        None => vec![(ManualClock::new(), recording.before.clone())],
        Some(answered) => {
            let model = |at: usize| recording.expected.get(at).or(recording.expected.last());
            let pair = [model(answered + 1), model(answered)];
            pair.into_iter().flatten().map(|m| (ManualClock::at(m.at), vec![m.seen.clone()])).collect()
        }
    };
    let mut differences = Vec::new();
    for (clock, models) in times {
        let seen = restarted(drive, image, clock, recording.numbers)?;
        if models.contains(&seen) {
            return Ok(());
        }
        differences.extend(models.last().map(|model| difference(&seen, model)));
    }
    Err(format!("after the restart, {answered:?} answered:\n{}", differences.join("\nor\n")))
}

fn restarted(drive: &Arc<Drive>, image: &Image, clock: ManualClock, numbers: u64) -> Result<Seen, String> {
    drive.insert(Disk::of(image.clone()));
    let fixture = DiskFixture::open(drive.clone(), clock).map_err(|error| format!("then: {error}"))?;
    runtime().block_on(observe(&fixture, numbers)).map_err(|error| error.to_string())
}

/// True if the answer is one of the disk's errors. That the store is closed (`SB0013`) is none: nobody closed it.
fn is_error(answer: &str) -> bool {
    ["SB0005", "SB0006", "SB0012", "SB0014", "SB0016"].contains(&answer)
}
