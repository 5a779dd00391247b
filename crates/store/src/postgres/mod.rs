//! The store for many workers on many machines: one schema in a PostgreSQL database.
//!
//! Reading order: `migrations/0001_tables.sql` (how messages lie in the database), `functions/` (what
//! happens to them, one transaction and one round trip each: `push`, `claim`, `settle`, `stream`), then the
//! files here that call them, named like those of the SQLite store.

mod answer;
mod at_rest;
mod call;
mod claim;
mod desk;
mod effect;
mod examine;
mod failure;
mod floor;
mod list;
mod options;
mod overview;
mod pack;
mod pool;
mod ports;
mod present;
mod process;
mod push;
mod row;
mod schema;
mod settle;
mod stream_view;
mod tls;
mod view;
mod wait;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sickbay_core::port::ProcessId;
use sickbay_core::{Clock, QueuePolicy, StoreError};
use tokio::runtime::Handle;
use tokio_postgres::config::Config;
use tokio_util::task::TaskTracker;

pub use at_rest::PostgresAtRest;
pub use effect::PostgresEffect;
pub use examine::{Examination, Pin, TableState};
pub use options::PostgresOptions;
pub use process::Instance;

use self::floor::Floors;
use self::options::check_schema;
use self::pool::Pool;
use self::wait::Bell;
use crate::SystemClock;

/// A store in a PostgreSQL database, shared with every other process that opens it.
///
/// Cloning it is cheap; its connections are closed when the last clone is dropped.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

/// What a policy looks like in the database, and what it means.
type ReadPolicy = (String, Arc<QueuePolicy>);

struct Inner {
    pool: Pool,
    options: PostgresOptions,
    /// Where the connections live, whoever calls.
    runtime: Handle,
    process: ProcessId,
    bell: Arc<Bell>,
    /// Calls that are being carried out, whoever still waits for them.
    tasks: TaskTracker,
    /// For waiting only: times in the database are the database's.
    clock: Arc<dyn Clock>,
    /// Statements are sent as they are, because the database isolates them as we need it.
    read_committed: bool,
    policies: Mutex<HashMap<String, ReadPolicy>>,
    floors: Floors,
}

impl PostgresStore {
    /// Opens the store in this database. Its schema must have been migrated.
    pub async fn connect(address: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        check_schema(&options.schema)?;
        let pool = pool(address, &options)?;
        let read_committed = {
            let mut lent = pool.lend().await?;
            let client = lent.client()?;
            schema::check(client, &options.schema).await?;
            schema::refuse_unfinished(client, &options.schema).await?;
            let shown = client.query_typed("SHOW default_transaction_isolation", &[]).await;
            let shown = shown.map_err(|error| failure::translate(&error))?;
            shown.first().is_some_and(|row| row.get::<_, &str>(0) == "read committed")
        };
        let clock: Arc<dyn Clock> = match &options.clock {
            Some(clock) => clock.clone(),
            None => Arc::new(SystemClock::new()),
        };
        let bell = Bell::new(clock.as_ref());
        let inner = Arc::new(Inner {
            pool,
            options,
            runtime: Handle::current(),
            process: ProcessId(random()),
            bell,
            tasks: TaskTracker::new(),
            clock,
            read_committed,
            policies: Mutex::default(),
            floors: Floors::default(),
        });
        if inner.options.visitor {
            // Nobody else may be there to do it. What fails now fails again where somebody waits for it.
            drop(
                inner
                    .query("SELECT sickbay.sweep($1)", &[(&inner.now(), tokio_postgres::types::Type::INT8)])
                    .await,
            );
        } else {
            inner.arrive().await?;
            inner.start_listening();
            inner.start_sweeping();
        }
        Ok(Self { inner })
    }

    /// Makes the schema, or brings an older one to the version of this program. Needs a role that may
    /// create things; everything else does not.
    pub async fn migrate(address: &str, options: &PostgresOptions) -> Result<(), StoreError> {
        check_schema(&options.schema)?;
        let pool = pool(address, options)?;
        let mut lent = pool.lend().await?;
        schema::migrate(lent.client()?, &options.schema).await
    }

    /// The statements that [`PostgresStore::migrate`] would run now.
    pub async fn migration_sql(address: &str, options: &PostgresOptions) -> Result<String, StoreError> {
        check_schema(&options.schema)?;
        let pool = pool(address, options)?;
        let mut lent = pool.lend().await?;
        let found = schema::version(lent.client()?, &options.schema).await?.unwrap_or(0);
        if found > schema::VERSION {
            return Err(failure::newer_schema(&options.schema, found, schema::VERSION));
        }
        Ok(schema::migration_sql(&options.schema, found))
    }

    /// The statements that let a role use the store without being able to change its schema.
    pub fn grant_sql(schema: &str, role: &str) -> Result<String, StoreError> {
        check_schema(schema)?;
        check_schema(role)?;
        Ok(format!(
            "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};\n\
             GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role};\n\
             REVOKE UPDATE, DELETE, TRUNCATE ON {schema}.attempt FROM {role};\n"
        ))
    }

    /// Lets a role use the store without being able to change its schema or what was recorded of attempts.
    pub async fn grant(address: &str, options: &PostgresOptions, role: &str) -> Result<(), StoreError> {
        let sql = Self::grant_sql(&options.schema, role)?;
        let pool = pool(address, options)?;
        let mut lent = pool.lend().await?;
        let transaction = lent.client()?.build_transaction().start().await;
        let transaction = transaction.map_err(|error| failure::translate(&error))?;
        transaction.batch_execute(&sql).await.map_err(|error| failure::translate(&error))?;
        transaction.commit().await.map_err(|error| failure::translate(&error))
    }

    /// This process, as its leases name it.
    pub fn process(&self) -> ProcessId {
        self.inner.process
    }

    /// Says goodbye and closes the connections. Whatever comes later is refused (`SB0013`).
    pub async fn close(&self) -> Result<(), StoreError> {
        // Whoever waits is told, and what is under way comes to its end: it may get something that is to be given back.
        self.inner.bell.close();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        let said = self.inner.leave().await;
        self.inner.pool.close();
        said
    }

    /// Stops as a killed process would. For tests of recovery.
    #[doc(hidden)]
    pub fn crash(&self) {
        self.inner.pool.close();
        self.inner.bell.close();
    }
}

fn pool(address: &str, options: &PostgresOptions) -> Result<Pool, StoreError> {
    let mut config: Config = address.parse().map_err(|error| failure::address(&error))?;
    tls::choose_mode(&mut config);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connection_wait);
    }
    if config.get_application_name().is_none() {
        config.application_name("sickbay");
    }
    config.keepalives_idle(std::time::Duration::from_secs(30));
    let tls = tls::connector(options)?;
    Ok(Pool::new(config, tls, options.connections, options.connection_wait))
}

/// A number that no other process has.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() >> 1
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.close();
        self.bell.close();
    }
}
