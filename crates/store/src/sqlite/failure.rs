//! What SQLite's errors mean to us.

use std::path::Path;

use rusqlite::ErrorCode;
use sickbay_core::{ErrorKind, StoreError};

/// Translates an error of SQLite.
pub(super) fn translate(error: &rusqlite::Error) -> StoreError {
    let (kind, code, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::Full, "SB0005", "the disk is full; free some space, the store goes on by itself")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            (ErrorKind::Stop, "SB0006", "the store's file or folder cannot be written")
        }
        Some(ErrorCode::NotADatabase) => (ErrorKind::Stop, "SB0007", "the file is not a Sickbay store"),
        Some(ErrorCode::DatabaseCorrupt) => {
            (ErrorKind::Corrupt, "SB0012", "the store's file is damaged; restore it from a copy")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::TryAgain, "SB0014", "the store's file is locked by another program")
        }
        _ => (ErrorKind::Stop, "SB0014", "the store could not read or write its file"),
    };
    StoreError::new(kind, code, format!("{hint}: {error}"))
}

/// Lets `?` work on results of SQLite.
pub(super) trait Translate<T> {
    fn translated(self) -> Result<T, StoreError>;
}

impl<T> Translate<T> for rusqlite::Result<T> {
    fn translated(self) -> Result<T, StoreError> {
        self.map_err(|error| translate(&error))
    }
}

/// Every number has been given away.
pub(super) fn numbers_spent() -> StoreError {
    StoreError::new(
        ErrorKind::Full,
        "SB0004",
        "the store has given every message number away; begin a new store",
    )
}

pub(super) fn newer_schema(path: &Path, found: i64, known: i64) -> StoreError {
    let message = format!(
        "{} was written by a newer Sickbay (schema {found}; this one knows {known}); use that version or newer",
        path.display()
    );
    StoreError::new(ErrorKind::Stop, "SB0008", message)
}

pub(super) fn foreign_file(path: &Path) -> StoreError {
    let message = format!("{} is a database of another program, not a Sickbay store", path.display());
    StoreError::new(ErrorKind::Stop, "SB0007", message)
}

pub(super) fn owned(path: &Path, by: &str) -> StoreError {
    let message = format!("{} belongs to another running process{by}", path.display());
    StoreError::new(ErrorKind::TryAgain, "SB0009", message)
}

/// Nothing was written; what is stored can still be delivered and settled.
pub(super) fn nearly_full() -> StoreError {
    let message = "the disk is nearly full; what room is left is kept for settlements. Free some space, the store goes on by itself";
    StoreError::new(ErrorKind::Full, "SB0005", message)
}

pub(super) fn replaced(path: &Path) -> StoreError {
    let message = format!(
        "{} was replaced or removed while it was open; nothing more is written to the file that was there. Stop, put \
         the right file back, and start again",
        path.display()
    );
    StoreError::new(ErrorKind::Stop, "SB0019", message)
}

pub(super) fn io(path: &Path, error: &std::io::Error) -> StoreError {
    let (kind, code) = match error.kind() {
        std::io::ErrorKind::StorageFull => (ErrorKind::Full, "SB0005"),
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Stop, "SB0006")
        }
        _ => (ErrorKind::Stop, "SB0014"),
    };
    StoreError::new(kind, code, format!("{}: {error}", path.display()))
}
