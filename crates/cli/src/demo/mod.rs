//! The demo: orders are paid into a ledger by a worker process that one of them kills.

mod death;
mod orders;
mod report;
mod worker;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use sickbay::{Clock, QueueName, QueuePolicy, RetryPolicy, Sickbay, Supervisor, SystemClock};

use self::death::Death;
use self::worker::Progress;
pub(crate) use self::worker::{WorkerArguments, work};

/// What the demo can be told.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many orders are sent
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(50..=10_000_000))]
    messages: u64,
    /// How the killer among them kills its worker
    #[arg(long, value_enum, default_value_t = Death::Abort)]
    death: Death,
    /// Keep the store in this folder, to look at it afterwards
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Print one JSON document at the end and nothing else
    #[arg(long)]
    json: bool,
}

fn queue() -> anyhow::Result<QueueName> {
    Ok(QueueName::new("payments")?)
}

/// Sends the orders, has them paid, and reports.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let clock = SystemClock::new();
    let started = clock.now();
    let temporary = tempfile::tempdir().context("no temporary folder could be made")?;
    let folder = arguments.keep.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))?;
    let store = folder.join("demo.db");
    anyhow::ensure!(!store.exists(), "{} exists already; choose another folder", store.display());
    let screen = Screen::new(arguments.json, arguments.messages);
    screen.say(&format!(
        "{} orders, {} of them poisonous, one of them deadly",
        arguments.messages,
        poisonous(arguments.messages)
    ));
    let killer = send(&store, arguments.messages).await?;
    let deaths = supervise(&store, arguments.death, &screen).await?;
    screen.clear();
    let seconds = clock.now().since(started).as_secs_f64();
    let report = report::read(&store, arguments.messages, killer, deaths, seconds).await?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn poisonous(count: u64) -> usize {
    use orders::Fate::{BankAway, Duplicate, Good};
    (0..count).filter(|number| !matches!(orders::fate(*number, count), Good | BankAway | Duplicate)).count()
}

/// Makes the store and the ledger and sends every order. Answers which one is the killer.
async fn send(store: &Path, count: u64) -> anyhow::Result<sickbay::MessageId> {
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

/// What people see while it runs.
#[derive(Clone)]
struct Screen {
    silent: bool,
    live: bool,
    total: u64,
}

impl Screen {
    fn new(json: bool, total: u64) -> Self {
        Self { silent: json, live: !json && std::io::stderr().is_terminal(), total }
    }

    fn say(&self, line: &str) {
        if !self.silent {
            eprintln!("{line}");
        }
    }

    /// Draws what the worker process reports, until nobody reports any more.
    fn follow(&self, progress: std::io::PipeReader) -> std::thread::JoinHandle<()> {
        let screen = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(progress).lines().map_while(Result::ok) {
                if let Ok(progress) = serde_json::from_str(&line) {
                    screen.draw(progress);
                }
            }
        })
    }

    fn draw(&self, progress: Progress) {
        if self.live {
            let Progress { completed, waiting, retrying, quarantined } = progress;
            let full = (completed * 30 / self.total.max(1)).min(30) as usize;
            let bar = format!("{}{}", "█".repeat(full), "░".repeat(30 - full));
            eprint!(
                "\r\x1b[2K{bar} {completed} paid, {waiting} waiting, {retrying} to retry, {quarantined} quarantined"
            );
            drop(std::io::stderr().flush());
        }
    }

    fn died(&self, count: u64, death: &sickbay::Death) {
        self.clear();
        let how = death.signal.map_or_else(
            || format!("exit code {}", death.exit_code.unwrap_or_default()),
            |signal| format!("signal {signal}"),
        );
        self.say(&format!("the worker died ({how}), for the {count}. time; started again"));
    }

    fn clear(&self) {
        if self.live {
            eprint!("\r\x1b[2K");
        }
    }
}
