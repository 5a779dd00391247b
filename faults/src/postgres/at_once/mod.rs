//! Several programs in the middle of something at once, on PostgreSQL. Each call of the store can be stopped before it
//! writes to a table and before it commits, while others go on; a caller's own transaction stays open beside them. At every
//! rest the database must be in order, nobody may be told anything that contradicts what others were told, claims
//! and sweeps may not wait for the open transaction, and in the end everything can be delivered.

mod book;
mod brakes;
mod caller;
mod deed;
mod look;
mod rest;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use sickbay_core::port::Desk;
use sickbay_core::{QueuePolicy, StoreError};
use sickbay_store::{PostgresOptions, PostgresStore};
use sickbay_testkit::ManualClock;
use sickbay_testkit::cluster::Cluster;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use self::book::Book;
use self::caller::Caller;
use self::deed::{Answer, Deed, Theme};
use self::look::Look;
use super::connect;
use crate::dice::Dice;

/// So many programs call the store.
const PROGRAMS: usize = 4;
/// The name of the one whose transaction stays open.
const CALLER: &str = "caller";

/// A part of a function that is replaced, to see that it is missed.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    /// The function.
    pub function: &'static str,
    /// What it says.
    pub says: &'static str,
    /// What it says instead.
    pub instead: &'static str,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct AtOnce {
    /// So many schedules were tried.
    pub schedules: u64,
    /// So many calls were made.
    pub calls: u64,
    /// So many of them were stopped in the middle.
    pub stopped: u64,
    /// So often one waited for another.
    pub waits: u64,
    /// What should not be.
    pub findings: Vec<String>,
}

/// Tries the schedules of these seeds, until something is found. Who of several that can go on is first is the
/// database's affair, so that one seed may have to be tried a few times to come to the same end.
pub fn at_once(seeds: impl IntoIterator<Item = u64>, defect: Option<Defect>) -> Result<AtOnce> {
    let cluster = Cluster::start_with(&["deadlock_timeout=600s", "max_connections=50"], &[]);
    let mut outcome = AtOnce::default();
    super::runtime()?.block_on(async {
        for seed in seeds {
            let schema = format!("s{}", outcome.schedules);
            let mut schedule = Schedule::begin(&cluster.address(), schema, seed, defect).await?;
            let ended = schedule.run(&mut outcome).await;
            outcome.schedules += 1;
            if let Err(problem) = ended {
                let trace = schedule.trace.join("\n  ");
                outcome.findings.push(format!("seed {seed}: {problem:#}\n  {trace}"));
                break;
            }
        }
        anyhow::Ok(())
    })?;
    Ok(outcome)
}

/// A program that calls the store.
struct Program {
    name: String,
    store: PostgresStore,
    busy: Option<Busy>,
}

/// What it is doing.
struct Busy {
    deed: Deed,
    task: JoinHandle<Result<Answer, StoreError>>,
    /// Where it is stopped when it comes there.
    stop: Option<&'static str>,
}

/// One schedule on a schema of its own.
struct Schedule {
    dice: Dice,
    theme: Theme,
    clock: ManualClock,
    watcher: Client,
    look: Look,
    schema: String,
    programs: Vec<Program>,
    caller: Caller,
    book: Book,
    trace: Vec<String>,
}

impl Schedule {
    async fn begin(address: &str, schema: String, seed: u64, defect: Option<Defect>) -> Result<Self> {
        let mut dice = Dice::new(seed);
        let clock = ManualClock::new();
        let options = PostgresOptions::default()
            .schema(&schema)
            .connections(1)
            .visitor(true)
            .call_time(Duration::from_secs(600))
            .clock(Arc::new(clock.clone()));
        PostgresStore::migrate(address, &options).await?;
        let watcher = connect(address).await?;
        if let Some(defect) = defect {
            plant(&watcher, &schema, defect).await?;
        }
        let mut programs = Vec::new();
        for number in 0..PROGRAMS {
            let name = format!("program-{number}");
            let address =
                format!("{address}{}application_name={name}", if address.contains('?') { '&' } else { '?' });
            let store = PostgresStore::connect(&address, options.clone()).await?;
            programs.push(Program { name, store, busy: None });
        }
        let [keeps, passes] = deed::queues()?;
        let store = &programs[0].store;
        let common = QueuePolicy { run_max: 1 + dice.roll(3) as u32, ..QueuePolicy::default() };
        let kept = QueuePolicy { keep_completed: Duration::from_secs(86_400), ..common.clone() };
        store.define_queue(&keeps, kept).await?;
        let passed = QueuePolicy {
            when_head_quarantined: sickbay_core::policy::WhenHeadQuarantined::Pass,
            ordering: if dice.once_in(2) {
                sickbay_core::policy::Ordering::Available
            } else {
                sickbay_core::policy::Ordering::Strict
            },
            key_window: if dice.once_in(2) { Duration::ZERO } else { Duration::from_secs(20) },
            ..common
        };
        store.define_queue(&passes, passed).await?;
        brakes::install(&watcher, &schema).await?;
        let caller = Caller::start(address, store.clone()).await?;
        let look = Look::at(&watcher, &schema).await?;
        let theme = Theme::new(&mut dice, seed);
        Ok(Self {
            dice,
            theme,
            clock,
            watcher,
            look,
            schema,
            programs,
            caller,
            book: Book::default(),
            trace: Vec::new(),
        })
    }

    async fn run(&mut self, outcome: &mut AtOnce) -> Result<()> {
        for _ in 0..80 {
            self.step(outcome).await?;
            self.rest(outcome).await?;
        }
        self.end(outcome).await
    }

    /// Somebody begins something, goes on, or time passes.
    async fn step(&mut self, outcome: &mut AtOnce) -> Result<()> {
        let at = self.dice.roll(PROGRAMS);
        match self.dice.roll(12) {
            0 => {
                let by = Duration::from_secs([1, 3, 11][self.dice.roll(3)]);
                self.trace.push(format!("{by:?} pass"));
                self.clock.advance(by);
            }
            1 if self.caller.is_idle() => {
                let message = self.theme.message(&mut self.dice)?;
                self.trace.push(format!("the caller pushes {}", tell::describe(&message)));
                self.caller.push(vec![message]);
            }
            1 if self.caller.is_open() => {
                let commits = self.dice.roll(4) > 0;
                self.trace.push(format!("the caller {}", if commits { "commits" } else { "rolls back" }));
                self.caller.end(commits);
            }
            _ if self.programs[at].busy.is_some() => self.let_go(at).await?,
            _ => {
                let deed = self.theme.choose(&mut self.dice, &self.book)?;
                let stop = self.dice.once_in(2).then(|| match self.dice.roll(2) {
                    0 => brakes::PLACES[0],
                    _ => brakes::PLACES[self.dice.roll(brakes::PLACES.len())],
                });
                if let Some(place) = stop {
                    brakes::hold(&self.watcher, &self.programs[at].name, place).await?;
                }
                self.trace.push(format!(
                    "{at}: {}{}",
                    tell::deed(&deed),
                    stop.map_or(String::new(), |place| format!(" | stops at {place}"))
                ));
                let task = tokio::spawn(deed.clone().perform(self.programs[at].store.clone()));
                self.programs[at].busy = Some(Busy { deed, task, stop });
                outcome.calls += 1;
                outcome.stopped += u64::from(stop.is_some());
            }
        }
        Ok(())
    }

    async fn let_go(&mut self, at: usize) -> Result<()> {
        let program = &mut self.programs[at];
        if let Some(place) = program.busy.as_mut().and_then(|busy| busy.stop.take()) {
            self.trace.push(format!("{at} goes on"));
            brakes::release(&self.watcher, &program.name, place).await?;
        }
        Ok(())
    }
}

/// Replaces a part of a function.
async fn plant(client: &Client, schema: &str, defect: Defect) -> Result<()> {
    let sql = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
               WHERE n.nspname = $1 AND p.proname = $2";
    let text: String = client.query_one(sql, &[&schema, &defect.function]).await?.get(0);
    let says = defect.says.replace("sickbay.", &format!("{schema}."));
    if !text.contains(&says) {
        bail!("{} does not say {says}", defect.function);
    }
    let instead = defect.instead.replace("sickbay.", &format!("{schema}."));
    Ok(client.batch_execute(&text.replace(&says, &instead)).await?)
}
