//! `sickbay copy`: a store with quarantine and history, from SQLite to PostgreSQL, back, or into another of its kind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use sickbay::core::port::{Export, Import, PageSize};
use sickbay::core::record::RecordKind;
use sickbay::{
    Clock, Copied, CopyState, PostgresAtRest, PostgresStore, SqliteAtRest, SqliteOptions, StoreError,
    SystemClock,
};
use sickbay_cli::config::PostgresAddress;

use super::reach::{StoreName, store_name};
use super::{Env, database};
use crate::output::{Exit, Failure, Result, count, plural};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The store to copy, on which nobody works: a file, or postgres://…
    #[arg(long, value_name = "STORE")]
    from: PathBuf,
    /// An empty store, or one that is made, or the same copy that was interrupted
    #[arg(long, value_name = "STORE")]
    to: PathBuf,
}

#[derive(Serialize)]
struct Answer {
    from: String,
    to: String,
    /// An earlier run had begun it.
    resumed: bool,
    /// Both stores were read and compared.
    verified: bool,
    records: Records,
    /// Attempts in the histories of messages.
    attempts: u64,
    /// Bytes of payload.
    bytes: u64,
    seconds: f64,
    /// Messages whose bytes are not those that were pushed.
    damaged: u64,
    damaged_ids: Vec<String>,
}

#[derive(Serialize)]
struct Records {
    queues: u64,
    paused_types: u64,
    waiting: u64,
    dead: u64,
    completed: u64,
    keys: u64,
    origins: u64,
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    if env.options.server.is_some() {
        return Err(Failure::usage("stores are copied where they are, not through a server")
            .hint("name them with --from and --to"));
    }
    let (from, to) = (store_name(&arguments.from)?, store_name(&arguments.to)?);
    refuse_same(&from, &to)?;
    let clock = SystemClock::new();
    let began_at = clock.now();
    let source = open_source(&from).await?;
    let target = open_target(&to).await?;
    let copied = sickbay::copy(&*source, &*target, PageSize::default(), |state, records| {
        env.out.progress(&progress(state, records));
    })
    .await;
    env.out.progress("");
    let seconds = (clock.now().since(began_at).as_secs_f64() * 1000.0).round() / 1000.0;
    let answer = Answer::new(&from, &to, &copied?, seconds);
    env.out.answer(&answer, |_| answer.text())?;
    if answer.damaged > 0 {
        env.out.say(&format!(
            "{} had damaged bytes in the source and have them in the copy: {}; nobody gets them, they are set aside as Corrupt",
            plural(answer.damaged, "message"),
            answer.damaged_ids.join(", ")
        ));
        return Ok(Exit::Problems);
    }
    Ok(Exit::Done)
}

fn progress(state: CopyState, records: u64) -> String {
    match state {
        CopyState::Copying(kind) => {
            format!("copying {}: {} so far", kind.as_str(), plural(records, "record"))
        }
        CopyState::Arranging => "putting streams in order".to_owned(),
        CopyState::Verifying => format!("comparing both stores: {} so far", plural(records, "record")),
    }
}

/// Two names of one file.
fn refuse_same(from: &StoreName, to: &StoreName) -> Result<()> {
    let (StoreName::File(from), StoreName::File(to)) = (from, to) else { return Ok(()) };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(from) != real(to) {
        return Ok(());
    }
    let message = format!("{} is the source and the target of the copy", from.display());
    Err(Failure::usage(message).hint("name another store with --to"))
}

async fn open_source(name: &StoreName) -> Result<Box<dyn Export>> {
    match name {
        StoreName::File(path) if !path.exists() => {
            let message = format!("there is no store {}", path.display());
            Err(Failure::new(Exit::Unreachable, message).hint("name the store to copy with --from"))
        }
        StoreName::File(path) => {
            let source = SqliteAtRest::open_source(path, &options().log_bytes(0));
            Ok(Box::new(source.map_err(|error| of_file(&error))?))
        }
        StoreName::Database(address) => {
            let source = PostgresAtRest::open_source(address.reveal(), &database::options(address)?).await;
            Ok(Box::new(source.map_err(|error| database::failure(address, &error))?))
        }
    }
}

async fn open_target(name: &StoreName) -> Result<Box<dyn Import>> {
    match name {
        StoreName::File(path) => {
            let target = SqliteAtRest::open_target(path, &options());
            Ok(Box::new(target.map_err(|error| of_file(&error))?))
        }
        StoreName::Database(address) => {
            make_schema(address).await?;
            let target = PostgresAtRest::open_target(address.reveal(), &database::options(address)?).await;
            Ok(Box::new(target.map_err(|error| database::failure(address, &error))?))
        }
    }
}

fn options() -> SqliteOptions {
    SqliteOptions::new(Arc::new(SystemClock::new()))
}

/// Makes the schema of the target where it is missing or older, if the role may.
async fn make_schema(address: &PostgresAddress) -> Result<()> {
    let options = database::options(address)?.connections(1);
    let failed = |error: StoreError| database::failure(address, &error);
    let seen = PostgresStore::examine(address.reveal(), &options).await.map_err(failed)?;
    let fits = seen.schema_version.is_some_and(|version| version >= seen.schema_version_needed);
    if fits && !seen.functions_are_old {
        return Ok(());
    }
    let made = PostgresStore::migrate(address.reveal(), &options).await;
    made.map_err(|error| {
        failed(error).hint("run `sickbay migrate` first, with a role that may create things")
    })
}

/// A file that cannot be opened.
fn of_file(error: &StoreError) -> Failure {
    let failure = Failure::from(error.clone());
    match error.code() {
        "SB0009" => failure.hint("stop that process first: a store is copied while nobody works on it"),
        _ => failure,
    }
}

impl Answer {
    fn new(from: &StoreName, to: &StoreName, copied: &Copied, seconds: f64) -> Self {
        let records = |kind| copied.records.get(&kind).copied().unwrap_or(0);
        Self {
            from: shown(from),
            to: shown(to),
            resumed: copied.resumed,
            verified: true,
            records: Records {
                queues: records(RecordKind::Queue),
                paused_types: records(RecordKind::Gate),
                waiting: records(RecordKind::Waiting),
                dead: records(RecordKind::Dead),
                completed: records(RecordKind::Completed),
                keys: records(RecordKind::Key),
                origins: records(RecordKind::Origin),
            },
            attempts: copied.attempts,
            bytes: copied.bytes,
            seconds,
            damaged: copied.damaged,
            damaged_ids: copied.damaged_ids.iter().map(ToString::to_string).collect(),
        }
    }

    fn text(&self) -> String {
        let r = &self.records;
        let again = if self.resumed { ", after an interruption" } else { "" };
        let mut text = format!("{} is copied to {}{again}, and both are the same:\n", self.from, self.to);
        let rows = [
            ("queues", r.queues),
            ("paused types", r.paused_types),
            ("waiting messages", r.waiting),
            ("dead letters", r.dead),
            ("completed messages", r.completed),
            ("attempts", self.attempts),
            ("keys", r.keys),
            ("origins", r.origins),
            ("bytes", self.bytes),
        ];
        for (what, number) in rows {
            text.push_str(&format!("  {what:<20} {}\n", count(number)));
        }
        text.push_str(
            "The source is as it was. Once the copy is in use, nobody may work on the source any more.\n",
        );
        text
    }
}

/// A store without its password.
fn shown(name: &StoreName) -> String {
    match name {
        StoreName::File(path) => path.display().to_string(),
        StoreName::Database(address) => address.to_string(),
    }
}
