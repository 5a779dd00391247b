//! What a worker process does.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Signal, getpid, kill_process};
use sickbay_core::verdict::Done;
use sickbay_core::{Clock, Failure, Timestamp, Verdict, WorkerName};
use sickbay_store::{PostgresEffect, PostgresOptions, PostgresStore, SystemClock};
use sickbay_worker::{Context, StoreSource, Worker};

use super::queue;

/// The word that a child is called with, followed by the address, its worker's name, how many seconds its clock is
/// wrong by, and the name of its instance, if it has one.
pub const WORD: &str = "child-postgres";

/// The table that handlers write to.
pub(super) const HANDLED: &str = "CREATE TABLE handled (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id bigint NOT NULL, stream text NOT NULL, place bigint NOT NULL, delivery bigint NOT NULL)";

/// What a message wants of its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Succeed,
    Fail,
    Kill,
}

impl Wish {
    /// As it is written in a message, with the message's place in its stream.
    pub(super) fn payload(self, place: u64) -> String {
        let word = match self {
            Self::Succeed => "ok",
            Self::Fail => "fails",
            Self::Kill => "kills",
        };
        format!("{word} {place}")
    }

    fn read(payload: &[u8]) -> Option<(Self, i64)> {
        let (word, place) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
        let wish = match word {
            "ok" => Self::Succeed,
            "fails" => Self::Fail,
            _ => Self::Kill,
        };
        Some((wish, place.parse().ok()?))
    }
}

/// Works until its standard input ends: when it is told to, or when its parent is gone.
pub fn run(arguments: &[String]) -> Result<()> {
    let [address, worker, wrong_by, instance @ ..] = arguments else {
        anyhow::bail!("no address, no worker and no clock");
    };
    let clock = Wrong(SystemClock::new(), wrong_by.parse::<i64>()? * 1000);
    super::runtime()?.block_on(work(address, worker, clock, instance.first()))
}

/// The clock of a machine that is wrong by so many milliseconds.
struct Wrong(SystemClock, i64);

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now().millis() + self.1)
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        self.0.wait_for(Timestamp::from_millis(until.millis().saturating_sub(self.1)))
    }

    fn on_tick(&self, tick: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.0.on_tick(tick);
    }
}

async fn work(address: &str, worker: &str, clock: Wrong, instance: Option<&String>) -> Result<()> {
    let mut options = PostgresOptions::default().connections(2);
    if let Some(name) = instance {
        options = options.name(name).evidence("kill -9, seen when its successor came");
    }
    let store = PostgresStore::connect(address, options).await?;
    let source =
        StoreSource::new(Arc::new(store.clone()), queue()?, WorkerName::new(worker)?, store.process());
    let worker = Worker::new(Arc::new(source), |ctx: Context| async move { handle(&ctx) }, Arc::new(clock));
    {
        // Said before a message can kill it.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", store.process().0)?;
        out.flush()?;
    }
    let running = worker.concurrency(4).prefetch(12).start();
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()))
        .await??;
    running.stop().await;
    store.close().await.context("goodbye")
}

/// The handler's only trace is written in the transaction that acknowledges the message.
fn handle(ctx: &Context) -> Verdict {
    let Some((wish, place)) = Wish::read(ctx.payload()) else {
        return Verdict::poison(Failure::poison("a payload that nobody pushed"));
    };
    match wish {
        Wish::Kill => {
            let killed = kill_process(getpid(), Signal::KILL);
            Verdict::poison(Failure::poison(format!("still alive: {killed:?}")))
        }
        Wish::Fail => Verdict::retry(Failure::transient("the bank is closed")),
        Wish::Succeed => {
            let (id, delivery) = (ctx.id().number() as i64, i64::from(ctx.counters().attempt_number()));
            let stream = ctx.message().stream.as_ref().map(ToString::to_string).unwrap_or_default();
            let effect = PostgresEffect::new(move |transaction| {
                Box::pin(async move {
                    let insert =
                        "INSERT INTO public.handled (id, stream, place, delivery) VALUES ($1, $2, $3, $4)";
                    transaction.execute(insert, &[&id, &stream, &place, &delivery]).await.map(drop)
                })
            });
            Verdict::Done(Done { effect: Some(effect) })
        }
    }
}
