//! The worker process of the demo. It may die; its supervisor starts it again.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sickbay::{
    Clock, Context, Done, Failure, QueueStats, RawError, Sickbay, SqliteEffect, Timestamp, Verdict, typed,
};

use super::death::Death;
use super::incidents::{Incident, Incidents};
use super::orders::{Order, validate};
use super::queue;

/// How long the bank in the north is away after the worker has started.
const BANK_AWAY: Duration = Duration::from_millis(400);

/// How many pages of new dead letters are read for one report.
const PAGES_MAX: usize = 4;
/// How many incidents are reported.
const INCIDENTS_MAX: usize = 20;

/// What the worker process is told.
#[derive(clap::Args)]
pub(crate) struct WorkerArguments {
    /// The store
    store: PathBuf,
    /// How the killer kills
    #[arg(long)]
    death: Death,
}

/// What the worker process reports, ten times a second.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) completed: u64,
    pub(super) waiting: u64,
    pub(super) retrying: u64,
    pub(super) quarantined: u64,
    pub(super) duplicates: u64,
    /// The largest incidents.
    pub(super) incidents: Vec<Incident>,
}

impl From<&QueueStats> for Progress {
    fn from(stats: &QueueStats) -> Self {
        Self {
            completed: stats.completed,
            waiting: stats.pending + stats.active,
            retrying: stats.failed + stats.scheduled,
            quarantined: stats.dead,
            duplicates: stats.duplicates,
            incidents: Vec::new(),
        }
    }
}

/// Works until nothing is left to do.
pub(crate) async fn work(arguments: WorkerArguments) -> anyhow::Result<ExitCode> {
    let bay = Sickbay::open(&arguments.store)?;
    let queue = queue()?;
    let (clock, started) = (bay.clock().clone(), bay.clock().now());
    let bank = Arc::new(Bank { clock, started, death: arguments.death });
    let handler = typed(move |order: Order, ctx: Context| {
        let bank = bank.clone();
        async move { pay(&bank, order, &ctx).await }
    });
    let running = bay.worker(&queue, handler)?.concurrency(48).prefetch(256).validator(validate).start();
    let mut report = tokio::time::interval(Duration::from_millis(100));
    let mut incidents = Incidents::default();
    loop {
        report.tick().await;
        incidents.look(&bay, PAGES_MAX, |_| ()).await?;
        let mut progress = Progress::from(&bay.store().stats(&queue).await?);
        progress.incidents = incidents.list();
        progress.incidents.truncate(INCIDENTS_MAX);
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&progress)?)?;
        out.flush()?;
        if progress.waiting + progress.retrying == 0 {
            break;
        }
    }
    running.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// The bank at the other end of the line.
struct Bank {
    clock: Arc<dyn Clock>,
    started: Timestamp,
    death: Death,
}

/// Pays an order: the ledger's row, the key and the acknowledgement commit together.
async fn pay(bank: &Bank, order: Order, ctx: &Context) -> Result<Verdict, RawError> {
    if ctx.message_type().is_some_and(|known| known.as_str() != "OrderPaid") {
        let name = ctx.message_type().map(ToString::to_string).unwrap_or_default();
        return Ok(Verdict::poison(Failure::poison(format!("no handler for messages of type {name}"))));
    }
    match order.bank.as_str() {
        "killer" => bank.death.die(),
        "sleepy" => std::future::pending().await,
        "closed-account" => {
            return Err(
                RawError::new(format!("bank refuses {}: account closed", order.order_id)).http_status(400)
            );
        }
        "north" if bank.clock.now().since(bank.started) < BANK_AWAY => {
            return Err(RawError::new("bank north: service unavailable").http_status(503));
        }
        _ => {}
    }
    let effect = SqliteEffect::new(move |connection| {
        let row = (&order.event_id, order.amount_cents);
        connection.execute("INSERT INTO ledger (event_id, amount_cents) VALUES (?1, ?2)", row).map(drop)
    });
    Ok(Verdict::Done(Done { effect: Some(effect) }))
}
