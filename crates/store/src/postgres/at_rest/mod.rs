//! A store on which nobody works: it is copied, or filled with the records of another store.
//!
//! The source is read in one transaction that keeps everybody else from changing it; the target takes each page of
//! records in a transaction of its own.

mod columns;
mod export;
mod import;

use async_trait::async_trait;
use sickbay_core::port::{Export, Identity, Import, PageSize, Progress};
use sickbay_core::record::{Cursor, Marks, Record, RecordPage};
use sickbay_core::{ErrorKind, StoreError};
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::call::Param;
use super::failure::translate;
use super::options::check_schema;
use super::{PostgresOptions, pool, schema};
use crate::copy::{self, MOVED};

/// A program that said so a shorter while ago than this has the store open.
const ALIVE_MS: i64 = 20_000;

/// A PostgreSQL store on which nobody works.
pub struct PostgresAtRest {
    client: Mutex<Client>,
    schema: String,
    now: Option<i64>,
    /// It is in the one transaction in which it is read.
    is_source: bool,
}

/// Pages are read along an index: of tables that were just filled the database does not know yet that this is best.
const PLANS: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off";

/// What everybody who changes the store changes some of.
const LOCK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = '10s';
    LOCK TABLE sickbay.queue, sickbay.waiting, sickbay.lease, sickbay.dead, sickbay.completed, sickbay.key,
        sickbay.origin, sickbay.type_gate, sickbay.tally IN SHARE MODE";

const HELD: &str = "SELECT l.worker, l.process, q.name, sum(cardinality(l.ids))::bigint
    FROM sickbay.lease l JOIN sickbay.queue q ON q.no = l.queue GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1 LIMIT 5";

const OPEN: &str = "SELECT coalesce(name, 'a program without a name'), process FROM sickbay.instance
    WHERE beat_at > sickbay.time_now($1) - $2 ORDER BY opened_at LIMIT 5";

const IDENTITY: &str =
    "SELECT (SELECT system_identifier FROM pg_control_system())::text || ' ' || current_database()
        || ' ' || 'sickbay.meta'::regclass::oid::text,
    (SELECT {moved}::bigint FROM sickbay.tally),
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM sickbay.message_number),
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM sickbay.dead_number),
    (SELECT value FROM sickbay.meta WHERE name = 'epoch')";

impl PostgresAtRest {
    /// Opens a store to copy it. Refused while anybody works on it (`SB0072`); until it is dropped, whoever wants to
    /// change the store waits. Nothing of it is changed, except that leases that ran out end.
    pub async fn open_source(address: &str, options: &PostgresOptions) -> Result<Self, StoreError> {
        let mut source = Self::open(address, options).await?;
        {
            let client = source.client.lock().await;
            if let Some((false, _)) = source.progress(&*client).await? {
                return Err(copy::unfinished(&source.shown(), &source.how_to_drop()));
            }
            source.ask(&*client, "SELECT sickbay.sweep($1)", &[(&source.now, Type::INT8)]).await?;
            source.check_idle(&*client).await?;
            let begin = source.sql(&format!("{LOCK}; {PLANS}"));
            client.batch_execute(&begin).await.map_err(|error| translate(&error))?;
            source.check_idle(&*client).await?;
        }
        source.is_source = true;
        Ok(source)
    }

    /// Opens an empty store to fill it. Its schema must have been migrated.
    pub async fn open_target(address: &str, options: &PostgresOptions) -> Result<Self, StoreError> {
        let target = Self::open(address, options).await?;
        {
            let client = target.client.lock().await;
            target.check_idle(&*client).await?;
        }
        Ok(target)
    }

    async fn open(address: &str, options: &PostgresOptions) -> Result<Self, StoreError> {
        check_schema(&options.schema)?;
        let client = pool(address, options)?.connect().await?;
        schema::check(&client, &options.schema).await?;
        let now = options.clock.as_ref().map(|clock| clock.now().millis());
        Ok(Self { client: Mutex::new(client), schema: options.schema.clone(), now, is_source: false })
    }

    fn sql(&self, text: &str) -> String {
        text.replace("sickbay.", &format!("{}.", self.schema))
    }

    fn shown(&self) -> String {
        format!("the schema {}", self.schema)
    }

    fn how_to_drop(&self) -> String {
        how_to_drop(&self.schema)
    }

    async fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().await
    }

    async fn ask(
        &self,
        client: &impl GenericClient,
        text: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        client.query_typed(&self.sql(text), params).await.map_err(|error| translate(&error))
    }

    /// Refuses a store that somebody works on.
    async fn check_idle(&self, client: &impl GenericClient) -> Result<(), StoreError> {
        let held = self.ask(client, HELD, &[]).await?;
        let holder = |row: &Row| {
            let (worker, process, queue): (&str, i64, &str) = (row.get(0), row.get(1), row.get(2));
            format!("{worker} (process {process}) holds {} of queue {queue}", row.get::<_, i64>(3))
        };
        let open = self.ask(client, OPEN, &[(&self.now, Type::INT8), (&ALIVE_MS, Type::INT8)]).await?;
        let opener =
            |row: &Row| format!("{} (process {}) has it open", row.get::<_, &str>(0), row.get::<_, i64>(1));
        let who: Vec<String> = held.iter().map(holder).chain(open.iter().map(opener)).collect();
        if who.is_empty() { Ok(()) } else { Err(copy::in_use(&who.join(", "))) }
    }

    /// A copy that was begun here: whether it is complete, and how far it had got.
    async fn progress(&self, client: &impl GenericClient) -> Result<Option<(bool, Progress)>, StoreError> {
        let rows = self.ask(client, "SELECT complete, progress FROM sickbay.copy", &[]).await?;
        rows.first().map(|row| Ok((row.get(0), copy::read(row.get(1))?))).transpose()
    }

    /// What is in the store, in words; nothing if it is empty.
    async fn holds(&self, client: &impl GenericClient) -> Result<Option<String>, StoreError> {
        for table in ["queue", "waiting", "lease", "dead", "completed", "key", "origin"] {
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM sickbay.{table} LIMIT 1000) t");
            let rows = self.ask(client, &sql, &[]).await?;
            let count = rows.first().map_or(0, |row| row.get::<_, i64>(0));
            if count > 0 {
                return Ok(Some(copy::holding(table, count as u64)));
            }
        }
        Ok(None)
    }

    /// Writes down how far the copy has got, unless somebody else did.
    async fn turn(&self, transaction: &Transaction<'_>, progress: &Progress) -> Result<(), StoreError> {
        let (text, turns) = (copy::write(progress)?, progress.turns as i64);
        let sql = "UPDATE sickbay.copy SET progress = $1, turns = $2 WHERE NOT complete AND turns = $2 - 1 RETURNING 1";
        let turned = self.ask(transaction, sql, &[(&text, Type::TEXT), (&turns, Type::INT8)]).await?;
        if turned.is_empty() { Err(copy::another_copies()) } else { Ok(()) }
    }
}

/// How an unfinished copy is given up.
pub(super) fn how_to_drop(schema: &str) -> String {
    format!("drop it with DROP SCHEMA {schema} CASCADE")
}

fn missing() -> StoreError {
    StoreError::new(ErrorKind::Corrupt, "SB0012", "the database did not answer what it was asked")
}

#[async_trait]
impl Export for PostgresAtRest {
    async fn identity(&self) -> Result<Identity, StoreError> {
        let client = self.client().await;
        let rows = self.ask(&*client, &IDENTITY.replace("{moved}", MOVED), &[]).await?;
        let row = rows.first().ok_or_else(missing)?;
        let number = |at: usize| row.get::<_, i64>(at) as u64;
        let marks = Marks { last_number: number(2), last_dead: number(3), epoch: number(4) };
        Ok(Identity { store: format!("postgres {}", row.get::<_, &str>(0)), marks, moved: row.get(1) })
    }

    async fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError> {
        let mut client = self.client().await;
        if self.is_source {
            return self.export_from(&*client, after, size).await;
        }
        let transaction = client.transaction().await.map_err(|error| translate(&error))?;
        transaction.batch_execute(PLANS).await.map_err(|error| translate(&error))?;
        self.export_from(&transaction, after, size).await
    }
}

#[async_trait]
impl Import for PostgresAtRest {
    async fn begin(&self, source: &Identity) -> Result<Progress, StoreError> {
        let mut client = self.client().await;
        let transaction = client.transaction().await.map_err(|error| translate(&error))?;
        match self.progress(&transaction).await? {
            Some((false, begun)) => return copy::go_on(begun, source, &self.how_to_drop()),
            Some((true, done)) => return Err(copy::already(&done, source)),
            None => {}
        }
        if let Some(what) = self.holds(&transaction).await? {
            return Err(copy::not_empty(&what));
        }
        let progress = Progress::begin(source);
        let text = copy::write(&progress)?;
        let sql = "INSERT INTO sickbay.copy VALUES (1, false, 0, $1) ON CONFLICT DO NOTHING RETURNING 1";
        if self.ask(&transaction, sql, &[(&text, Type::TEXT)]).await?.is_empty() {
            return Err(copy::another_copies());
        }
        transaction.commit().await.map_err(|error| translate(&error))?;
        Ok(progress)
    }

    async fn import(&self, records: Vec<Record>, progress: &Progress) -> Result<(), StoreError> {
        let mut client = self.client().await;
        let transaction = client.transaction().await.map_err(|error| translate(&error))?;
        self.turn(&transaction, progress).await?;
        self.take_in(&transaction, &records).await?;
        transaction.commit().await.map_err(|error| translate(&error))
    }

    async fn arrange(&self, progress: &Progress) -> Result<Progress, StoreError> {
        let mut client = self.client().await;
        let transaction = client.transaction().await.map_err(|error| translate(&error))?;
        let turned = self.arrange_some(&transaction, progress).await?;
        transaction.commit().await.map_err(|error| translate(&error))?;
        Ok(turned)
    }

    async fn complete(&self, progress: &Progress) -> Result<(), StoreError> {
        let client = self.client().await;
        let marks = progress.source.marks;
        // The source's tokens are of its epoch or earlier ones.
        let numbers = [progress.turns, marks.last_number, marks.last_dead, marks.epoch + 1];
        let numbers = numbers.map(|number| number as i64);
        let params: Vec<Param<'_>> =
            numbers.iter().map(|number| -> Param<'_> { (number, Type::INT8) }).collect();
        let rows = self.ask(&*client, "SELECT sickbay.complete_copy($1, $2, $3, $4)", &params).await?;
        match rows.first().map(|row| row.get(0)) {
            Some(true) => Ok(()),
            _ => Err(copy::another_copies()),
        }
    }
}
