//! The schema and its forward migrations. Version `n` of the file is what the first `n` steps made.

use std::path::Path;

use rusqlite::Connection;
use sickbay_core::StoreError;

use super::failure::{Translate, foreign_file, newer_schema};
use super::load::meta;
use super::mark::Reached;

/// "SICK": marks the file as ours.
const APPLICATION_ID: i64 = 0x5349_434B;

/// One step a released version; never edited afterwards.
const STEPS: &[&str] =
    &[include_str!("schema.sql"), include_str!("schema-2.sql"), include_str!("schema-3.sql")];

/// How far the file has got: nowhere if it is new, or older than the counting of commits.
pub(super) fn reached(connection: &Connection) -> Result<Reached, StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).translated();
    if number("PRAGMA application_id")? != APPLICATION_ID || number("PRAGMA user_version")? < 2 {
        return Ok(Reached::default());
    }
    Ok(Reached {
        store: meta(connection, "store")?.unwrap_or(0) as u64,
        commits: number("SELECT commits FROM mark")? as u64,
        last_number: number("SELECT last_number FROM mark")? as u64,
        epoch: meta(connection, "epoch")?.unwrap_or(0) as u64,
    })
}

/// Brings the file to the version of this program, or says why it cannot. `next` is a step that a later version would
/// know.
pub(super) fn migrate(
    connection: &Connection,
    path: &Path,
    next: Option<&'static str>,
) -> Result<(), StoreError> {
    let steps: Vec<&str> = STEPS.iter().copied().chain(next).collect();
    let known = steps.len() as i64;
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).translated();
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application != APPLICATION_ID && (tables > 0 || application != 0) {
        return Err(foreign_file(path));
    }
    if version > known {
        return Err(newer_schema(path, version, known));
    }
    for (step, sql) in steps.iter().enumerate().skip(version.max(0) as usize) {
        connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE;\n{sql}\nPRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {};\nCOMMIT;",
                step + 1
            ))
            .translated()
            .inspect_err(|_| drop(connection.execute_batch("ROLLBACK")))?;
    }
    Ok(())
}
