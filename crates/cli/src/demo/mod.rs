//! The demo: orders are paid into a ledger by a worker process that one of them kills.

mod death;
mod incidents;
mod next;
mod orders;
mod picture;
mod report;
mod screen;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use sickbay::{Clock, MessageId, QueueName, QueuePolicy, RetryPolicy, Sickbay, Supervisor, SystemClock};

use self::death::Death;
use self::report::Report;
use self::screen::Screen;
pub(crate) use self::worker::{WorkerArguments, work};
use crate::output::{Output, count, shell_word};

/// What the demo can be told.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many orders are sent
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(50..=10_000_000))]
    messages: u64,
    /// How the killer among them kills its worker
    #[arg(long, value_enum, default_value_t = Death::Abort)]
    death: Death,
    /// Keep the store in this folder [default: a new one for temporary files; none with --json]
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

fn queue() -> anyhow::Result<QueueName> {
    Ok(QueueName::new("payments")?)
}

/// Sends the orders, has them paid, and reports.
pub(crate) async fn run(arguments: Arguments, out: &Output) -> anyhow::Result<ExitCode> {
    let clock = SystemClock::new();
    let started = clock.now();
    let temporary = tempfile::Builder::new()
        .prefix("sickbay-demo-")
        .tempdir()
        .context("no temporary folder could be made")?;
    let folder = arguments.keep.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))?;
    let store = folder.join("demo.db");
    anyhow::ensure!(!store.exists(), "{} exists already; choose another folder", store.display());
    let screen = Screen::new(out, arguments.messages);
    screen.say(&format!(
        "{} orders, {} of them poisonous, one of them deadly",
        count(arguments.messages),
        poisonous(arguments.messages)
    ));
    let killer = send(&store, arguments.messages).await?;
    let deaths = supervise(&store, arguments.death, &screen).await?;
    screen.clear();
    let seconds = clock.now().since(started).as_secs_f64();
    let report = report::read(&store, arguments.messages, killer, deaths, seconds).await?;
    // Whether anybody reads it is no failure of the demo.
    drop(
        out.answer(&report, |out| {
            format!("{}{}", report.text(out), next_steps(&report, &store, killer, out))
        }),
    );
    if !out.json && arguments.keep.is_none() {
        let kept = temporary.keep();
        screen.say(&format!(
            "the store of this run is kept: rm -r {} removes it",
            shell_word(&kept.display().to_string())
        ));
    }
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn next_steps(report: &Report, store: &Path, killer: MessageId, out: &Output) -> String {
    let commands = next::commands(store, &killer.short(), report.first_signature());
    let mut text = format!("\n{}\n", out.bold("Type next:"));
    for (command, what) in commands {
        text.push_str(&format!("  # {what}\n  {command}\n"));
    }
    text
}

fn poisonous(count: u64) -> usize {
    use orders::Fate::{BankAway, Duplicate, Good};
    (0..count).filter(|number| !matches!(orders::fate(*number, count), Good | BankAway | Duplicate)).count()
}

/// Makes the store and the ledger and sends every order. Answers which one is the killer.
async fn send(store: &Path, count: u64) -> anyhow::Result<MessageId> {
    let bay = Sickbay::open(store)?;
    let queue = queue()?;
    let retry =
        RetryPolicy { cap: Duration::from_secs(1), ..RetryPolicy::exponential(8, Duration::from_millis(50)) };
    let policy = QueuePolicy { time_budget: Duration::from_millis(250), ..QueuePolicy::with_retry(retry) };
    bay.define_queue(&queue, policy).await?;
    let ledger = rusqlite::Connection::open(store)?;
    ledger.execute_batch("CREATE TABLE ledger (event_id TEXT PRIMARY KEY, amount_cents INTEGER NOT NULL)")?;
    let mut killer = None;
    let numbers: Vec<u64> = (0..count).collect();
    for part in numbers.chunks(500) {
        let batch: Result<Vec<_>, _> =
            part.iter().map(|number| orders::message(&queue, *number, count)).collect();
        let pushed = bay.push(batch?).await?;
        let deadly =
            part.iter().zip(pushed).find(|(number, _)| orders::fate(**number, count) == orders::Fate::Killer);
        killer = killer.or(deadly.map(|(_, pushed)| pushed.id()));
    }
    killer.context("no order is deadly")
}

/// Runs the worker process, again and again while it dies. Answers how often it did.
async fn supervise(store: &Path, death: Death, screen: &Screen) -> anyhow::Result<u64> {
    let program = std::env::current_exe().context("the path of this program")?;
    let death =
        clap::ValueEnum::to_possible_value(&death).map(|v| v.get_name().to_owned()).unwrap_or_default();
    let (progress, feed) = std::io::pipe()?;
    let store = store.to_owned();
    let command = move || {
        let mut command = Command::new(&program);
        command.arg("demo-worker").arg(&store).arg("--death").arg(&death);
        command.stdout(feed.try_clone().map_or_else(|_| Stdio::null(), Stdio::from));
        command
    };
    let reader = screen.follow(progress);
    let deaths = Arc::new(Mutex::new(0));
    let (count, shown) = (deaths.clone(), screen.clone());
    let supervisor = Supervisor::new(command, Arc::new(SystemClock::new())).on_death(move |death| {
        let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        shown.died(*count, death);
    });
    supervisor.run().await?;
    drop(reader.join());
    let deaths = *deaths.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(deaths)
}
