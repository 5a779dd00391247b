//! What PostgreSQL's errors mean to us.

use std::error::Error as _;

use sickbay_core::{ErrorKind, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The state in which our own functions say that a queue is unknown; the detail is its name.
pub(super) const UNKNOWN_QUEUE: &str = "SB001";
/// The state in which our own functions refuse a name.
const IMPOSSIBLE_NAME: &str = "SB018";

/// True if the transaction was rolled back only because of what others did at the same time.
pub(super) fn is_conflict(error: &Error) -> bool {
    let state = error.code();
    state == Some(&SqlState::T_R_SERIALIZATION_FAILURE) || state == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

/// Translates the failure of a statement.
pub(super) fn translate(error: &Error) -> StoreError {
    let Some(state) = error.code() else { return lost(error) };
    let (kind, code, hint) = match state.code() {
        IMPOSSIBLE_NAME => (ErrorKind::Invalid, "SB0018", "the message was refused"),
        "53100" => (ErrorKind::Full, "SB0005", "the disk of the database is full"),
        "25006" => (ErrorKind::Stop, "SB0006", "the database is read-only: a replica, or set so"),
        "42501" => (ErrorKind::Stop, "SB0006", "the role may not do this"),
        "42P01" | "42883" | "3F000" | "42703" | "42804" => {
            (ErrorKind::Stop, "SB0063", "the schema of the database does not fit this version; migrate it")
        }
        "2200H" => (ErrorKind::Full, "SB0004", "the store has numbered as many messages as it can"),
        "28P01" | "28000" => (ErrorKind::Stop, "SB0062", "the database refuses the login"),
        "3D000" => (ErrorKind::Stop, "SB0062", "there is no such database"),
        "42704" => (ErrorKind::NotFound, "SB0014", "there is no such role or type"),
        "53300" => (ErrorKind::TryAgain, "SB0064", "the database has no connection to give"),
        "XX001" | "XX002" => (ErrorKind::Corrupt, "SB0012", "the database says that its data is damaged"),
        state if state.starts_with("57P") => {
            (ErrorKind::TryAgain, "SB0061", "the database is starting or stopping")
        }
        state if state.starts_with("40") || state.starts_with("55P") || state == "57014" => {
            (ErrorKind::TryAgain, "SB0014", "others were in the way for too long")
        }
        _ => (ErrorKind::Stop, "SB0014", "the database could not carry this out"),
    };
    StoreError::new(kind, code, format!("{hint}: {}", words(error)))
}

/// Translates the failure to connect.
pub(super) fn connecting(error: &Error) -> StoreError {
    if error.code().is_some() {
        return translate(error);
    }
    let words = words(error);
    if words.contains("certificate") || words.contains("TLS") {
        let hint = if words.contains("does not support TLS") {
            "the database does not encrypt connections; let it, or say sslmode=disable"
        } else {
            "the database's certificate is not trusted; give its root certificate, or say sslmode=disable"
        };
        return StoreError::new(ErrorKind::Stop, "SB0066", format!("{hint}: {words}"));
    }
    if words.contains("password missing") || words.contains("authentication") {
        return StoreError::new(
            ErrorKind::Stop,
            "SB0062",
            format!("the database refuses the login: {words}"),
        );
    }
    StoreError::new(ErrorKind::TryAgain, "SB0061", format!("the database cannot be reached: {words}"))
}

/// The connection broke before the answer came: nobody knows whether it was carried out.
fn lost(error: &Error) -> StoreError {
    if !error.is_closed() && error.source().is_some_and(|source| !source.is::<std::io::Error>()) {
        let text = format!("the database's answer makes no sense: {}", words(error));
        return StoreError::new(ErrorKind::Stop, "SB0014", text);
    }
    outcome_unknown(&words(error))
}

/// Nobody knows whether it was carried out.
pub(super) fn outcome_unknown(why: &str) -> StoreError {
    let text =
        format!("the connection broke before the answer came; it may or may not have been done: {why}");
    StoreError::new(ErrorKind::TryAgain, "SB0065", text)
}

/// The transaction was rolled back because of what others did at the same time.
pub(super) fn in_the_way() -> StoreError {
    StoreError::new(ErrorKind::TryAgain, "SB0014", "others were in the way; nothing was done")
}

/// No connection of the pool became free in time.
pub(super) fn no_connection(connections: usize) -> StoreError {
    let text = format!("all {connections} connections to the database are in use");
    StoreError::new(ErrorKind::TryAgain, "SB0064", text)
}

/// The address cannot be read.
pub(super) fn address(error: &Error) -> StoreError {
    // The address holds a password, so it is not repeated.
    let text = format!("the address of the database cannot be read: {}", words(error));
    StoreError::new(ErrorKind::Invalid, "SB0067", text)
}

/// The schema is not there, or too old.
pub(super) fn needs_migration(schema: &str, found: Option<i64>, known: i64) -> StoreError {
    let found = found.map_or_else(|| "is missing".to_owned(), |found| format!("is version {found}"));
    let text = format!("the schema {schema:?} {found}; this program needs version {known}: migrate it first");
    StoreError::new(ErrorKind::Stop, "SB0063", text)
}

/// The functions of the schema were made by an earlier version.
pub(super) fn old_functions(schema: &str, found: i64, known: i64) -> StoreError {
    let text = format!(
        "the functions in the schema {schema:?} are those of an earlier Sickbay (revision {found}; this one needs {known}): migrate it first"
    );
    StoreError::new(ErrorKind::Stop, "SB0063", text)
}

/// The schema was made by a newer version.
pub(super) fn newer_schema(schema: &str, found: i64, known: i64) -> StoreError {
    let text = format!(
        "the schema {schema:?} was made by a newer Sickbay (version {found}; this one knows {known}); use that version or newer"
    );
    StoreError::new(ErrorKind::Stop, "SB0008", text)
}

/// The error with its causes, as the database says it.
pub(super) fn words(error: &Error) -> String {
    if let Some(database) = error.as_db_error() {
        return database.message().to_owned();
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = error.source();
    }
    text
}
