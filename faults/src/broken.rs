//! Operations of the disk fail: an error of the device, or no room. What was not acknowledged is there or not; what
//! was is there; and the store goes on, or says that it does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sickbay_testkit::ManualClock;
use sickbay_testkit::script::Runner;

use crate::dice::Dice;
use crate::disk::{Disk, Failing, Fault};
use crate::fixture::DiskFixture;
use crate::observe::{Seen, difference, observe};
use crate::power::{Recording, record};
use crate::runtime;
use crate::vfs::Drive;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How often something failed.
    pub faults: u64,
    /// How often the store went on by itself.
    pub went_on: u64,
    /// What should not have been found.
    pub findings: Vec<String>,
}

/// How far a script came.
enum End {
    /// The store could not even be made.
    Unopened,
    /// So many commands were answered, and the next one failed. What can be seen now, unless that fails too.
    Failed(usize, Option<Seen>),
    /// All commands were answered.
    Finished,
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
        disk.fail(fault);
        drive.insert(disk.clone());
        let tried = catch_unwind(AssertUnwindSafe(|| try_once(drive, &disk, &recording, &mut outcome)));
        let problem = match tried {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => problem,
            Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
        };
        outcome.findings.push(format!("seed {seed}, {fault:?}: {problem}"));
    }
    outcome
}

fn try_once(
    drive: &Arc<Drive>,
    disk: &Disk,
    recording: &Recording,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let end = drive_script(drive, disk, recording);
    let hits = disk.heal();
    outcome.faults += u64::from(hits > 0);
    let expected = |at: usize| recording.expected.get(at).or(recording.expected.last());
    let answered = match &end {
        End::Unopened => None,
        End::Failed(answered, _) => Some(*answered),
        End::Finished => Some(recording.script.len()),
    };
    if let End::Failed(answered, Some(live)) = &end {
        outcome.went_on += 1;
        let models = [expected(*answered), expected(answered + 1)];
        // While time moves, the model cannot tell what was done already.
        let moved = models[0].map(|model| model.at) != models[1].map(|model| model.at);
        if !moved && !models.iter().flatten().any(|model| model.live == *live) {
            let model = models[0].map(|model| model.live.clone()).unwrap_or_default();
            return Err(format!(
                "after {answered} answers it goes on wrongly:\n{}",
                difference(live, &model)
            ));
        }
    }
    after_restart(drive, recording, answered)
}

/// Once the disk is well again, the store opens and is what it was before or after the command that failed.
fn after_restart(drive: &Arc<Drive>, recording: &Recording, answered: Option<usize>) -> Result<(), String> {
    let image = drive.disk().image();
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
        drive.insert(Disk::of(image.clone()));
        let fixture = DiskFixture::open(drive.clone(), clock).map_err(|error| format!("then: {error}"))?;
        let seen = runtime().block_on(observe(&fixture, recording.numbers)).map_err(|e| e.to_string())?;
        if models.contains(&seen) {
            return Ok(());
        }
        differences.extend(models.last().map(|model| difference(&seen, model)));
    }
    Err(format!("after the restart, {answered:?} answered:\n{}", differences.join("\nor\n")))
}

/// Runs a script until a command fails.
fn drive_script(drive: &Arc<Drive>, disk: &Disk, recording: &Recording) -> End {
    let Ok(mut fixture) = DiskFixture::open(drive.clone(), ManualClock::new()) else { return End::Unopened };
    let runtime = runtime();
    let answered = std::cell::Cell::new(None);
    let run = || {
        runtime.block_on(async {
            let mut runner = Runner::new(&mut fixture).await;
            for (index, command) in recording.script.iter().enumerate() {
                answered.set(Some(index));
                let before = disk.hits();
                let answer = runner.run(command).await;
                // Nobody is told that a store could not be closed as it should (then it was not), or that it could not
                // write down what time made due (then it tries again later).
                let own = ["reopen", "crash", "advance", "expire"].contains(&command.verb.as_str());
                let silently = own && disk.hits() > before;
                if silently || is_error(&answer) {
                    return Some(silently);
                }
            }
            None
        })
    };
    // Scripts do not expect a store that cannot be opened again.
    let finished = catch_unwind(AssertUnwindSafe(run));
    match (finished, answered.get()) {
        (Ok(None), Some(_)) => End::Finished,
        (_, None) => End::Unopened,
        (Err(_) | Ok(Some(true)), Some(answered)) => End::Failed(answered, None),
        (Ok(Some(false)), Some(answered)) => {
            disk.heal();
            let live = runtime.block_on(observe(&fixture, recording.numbers)).ok();
            End::Failed(answered, live)
        }
    }
}

/// True if the answer is one of the disk's errors.
fn is_error(answer: &str) -> bool {
    ["SB0005", "SB0006", "SB0012", "SB0013", "SB0014", "SB0016"].contains(&answer)
}
