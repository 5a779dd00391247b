//! Real workers, each a process of its own: a runtime that is driven step by step and can be dropped in
//! the middle of anything, as a killed process would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::port::{Deliveries, ProcessId, Source, SourceError, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::verdict::Failed;
use sickbay_core::{
    Clock, Delivery, ErrorKind, Failure, Key, LeaseToken, MessageType, QueueName, QueuePolicy, StoreError,
    Verdict, WorkerName,
};
use sickbay_testkit::script::Command;
use sickbay_worker::{Context, Running, StoreSource, Worker};
use tokio::runtime::Runtime;

use crate::dice::Dice;
use crate::wait::wait;
use crate::watch::Watched;
use crate::world::World;

/// How often a stopping worker is given a second and the chance to use it.
const STOP_ROUNDS: u32 = 60;

/// What goes wrong between a worker and its store.
#[derive(Default)]
struct Faults {
    /// So many turns fail before they reach the store.
    turns: AtomicU32,
    /// So many turns reach the store, and their answers are lost.
    answers: AtomicU32,
    /// So many renewals fail.
    renewals: AtomicU32,
    /// An answer was lost at least once.
    lost: AtomicBool,
}

fn strikes(counter: &AtomicU32) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// A worker process.
pub(crate) struct Crew {
    runtime: Runtime,
    running: Option<Running>,
    process: ProcessId,
    faults: Arc<Faults>,
    /// A handler killed the process.
    killed: Arc<AtomicBool>,
    /// How often the clock had been set back when it started.
    set_back: u64,
}

impl Crew {
    fn start(world: &mut World, by: u64, command: &Command) -> Option<Self> {
        world.crews_started += 1;
        let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
        let queue = QueueName::new(command.words.first()?).ok()?;
        let worker = WorkerName::new(format!("crew/{by}")).ok()?;
        let (process, faults, killed) = (
            ProcessId(2_000_000 + world.crews_started),
            Arc::<Faults>::default(),
            Arc::<AtomicBool>::default(),
        );
        let inner = StoreSource::new(world.store.clone(), queue, worker, process);
        let source = Arc::new(Faulty { inner, faults: faults.clone() });
        let number =
            |name: &str, default| command.option(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let handler = handler(world.store.clone(), killed.clone(), u64::from(number("character", 0)));
        let guard = runtime.enter();
        let running = Worker::new(source, handler, Arc::new(world.clock.clone()))
            .concurrency(number("concurrency", 3))
            .prefetch(number("prefetch", 4))
            .stop_limit(Duration::from_secs(10))
            .start();
        drop(guard);
        let set_back = world.oracle().set_back();
        Some(Self { runtime, running: Some(running), process, faults, killed, set_back })
    }

    /// Lets the process do so much and no more.
    fn drive(&self, turns: u64) {
        self.runtime.block_on(async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
                if self.killed.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
    }
}

impl World {
    /// `work q by=4` starts or drives a worker, `kill` ends it at once, `stop` asks it to end, `break`
    /// cuts its line to the store.
    pub(crate) fn crew(&mut self, command: &Command) {
        let by: u64 = command.option("by").and_then(|text| text.parse().ok()).unwrap_or(4);
        match command.verb.as_str() {
            "work" => self.work(by, command),
            "kill" => self.kill(by),
            "stop" => self.stop(by),
            _ => {
                let Some(crew) = self.crews.get(&by) else { return };
                let what = match command.words.first().map(String::as_str) {
                    Some("turns") => &crew.faults.turns,
                    Some("answers") => &crew.faults.answers,
                    _ => &crew.faults.renewals,
                };
                what.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn work(&mut self, by: u64, command: &Command) {
        if !self.crews.contains_key(&by) {
            let Some(crew) = Crew::start(self, by, command) else { return };
            self.crews.insert(by, crew);
        }
        let turns = command.option("turns").and_then(|text| text.parse().ok()).unwrap_or(20);
        let Some(crew) = self.crews.get(&by) else { return };
        crew.drive(turns);
        if crew.killed.load(Ordering::Relaxed) {
            self.kill(by);
        }
    }

    pub(crate) fn kill(&mut self, by: u64) {
        let Some(crew) = self.crews.remove(&by) else { return };
        let Crew { runtime, running, process, .. } = crew;
        // The runtime goes first: nothing of the process runs any more.
        drop(runtime);
        drop(running);
        drop(wait(self.store.process_died(process, "signal 9".to_owned())));
    }

    /// A worker that is asked to end does so in time, and holds nothing afterwards.
    pub(crate) fn stop(&mut self, by: u64) {
        let Some(mut crew) = self.crews.remove(&by) else { return };
        let Some(running) = crew.running.take() else { return };
        let faults = &crew.faults;
        for fault in [&faults.turns, &faults.answers, &faults.renewals] {
            fault.store(0, Ordering::Relaxed);
        }
        let ended = crew.runtime.block_on(async {
            let stop = running.stop();
            let mut stop = std::pin::pin!(stop);
            for _ in 0..STOP_ROUNDS {
                for _ in 0..50 {
                    if futures::poll!(&mut stop).is_ready() {
                        return true;
                    }
                    tokio::task::yield_now().await;
                }
                self.pass(Duration::from_secs(1));
            }
            false
        });
        let killed = crew.killed.load(Ordering::Relaxed);
        drop(crew.runtime);
        if killed {
            return drop(wait(self.store.process_died(crew.process, "signal 9".to_owned())));
        }
        let held = self.oracle().hands(crew.process);
        if !ended {
            self.oracle().accuse("I8", format!("worker {by} did not end within {STOP_ROUNDS} s"));
        } else if !held.is_empty()
            && !crew.faults.lost.load(Ordering::Relaxed)
            && self.oracle().set_back() == crew.set_back
        {
            // One that lived to see the clock set back waits for a time that has been put off and gives up; its leases
            // run out. Whatever the clock did before it started is no excuse.
            self.oracle().accuse("I8", format!("worker {by} ended and still holds {held:?}"));
        }
    }
}

/// What a handler does with a message depends on nothing but the message, its attempt and the worker.
fn handler(
    store: Arc<Watched>,
    killed: Arc<AtomicBool>,
    character: u64,
) -> impl Fn(Context) -> futures::future::BoxFuture<'static, Verdict> + Send + Sync {
    move |context: Context| {
        let (store, killed) = (store.clone(), killed.clone());
        Box::pin(async move {
            let message = context.message();
            let late = message.deadline_at.is_some_and(|deadline| store.clock_now() > deadline);
            store.oracle().handled(context.token(), &message.payload, late);
            let mut dice = Dice::new(message.id.number() * 31 + u64::from(context.attempt()) * 7 + character);
            let roll = dice.roll(100);
            if roll < 12 {
                store.oracle().failing(context.token());
            }
            match roll {
                0..6 => Verdict::retry(Failure::transient("the database is away\0")),
                6..9 => Verdict::poison(Failure::poison("no such customer")),
                9..12 => Verdict::Defer(Duration::from_secs(1 + dice.roll(20))),
                12..14 => panic_quietly(),
                14..17 => std::future::pending().await,
                17..20 => {
                    killed.store(true, Ordering::Relaxed);
                    std::future::pending().await
                }
                20..40 => {
                    for _ in 0..dice.roll(12) {
                        tokio::task::yield_now().await;
                    }
                    Verdict::done()
                }
                40..43 => {
                    let failed = Failed::from(Failure::unknown("who knows"));
                    Verdict::Retry(Failed { cascade: true, ..failed })
                }
                _ => Verdict::done(),
            }
        })
    }
}

/// A panic without the hook's noise.
fn panic_quietly() -> Verdict {
    std::panic::resume_unwind(Box::new("the handler fell over"))
}

impl Watched {
    pub(crate) fn clock_now(&self) -> sickbay_core::Timestamp {
        self.manual_clock().now()
    }
}

struct Faulty {
    inner: StoreSource,
    faults: Arc<Faults>,
}

fn unreachable() -> StoreError {
    StoreError::new(ErrorKind::TryAgain, "SB0000", "the store cannot be reached")
}

#[async_trait]
impl Source for Faulty {
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError> {
        if strikes(&self.faults.turns) {
            return Err(unreachable());
        }
        let answer = self.inner.turn(turn).await;
        if strikes(&self.faults.answers) {
            self.faults.lost.store(true, Ordering::Relaxed);
            return Err(unreachable());
        }
        answer
    }

    async fn renew(&self, tokens: Vec<LeaseToken>, lease: Duration) -> Result<Vec<LeaseToken>, SourceError> {
        if strikes(&self.faults.renewals) {
            return Err(unreachable());
        }
        self.inner.renew(tokens, lease).await
    }

    async fn policy(&self) -> Result<Arc<QueuePolicy>, SourceError> {
        self.inner.policy().await
    }

    async fn set_type_gate(&self, message_type: &MessageType, gate: TypeGate) -> Result<(), SourceError> {
        self.inner.set_type_gate(message_type, gate).await
    }

    async fn is_done(&self, key: &Key) -> Result<bool, SourceError> {
        self.inner.is_done(key).await
    }
}
