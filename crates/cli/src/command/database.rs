//! A store on PostgreSQL: nobody owns it, so every command calls it directly.

use sickbay::{ErrorKind, PostgresOptions, PostgresStore, StoreError, last_death};
use sickbay_cli::config::PostgresAddress;

use crate::output::{Exit, Failure, Result};

/// Opens it for the time of one command.
pub(super) async fn visit(address: &PostgresAddress) -> Result<PostgresStore> {
    let options = options(address)?.visitor(true).connections(2);
    connect(address, options).await
}

/// Opens it to work on it for long, under a name that others see.
pub(super) async fn stay(address: &PostgresAddress, name: Option<&str>) -> Result<PostgresStore> {
    let mut options = options(address)?;
    if let Some(name) = name {
        options = options.name(name);
    }
    if let Some(evidence) = last_death() {
        options = options.evidence(evidence);
    }
    connect(address, options).await
}

pub(super) fn options(address: &PostgresAddress) -> Result<PostgresOptions> {
    address.options().map_err(|error| failure(address, &error))
}

async fn connect(address: &PostgresAddress, options: PostgresOptions) -> Result<PostgresStore> {
    PostgresStore::connect(address.reveal(), options).await.map_err(|error| failure(address, &error))
}

/// Says which database it was, without its password.
pub(super) fn failure(address: &PostgresAddress, error: &StoreError) -> Failure {
    let failure = Failure::from(error.clone()).at(&address.to_string());
    match error.code() {
        "SB0063" => failure.hint("run `sickbay migrate` first, with a role that may create things"),
        "SB0008" => failure.hint("use that version of sickbay, or name another schema with ?schema=NAME"),
        _ if matches!(error.kind(), ErrorKind::Stop | ErrorKind::TryAgain) => failure.exit(Exit::Unreachable),
        _ => failure,
    }
}

/// The name of this machine, for workers that others see.
pub(super) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(60).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}
