//! One script, carried out on one store, step by step, with the oracle beside it.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::port::{Deliveries, Overview, ProcessId};
use sickbay_core::{Clock, Delivery, MessageId, QueueName, StreamKey, Timestamp};
use sickbay_testkit::script::Command;
use sickbay_testkit::{Fixture, ManualClock};

use crate::crew::Crew;
use crate::oracle::{Oracle, Violation};
use crate::panics::{self, caught};
use crate::stores::Kind;
use crate::wait::wait;
use crate::watch::Watched;

/// The queues of every simulation.
pub const QUEUES: [&str; 2] = ["q", "r"];
/// Messages that wait or are leased at most; beyond, pushes are left out, because claims are compared
/// with everything that could have been claimed instead.
const LIVE_MAX: usize = 48;
/// Beyond so many dead letters the oldest are discarded and purged.
const DEAD_MAX: usize = 48;
/// How many settled deliveries are remembered, to settle them once more.
const OLD_MAX: usize = 24;

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The step it failed at; the number of steps if it failed at the end.
    pub at: usize,
    /// What was found.
    pub violation: Violation,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Steps carried out.
    pub steps: u64,
    /// Messages acknowledged.
    pub messages: u64,
    /// Deliveries handed out.
    pub deliveries: u64,
}

/// A store, its clock, its processes and the oracle.
pub struct World {
    pub(crate) kind: Kind,
    looks: Looks,
    pub(crate) fixture: Box<dyn Fixture>,
    /// The folder of the store's files, if it has any.
    pub(crate) folder: Option<std::path::PathBuf>,
    pub(crate) store: Arc<Watched>,
    pub(crate) clock: ManualClock,
    pub(crate) hands: BTreeMap<u64, Vec<Delivery>>,
    pub(crate) old: VecDeque<Delivery>,
    pub(crate) crews: BTreeMap<u64, Crew>,
    /// Every worker process has a number of its own.
    pub(crate) crews_started: u64,
    pub(crate) pushes: u64,
    pub(crate) effects: Vec<String>,
    /// The message that the last step was about.
    pub(crate) last: Option<u64>,
}

/// How often a run looks at the store besides what its steps answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// Now and then, as it costs time.
    Seldom,
    /// After every step, so that a script stays as telling when steps are taken out of it.
    Always,
}

/// Carries a script out, lets everything through at its end, and tells what came of it. A panic is a violation like
/// any other: a store that cannot be opened again, or that never answers.
pub fn run(kind: Kind, looks: Looks, script: &[Command]) -> Result<Done, Failed> {
    let at = Cell::new(0);
    let panicked = |text| Err(Failed { at: at.get(), violation: Violation { invariant: "I11", text } });
    caught(|| carry_out(kind, looks, script, &at)).unwrap_or_else(panicked)
}

fn carry_out(kind: Kind, looks: Looks, script: &[Command], reached: &Cell<usize>) -> Result<Done, Failed> {
    let mut world = World::new(kind);
    world.looks = looks;
    for (at, command) in script.iter().enumerate() {
        reached.set(at);
        world.step(at, command);
        if let Some(violation) = world.violation() {
            return Err(Failed { at, violation });
        }
    }
    reached.set(script.len());
    world.drain();
    match world.violation() {
        Some(violation) => Err(Failed { at: script.len(), violation }),
        None => Ok(world.done(script.len())),
    }
}

/// Carries a script out and tells after each step which messages changed, and how.
pub fn trace(kind: Kind, script: &[Command], mut tell: impl FnMut(String)) -> Option<Violation> {
    let mut world = World::new(kind);
    world.looks = Looks::Always;
    let mut changes = Changes::default();
    for (at, command) in script.iter().enumerate() {
        world.step(at, command);
        tell(format!("{at}: {command}"));
        changes.since_last(&mut world, &mut tell);
        if let Some(violation) = world.violation() {
            tell(format!("{}: {}", violation.invariant, violation.text));
            return Some(violation);
        }
    }
    world.drain();
    let violation = world.violation();
    tell(
        violation
            .as_ref()
            .map_or("nothing is wrong".to_owned(), |v| format!("at the end: {}: {}", v.invariant, v.text)),
    );
    violation
}

/// What the oracle knew after the last step.
#[derive(Default)]
pub(crate) struct Changes {
    before: BTreeMap<u64, String>,
}

impl Changes {
    /// Tells which messages have changed since then, and how.
    pub(crate) fn since_last(&mut self, world: &mut World, tell: &mut impl FnMut(String)) {
        let after = world.oracle().tell();
        for (id, text) in after.iter().filter(|(id, text)| self.before.get(id) != Some(text)) {
            tell(format!("      {id}: {text}"));
        }
        for id in self.before.keys().filter(|id| !after.contains_key(id)) {
            tell(format!("      {id}: gone"));
        }
        self.before = after;
    }
}

impl World {
    /// An empty store of this kind with both queues.
    pub fn new(kind: Kind) -> Self {
        let (fixture, folder) = kind.open();
        let clock = fixture.clock().clone();
        let store = Arc::new(Watched::new(fixture.store(), clock.clone()));
        store.oracle().reads_what_it_took = kind == Kind::Postgres;
        let world = Self {
            kind,
            looks: Looks::Seldom,
            fixture,
            folder,
            store,
            clock,
            hands: BTreeMap::new(),
            old: VecDeque::new(),
            crews: BTreeMap::new(),
            crews_started: 0,
            pushes: 0,
            effects: Vec::new(),
            last: None,
        };
        for queue in QUEUES {
            world.act_step(&Command::new("queue", queue));
        }
        world
    }

    pub(crate) fn oracle(&self) -> std::sync::MutexGuard<'_, Oracle> {
        self.store.oracle()
    }

    /// What is wrong, if anything is.
    pub fn violation(&self) -> Option<Violation> {
        if let Some(text) = panics::said() {
            self.oracle().accuse("I11", text);
        }
        self.oracle().violation().cloned()
    }

    pub(crate) fn done(&self, steps: usize) -> Done {
        let oracle = self.oracle();
        Done { steps: steps as u64, messages: oracle.acknowledged(), deliveries: oracle.deliveries() }
    }

    /// Carries one step out and looks at what it may have changed.
    pub fn step(&mut self, at: usize, command: &Command) {
        self.last = None;
        self.act(command);
        let unsure = self.oracle().unsure();
        unsure.into_iter().for_each(|id| self.look_at(id));
        let (look, count, all) = match (self.looks, self.kind) {
            (Looks::Always, Kind::Memory) => (1, 1, 1),
            (Looks::Always, Kind::Sqlite | Kind::Postgres) => (2, 4, 1000),
            (Looks::Seldom, Kind::Memory) => (1, 8, 1000),
            (Looks::Seldom, Kind::Sqlite | Kind::Postgres) => (8, 32, 1000),
        };
        if at.is_multiple_of(look) {
            let acknowledged = self.oracle().acknowledged();
            let some = self.last.or_else(|| (at as u64).checked_rem(acknowledged).map(|index| index + 1));
            some.into_iter().for_each(|id| self.look_at(id));
        }
        if at.is_multiple_of(count) {
            self.look_at_counts();
        }
        if at % all == all - 1 {
            self.look_at_all();
        }
    }

    fn look_at(&self, id: u64) {
        if let Some(prefix) = MessageId::from_number(id).and_then(|id| id.to_string().parse().ok()) {
            drop(wait(self.store.find(prefix)));
        }
    }

    fn look_at_counts(&self) {
        for queue in QUEUES.into_iter().filter_map(|name| QueueName::new(name).ok()) {
            drop(wait(self.store.stats(&queue)));
        }
        let streams = self.oracle().streams();
        for (queue, stream) in streams {
            let (Ok(queue), Ok(stream)) = (QueueName::new(queue), StreamKey::new(stream)) else { continue };
            drop(wait(self.store.stream(&queue, &stream, 1000)));
        }
    }

    /// Everything that is there, and everything that was.
    pub(crate) fn look_at_all(&self) {
        self.look_at_counts();
        let there = self.oracle().numbers(|_| true);
        let last = self.oracle().acknowledged();
        let mut ids: Vec<u64> = if self.kind == Kind::Memory { (1..=last).collect() } else { there };
        ids.extend((last.saturating_sub(20) + 1)..=last);
        for id in ids {
            if self.violation().is_some() {
                return;
            }
            self.look_at(id);
        }
    }

    /// Lets go of what only a single long run would pile up: notes about messages that are gone.
    pub(crate) fn forget(&mut self) {
        self.oracle().forget();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.oracle().live() >= LIVE_MAX
    }

    pub(crate) fn has_too_many_dead(&self) -> bool {
        self.oracle().set_aside() > DEAD_MAX
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock, and has the store notice.
    pub(crate) fn pass(&self, by: Duration) {
        self.clock.advance(by);
        drop(wait(self.store.sweep()));
    }

    /// 0 is the process that owns the store; the others are their own.
    pub(crate) fn process(&self, by: u64) -> ProcessId {
        if by == 0 { self.fixture.process() } else { ProcessId(1_000_000 + by) }
    }

    pub(crate) fn remember(&mut self, delivery: Delivery) {
        self.old.push_front(delivery);
        self.old.truncate(OLD_MAX);
    }
}
