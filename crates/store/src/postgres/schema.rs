//! The schema and its forward migrations. Version `n` is what the first `n` steps made; the functions are
//! replaced by those of the running version each time.

use sickbay_core::StoreError;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient};

use super::at_rest::how_to_drop;
use super::failure::{needs_migration, newer_schema, old_functions, translate};
use crate::copy;

/// One step a released version; never edited afterwards.
const STEPS: &[&str] = &[include_str!("migrations/0001_tables.sql")];

/// What the statements of the store call. Each can be replaced by a newer version of itself.
const FUNCTIONS: &[&str] = &[
    include_str!("functions/time.sql"),
    include_str!("functions/stream.sql"),
    include_str!("functions/push.sql"),
    include_str!("functions/settle.sql"),
    include_str!("functions/claim.sql"),
    include_str!("functions/desk.sql"),
    include_str!("functions/adopt.sql"),
    include_str!("functions/process.sql"),
    include_str!("functions/view.sql"),
    include_str!("functions/copy.sql"),
];

/// The version this program needs.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The revision of the functions: one more with every change of them. A program works with functions that are newer
/// than its own, and not with older ones.
const REVISION: i64 = 3;

/// The indexes that the steps make, by name.
pub(super) fn indexes() -> impl Iterator<Item = &'static str> {
    let made =
        STEPS.iter().flat_map(|step| step.lines()).filter_map(|line| line.strip_prefix("CREATE INDEX "));
    made.filter_map(|rest| rest.split_whitespace().next())
}

/// The statements that bring a schema of this version to the one of this program.
pub(super) fn migration_sql(schema: &str, version: i64) -> String {
    let mut sql = format!("CREATE SCHEMA IF NOT EXISTS {schema};\nSET LOCAL check_function_bodies = off;\n");
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)).chain(FUNCTIONS) {
        sql.push_str(&step.replace("sickbay.", &format!("{schema}.")));
    }
    sql.push_str(&format!(
        "\nINSERT INTO {schema}.meta VALUES ('version', {VERSION}), ('functions', {REVISION})
         ON CONFLICT (name) DO UPDATE SET value = excluded.value;\n"
    ));
    sql
}

/// The version of a schema; `None` if it is not there.
pub(super) async fn version(client: &Client, schema: &str) -> Result<Option<i64>, StoreError> {
    let sql = format!("SELECT value FROM {schema}.meta WHERE name = 'version'");
    match client.query_typed(&sql, &[]).await {
        Ok(rows) => Ok(rows.first().map(|row| row.get(0))),
        Err(error)
            if error.code() == Some(&SqlState::UNDEFINED_TABLE)
                || error.code() == Some(&SqlState::INVALID_SCHEMA_NAME) =>
        {
            Ok(None)
        }
        Err(error) => Err(translate(&error)),
    }
}

/// Refuses a schema of another version, and functions that are older than those of this program.
pub(super) async fn check(client: &Client, schema: &str) -> Result<(), StoreError> {
    match version(client, schema).await? {
        Some(VERSION) => {}
        Some(found) if found > VERSION => return Err(newer_schema(schema, found, VERSION)),
        found => return Err(needs_migration(schema, found, VERSION)),
    }
    match number(client, schema, "functions").await? {
        REVISION.. => Ok(()),
        found => Err(old_functions(schema, found, REVISION)),
    }
}

/// True if the functions of a schema are older than those of this program.
pub(super) async fn has_old_functions(client: &Client, schema: &str) -> Result<bool, StoreError> {
    Ok(number(client, schema, "functions").await? < REVISION)
}

/// A number that the schema remembers; 0 if it does not.
async fn number(client: &impl GenericClient, schema: &str, name: &str) -> Result<i64, StoreError> {
    let sql = format!("SELECT value FROM {schema}.meta WHERE name = '{name}'");
    let rows = client.query_typed(&sql, &[]).await.map_err(|error| translate(&error))?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

/// Refuses a store that is a copy which is not complete.
pub(super) async fn refuse_unfinished(client: &Client, schema: &str) -> Result<(), StoreError> {
    let sql = format!("SELECT 1 FROM {schema}.copy WHERE NOT complete");
    match client.query_typed(&sql, &[]).await.map_err(|error| translate(&error))?.is_empty() {
        true => Ok(()),
        false => Err(copy::unfinished(&format!("the schema {schema}"), &how_to_drop(schema))),
    }
}

/// Brings the schema to the version of this program, in one transaction.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<(), StoreError> {
    let transaction = client.build_transaction().start().await.map_err(|error| translate(&error))?;
    // Two programs that migrate at the same time take turns.
    let lock = format!("SELECT pg_advisory_xact_lock(hashtext('sickbay migrate {schema}'))");
    transaction.batch_execute(&lock).await.map_err(|error| translate(&error))?;
    let exists = format!("SELECT to_regclass('{schema}.meta')::text");
    let row = transaction.query_typed(&exists, &[]).await.map_err(|error| translate(&error))?;
    let exists = row.first().and_then(|row| row.get::<_, Option<String>>(0)).is_some();
    let found = if exists { number(&transaction, schema, "version").await? } else { 0 };
    if found > VERSION {
        return Err(newer_schema(schema, found, VERSION));
    }
    if found == VERSION && number(&transaction, schema, "functions").await? > REVISION {
        // A newer program was here, and its functions are good for this one, too.
        return Ok(());
    }
    let applied = transaction.batch_execute(&migration_sql(schema, found)).await;
    applied.map_err(|error| translate(&error))?;
    transaction.commit().await.map_err(|error| translate(&error))
}

#[cfg(test)]
mod tests {
    use super::{FUNCTIONS, REVISION, STEPS};
    use xxhash_rust::xxh3::xxh3_64;

    /// Which functions belong to the revision.
    const KNOWN: (i64, u64) = (3, 13_542_072_769_316_684_261);

    #[test]
    fn functions_that_change_get_a_new_revision() {
        let now = (REVISION, xxh3_64(FUNCTIONS.concat().as_bytes()));
        assert_eq!(now, KNOWN, "raise REVISION by one, and then write down what it stands for here");
    }

    #[test]
    fn a_released_step_is_never_edited() {
        let steps: Vec<u64> = STEPS.iter().map(|step| xxh3_64(step.as_bytes())).collect();
        assert_eq!(steps, [16_691_180_548_277_755_973], "add a new step instead");
    }
}
