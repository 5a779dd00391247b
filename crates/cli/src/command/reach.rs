//! How a command gets at the store: as its owner, through the owner's socket, or by an address.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sickbay::{Clock, ErrorKind, Sickbay, SqliteOptions, StoreError, SystemClock, last_death};
use sickbay_cli::config::{Config, FILE_NAME, PostgresAddress, StoreConfig};
use sickbay_server::wire::problem::Reaction;
use sickbay_server::wire::queue::Queue;
use sickbay_server::{Api, Client, Problem, connect, socket_path};

use super::{Env, database};
use crate::output::{Exit, Failure, Result};

/// What the store is called unless somebody says otherwise.
const STORE_NAME: &str = "sickbay.db";
/// Commands own the store for a moment only: it is worth waiting for one.
const TRIES_MAX: u32 = 40;
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Whether a store that is not there is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is.
    Make,
    /// It is if a configuration says which queues it has; otherwise it would be of no use.
    MakeIfConfigured,
    /// It is a failure: somebody mistook its name.
    Fail,
}

/// What a store is called.
pub(super) enum StoreName {
    /// A SQLite file.
    File(PathBuf),
    /// A schema of a PostgreSQL database.
    Database(PostgresAddress),
}

/// The store, open in this process or far away.
pub(super) enum Store {
    Own(Sickbay),
    Other(Client),
}

impl Env {
    /// The configuration, if there is one. A broken one is a failure.
    pub(super) fn config(&self) -> Result<Option<Config>> {
        let path = match &self.options.config {
            Some(path) => path.clone(),
            None if Path::new(FILE_NAME).exists() => PathBuf::from(FILE_NAME),
            None => return Ok(None),
        };
        Config::load(&path).map(Some).map_err(|errors| Failure::config(&errors, &self.out, Exit::Usage))
    }

    /// The store: what was said, what the configuration says, or the usual name.
    pub(super) fn store_name(&self, config: Option<&Config>) -> Result<StoreName> {
        match (&self.options.store, config.map(|config| &config.store)) {
            (Some(said), _) => store_name(said),
            (None, Some(StoreConfig::Sqlite { path })) => Ok(StoreName::File(path.clone())),
            (None, Some(StoreConfig::Postgres { address })) => Ok(StoreName::Database(address.clone())),
            (None, None) => Ok(StoreName::File(PathBuf::from(STORE_NAME))),
        }
    }

    /// A client of the store, wherever its owner is.
    pub(super) async fn client(&self, missing: Missing) -> Result<Client> {
        if let Some(address) = &self.options.server {
            return server(address);
        }
        // Without a store to be named by it, the configuration is needed only for the queues of a new one.
        let wanted = self.options.store.is_none() || self.options.config.is_some();
        let config = if wanted { self.config()? } else { None };
        let path = match self.store_name(config.as_ref())? {
            StoreName::File(path) => path,
            StoreName::Database(address) => {
                let client = Client::in_process(&Api::new(Arc::new(database::visit(&address).await?)));
                if let Some(config) = config.filter(|_| missing != Missing::Fail) {
                    define_missing(&client, &config).await?;
                }
                return Ok(client);
            }
        };
        let options = SqliteOptions::new(Arc::new(SystemClock::new())).log_bytes(0);
        let missing = match missing {
            Missing::MakeIfConfigured if config.is_none() => Missing::Fail,
            missing => missing,
        };
        match reach(&path, missing, &options).await? {
            Store::Other(client) => Ok(client),
            Store::Own(bay) => {
                let client = Client::in_process(&Api::new(bay.store().clone()));
                if let Some(config) = config.filter(|_| missing != Missing::Fail) {
                    define_missing(&client, &config).await?;
                }
                Ok(client)
            }
        }
    }
}

/// What somebody means by the name of a store.
pub(super) fn store_name(said: &Path) -> Result<StoreName> {
    match said.to_str().filter(|said| PostgresAddress::is_one(said)) {
        Some(address) => PostgresAddress::parse(address).map(StoreName::Database).map_err(Failure::usage),
        None => Ok(StoreName::File(said.to_owned())),
    }
}

/// A client of the server at an address: `http://127.0.0.1:7070` or `unix:PATH`.
pub(super) fn server(address: &str) -> Result<Client> {
    match address.strip_prefix("unix:") {
        Some("") => Err(Failure::usage("--server unix: needs the path of a socket: unix:sickbay.db.sock")),
        Some(path) => Ok(Client::unix(path)),
        None => Ok(Client::tcp(address)?),
    }
}

/// Opens the store, or finds its owner.
pub(super) async fn reach(path: &Path, missing: Missing, options: &SqliteOptions) -> Result<Store> {
    if missing == Missing::Fail && !path.exists() {
        let message = format!("there is no store {}", path.display());
        let hint = "name it with --store, or make one with `sickbay queue define NAME` or `sickbay serve`";
        return Err(Failure::new(Exit::Unreachable, message).hint(hint));
    }
    let mut ticks = tokio::time::interval(TRY_EVERY);
    let mut tries = 0;
    loop {
        ticks.tick().await;
        let owned = match Sickbay::open_with(path, options.clone()) {
            Ok(bay) => return Ok(Store::Own(bay)),
            Err(error) if error.code() == "SB0009" => error,
            Err(error) => return Err(cannot_open(path, &error)),
        };
        let problem = match connect(path).await {
            Ok(client) => return Ok(Store::Other(client)),
            Err(problem) => problem,
        };
        tries += 1;
        if tries >= TRIES_MAX || !problem.is_owner_gone() {
            return Err(unanswered(path, &owned, &problem));
        }
    }
}

/// Options for a process that owns the store for long.
pub(super) fn owner_options(clock: Arc<dyn Clock>) -> SqliteOptions {
    let options = SqliteOptions::new(clock);
    match last_death() {
        Some(evidence) => options.evidence(evidence),
        None => options,
    }
}

/// Queues of the configuration that the store does not have yet.
async fn define_missing(client: &Client, config: &Config) -> Result<()> {
    let known = client.queues().await?.queues;
    for (name, queue) in &config.queues {
        if known.iter().all(|known| known.name != *name) {
            let queue = Queue { name: name.clone(), policy: queue.policy.clone().into() };
            client.define_queue(&queue).await?;
        }
    }
    Ok(())
}

fn cannot_open(path: &Path, error: &StoreError) -> Failure {
    let folder_is_missing =
        path.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let mut failure = Failure::from(error.clone());
    if matches!(error.kind(), ErrorKind::Stop | ErrorKind::TryAgain) {
        failure.exit = Exit::Unreachable;
    }
    if folder_is_missing { failure.hint("its folder does not exist: make it first") } else { failure }
}

/// Somebody owns the file and does not answer.
fn unanswered(path: &Path, owned: &StoreError, problem: &Problem) -> Failure {
    let text = owned.to_string();
    let text = text.strip_suffix(" (SB0009)").unwrap_or(&text);
    let socket = socket_path(path);
    let detail = format!("{text}, and nobody answers at {}", socket.display());
    let hint = if problem.is_owner_gone() {
        "stop that process, or run `sickbay serve` there instead of it: that answers others"
    } else {
        "the process that answers is of no use: see the error"
    };
    let detail = if problem.is_owner_gone() { detail } else { format!("{text}: {problem}") };
    Problem::new(Reaction::TryAgain, "SB0009", detail).hint(hint).into()
}
