//! Several callers at once: their operations are handed to the writer together and share a commit. When the power goes
//! then, what is left is what so many of them made of the store, the first ones first, and every one that was answered
//! is among them.

mod act;
mod gate;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use sickbay_core::clock::Clock;
use sickbay_core::port::{Deliveries, Exchange, ProcessId, Store};
use sickbay_core::{LeaseToken, QueuePolicy, Settlement, StoreError};
use sickbay_store::SqliteStore;
use sickbay_testkit::{Fixture, ManualClock};

use crate::dice::Dice;
use crate::disk::Disk;
use crate::fixture::{ModelFixture, STORE, options_on};
use crate::observe::observe;
use crate::power::Recording;
use crate::runtime;
use crate::script::{Expected, expected_before};
use crate::vfs::Drive;

use act::{Act, Deed, Done};
use gate::Gate;

/// The queues of every store here, as [`expected_before`] knows them.
pub(crate) const QUEUES: [&str; 2] = ["q", "r"];

/// What is done at one time.
#[derive(Clone, Debug)]
enum Step {
    /// Callers hand these in together.
    Together(Vec<Deed>),
    /// Time passes.
    Pass(Duration),
    /// The store is closed and opened again.
    Reopen,
}

/// What a script holds: the token of each delivery, by the number of its message.
type Held = BTreeMap<u64, LeaseToken>;

fn script(seed: u64, steps: usize) -> Vec<Step> {
    let mut dice = Dice::new(seed ^ 0x6007);
    let mut pushed = 0;
    let mut script: Vec<Step> = (0..steps)
        .map(|_| match dice.roll(12) {
            0 => Step::Pass(Duration::from_millis([1, 1000, 31_000][dice.roll(3)])),
            1 if dice.once_in(3) => Step::Reopen,
            _ => Step::Together(act::random(&mut dice, &mut pushed)),
        })
        .collect();
    script.push(Step::Reopen);
    script
}

/// Runs a script on an empty disk and writes everything down.
pub fn record(drive: &Arc<Drive>, seed: u64, steps: usize) -> Recording {
    let script = script(seed, steps);
    let numbers = script.iter().flat_map(Step::deeds).map(Deed::pushes).sum::<u64>() + 1;
    let (words, ends) = told(&script);
    let disk = Disk::default();
    disk.record();
    drive.insert(disk.clone());
    let answers =
        on_disk(drive, &disk, &script).unwrap_or_else(|error| panic!("a healthy disk, but: {error}"));
    let record = disk.recorded();
    let (expected, model_answers) = runtime().block_on(expected(&script, numbers));
    assert_eq!(answers, model_answers, "seed {seed}: callers at once are answered otherwise than one by one");
    let before = runtime().block_on(expected_before(numbers));
    Recording { script: Vec::new(), words, ends, record, expected, before, numbers }
}

/// What is done, in words, one a deed; and for each how far the group that it is in goes.
fn told(script: &[Step]) -> (Vec<String>, Vec<usize>) {
    let (mut words, mut ends) = (Vec::new(), Vec::new());
    for step in script {
        match step {
            Step::Together(deeds) => words.extend(deeds.iter().map(|deed| format!("{deed:?}"))),
            other => words.push(format!("{other:?}")),
        }
        ends.resize(words.len(), words.len());
    }
    (words, ends)
}

impl Step {
    fn deeds(&self) -> &[Deed] {
        if let Self::Together(deeds) = self { deeds } else { &[] }
    }
}

/// Runs the script on the disk, each group in one commit; what was answered.
fn on_disk(drive: &Arc<Drive>, disk: &Disk, script: &[Step]) -> Result<Vec<String>, StoreError> {
    let clock = ManualClock::new();
    let gate = Arc::new(Gate::new(clock.clone()));
    let open = || SqliteStore::open(STORE, options_on(drive, gate.clone()));
    let mut store = Some(open()?);
    let (mut held, mut answers, mut done) = (Held::new(), Vec::new(), 0);
    if let Some(store) = &store {
        runtime().block_on(define(store))?;
    }
    disk.answered(0);
    for step in script {
        match step {
            Step::Together(deeds) => {
                let Some(store) = &store else { continue };
                let acts = act::acts(deeds, &held, store.process());
                answers.extend(together(store, &gate, acts, disk, done, &mut held));
                done += deeds.len();
            }
            Step::Pass(time) => {
                clock.advance(*time);
                done += 1;
                // What time brings is written by the writer when it likes; it has done so once it answers this.
                if let Some(store) = &store {
                    runtime().block_on(store.sweep())?;
                }
            }
            Step::Reopen => {
                drop(store.take());
                store = Some(open()?);
                held.clear();
                done += 1;
            }
        }
        disk.answered(done);
    }
    if let Some(store) = store {
        store.crash();
    }
    Ok(answers)
}

async fn define(store: &dyn Store) -> Result<(), StoreError> {
    for queue in QUEUES {
        let Ok(queue) = queue.parse() else { continue };
        store.define_queue(&queue, QueuePolicy::default()).await?;
    }
    Ok(())
}

/// Writes down, from the thread that answers, that somebody was answered.
struct Noted {
    disk: Disk,
    /// So many deeds are there at least, once this one was answered.
    done: usize,
    waiting: Thread,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.disk.answered(self.done);
        self.waiting.unpark();
    }
}

type Call<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// Hands all of it in while the writer is held, and lets it go.
fn together(
    store: &SqliteStore,
    gate: &Gate,
    acts: Vec<Act>,
    disk: &Disk,
    done: usize,
    held: &mut Held,
) -> Vec<String> {
    let mut calls: Vec<(Waker, Option<Call<'_>>)> = Vec::new();
    let mut results: Vec<Option<Done>> = acts.iter().map(|_| None).collect();
    let patient = acts.iter().position(Act::waits);
    for (index, act) in acts.into_iter().enumerate() {
        let noted = Noted { disk: disk.clone(), done: done + index + 1, waiting: std::thread::current() };
        calls.push((Arc::new(noted).into(), Some(Box::pin(act.run(store)))));
    }
    gate.hold();
    loop {
        for (index, (waker, call)) in calls.iter_mut().enumerate() {
            let Some(running) = call else { continue };
            if let Poll::Ready(done) = running.as_mut().poll(&mut Context::from_waker(waker)) {
                (results[index], *call) = (Some(done), None);
            }
        }
        gate.let_go();
        // A claim that waits is answered with the others or not at all.
        let open = |(index, result): (usize, &Option<Done>)| result.is_none() && Some(index) != patient;
        if !results.iter().enumerate().any(open) {
            break;
        }
        std::thread::park();
    }
    if let Some((waker, Some(call))) = patient.and_then(|index| calls.get_mut(index)) {
        // It is answered last. Once the writer has answered this, it will not be any more.
        drop(runtime().block_on(store.sweep()));
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(waker)) {
            // It is the last of them.
            results.pop();
            results.push(Some(done));
        }
    }
    results.into_iter().map(|done| done.unwrap_or_else(Done::nothing_yet).take_over(held)).collect()
}

/// What the model looks like if it dies after each deed, beginning with none; and what it answered.
async fn expected(script: &[Step], numbers: u64) -> (Vec<Expected>, Vec<String>) {
    let (mut all, mut answers) = (Vec::new(), Vec::new());
    let count = told(script).0.len();
    for until in 0..=count {
        let mut fixture = ModelFixture::new(ManualClock::new());
        answers = one_by_one(&mut fixture, script, until).await;
        let live = observe(&fixture, numbers).await.unwrap_or_else(|error| panic!("the model: {error}"));
        let last_number = last_number(&fixture).await;
        fixture.crash();
        let seen = observe(&fixture, numbers).await.unwrap_or_else(|error| panic!("the model: {error}"));
        all.push(Expected { at: fixture.clock().now(), seen, live, last_number });
    }
    (all, answers)
}

/// The number of the last message that was pushed.
async fn last_number(fixture: &ModelFixture) -> u64 {
    let mut pushed = 0;
    for queue in QUEUES {
        let Ok(queue) = queue.parse() else { continue };
        pushed += fixture.store().stats(&queue).await.map_or(0, |stats| stats.pushed);
    }
    pushed
}

/// Does the first so many deeds, one after the other.
async fn one_by_one(fixture: &mut ModelFixture, script: &[Step], until: usize) -> Vec<String> {
    let (mut held, mut answers, mut done) = (Held::new(), Vec::new(), 0);
    define(fixture.store().as_ref()).await.unwrap_or_else(|error| panic!("the model: {error}"));
    for step in script {
        match step {
            Step::Together(deeds) => {
                // Everybody knows what was held before; nobody sees what the others get.
                let acts = act::acts(deeds, &held, fixture.process());
                for act in acts.into_iter().take(until - done) {
                    let answer = act.run_at_once(fixture.store().as_ref()).await;
                    answers.push(answer.take_over(&mut held));
                }
                done = until.min(done + deeds.len());
            }
            _ if done == until => {}
            Step::Pass(time) => {
                fixture.clock().advance(*time);
                done += 1;
            }
            Step::Reopen => {
                let back = held.values().map(|token| Settlement::release(*token)).collect();
                drop(fixture.store().exchange(Exchange::settle(back)).await);
                fixture.reopen();
                held.clear();
                done += 1;
            }
        }
        if done == until {
            break;
        }
    }
    answers
}

/// Somebody else's process.
pub(crate) const OTHER: ProcessId = ProcessId(77);
