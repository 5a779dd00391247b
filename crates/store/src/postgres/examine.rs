//! Is the database well? What an operator should know of the server, the tables and those who are in the way.

use std::time::Duration;

use sickbay_core::{StoreError, Timestamp};
use tokio_postgres::{Client, Row};

use super::failure::translate;
use super::options::check_schema;
use super::process::{INSTANCES, Instance, instance};
use super::{PostgresOptions, PostgresStore, pool, schema};

/// What there is to know of a database and the store in it.
#[derive(Clone, Debug)]
pub struct Examination {
    /// The server's version as it says it ("15.4").
    pub server_version: String,
    /// The same as a number (150004).
    pub server_version_number: i32,
    /// The version of the store's schema; none if it is not there.
    pub schema_version: Option<i64>,
    /// The version that this program needs.
    pub schema_version_needed: i64,
    /// Its functions are those of an earlier program.
    pub functions_are_old: bool,
    /// Settings that matter, by name.
    pub settings: Vec<(String, String)>,
    /// The database's time.
    pub now: Timestamp,
    /// The store's tables, the largest first.
    pub tables: Vec<TableState>,
    /// What keeps old row versions from being cleaned up, the oldest first.
    pub pins: Vec<Pin>,
    /// Indexes of the schema that are not there or not valid.
    pub missing_indexes: Vec<String>,
    /// Who has the store open.
    pub instances: Vec<Instance>,
}

/// A table of the store.
#[derive(Clone, Debug)]
pub struct TableState {
    /// Its name.
    pub name: String,
    /// Rows that count, as the database estimates them.
    pub rows_live: u64,
    /// Row versions that nobody needs and that were not cleaned up yet.
    pub rows_dead: u64,
    /// Its size with indexes.
    pub bytes: u64,
}

/// Somebody whose transaction needs old row versions.
#[derive(Clone, Debug)]
pub struct Pin {
    /// Who: user, program and address, or the name of a slot or a prepared transaction.
    pub who: String,
    /// What it does.
    pub state: String,
    /// For how long.
    pub age: Duration,
    /// How many transactions it looks back.
    pub transactions: u64,
}

const SETTINGS: &str =
    "SELECT name, setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', 'full_page_writes',
    'synchronous_commit', 'default_transaction_isolation', 'default_transaction_read_only', 'max_connections',
    'track_counts') ORDER BY name";

const TABLES: &str = "SELECT c.relname::text, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0),
        pg_total_relation_size(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
    WHERE n.nspname = '{schema}' AND c.relkind = 'r' ORDER BY 4 DESC, 1";

/// Not the query: it may say what is nobody else's business.
const PINS: &str = "SELECT * FROM (
    SELECT coalesce(usename, '?') || coalesce(', ' || nullif(application_name, ''), '')
        || coalesce(', ' || host(client_addr), '') || ', pid ' || pid AS who, coalesce(state, backend_type) AS state,
        extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start))::float8 AS age,
        age(coalesce(backend_xmin, backend_xid))::bigint AS transactions
    FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND coalesce(backend_xmin, backend_xid) IS NOT NULL
        AND xact_start IS NOT NULL AND backend_type NOT LIKE 'autovacuum%'
    UNION ALL SELECT 'prepared transaction ' || gid, 'prepared',
        extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)::bigint FROM pg_prepared_xacts
    UNION ALL SELECT 'replication slot ' || slot_name, CASE WHEN active THEN 'active' ELSE 'not in use' END, 0::float8,
        age(coalesce(xmin, catalog_xmin))::bigint FROM pg_replication_slots WHERE coalesce(xmin, catalog_xmin) IS NOT NULL
    ) p ORDER BY age DESC";

const INDEXES: &str = "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{schema}' AND i.indisvalid";

impl PostgresStore {
    /// Looks at the database without opening the store, so that one that cannot be opened can be examined too.
    pub async fn examine(address: &str, options: &PostgresOptions) -> Result<Examination, StoreError> {
        check_schema(&options.schema)?;
        let pool = pool(address, options)?;
        let mut lent = pool.lend().await?;
        let client = lent.client()?;
        let name = &options.schema;
        let version = schema::version(client, name).await?;
        let rows = ask(
            client,
            name,
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int,
            (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        )
        .await?;
        let server = rows.first().ok_or_else(|| super::row::odd(&"no version"))?;
        let settings = ask(client, name, SETTINGS).await?;
        let is_there = version.is_some();
        let missing_indexes = if is_there { missing(client, name).await? } else { Vec::new() };
        let instances = if is_there { ask(client, name, INSTANCES).await? } else { Vec::new() };
        Ok(Examination {
            server_version: server.get(0),
            server_version_number: server.get(1),
            schema_version: version,
            schema_version_needed: schema::VERSION,
            functions_are_old: is_there && schema::has_old_functions(client, name).await?,
            settings: settings.iter().map(|row| (row.get(0), row.get(1))).collect(),
            now: Timestamp::from_millis(server.get(2)),
            tables: ask(client, name, TABLES).await?.iter().map(table).collect(),
            pins: ask(client, name, PINS).await?.iter().map(pin).collect(),
            missing_indexes,
            instances: instances.iter().map(instance).collect(),
        })
    }
}

async fn ask(client: &Client, schema: &str, text: &str) -> Result<Vec<Row>, StoreError> {
    let sql = text.replace("{schema}", schema).replace("sickbay.", &format!("{schema}."));
    client.query_typed(&sql, &[]).await.map_err(|error| translate(&error))
}

async fn missing(client: &Client, schema: &str) -> Result<Vec<String>, StoreError> {
    let rows = ask(client, schema, INDEXES).await?;
    let there: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    Ok(schema::indexes().filter(|index| !there.contains(index)).map(str::to_owned).collect())
}

fn table(row: &Row) -> TableState {
    let count = |at| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
    TableState { name: row.get(0), rows_live: count(1), rows_dead: count(2), bytes: count(3) }
}

fn pin(row: &Row) -> Pin {
    Pin {
        who: row.get(0),
        state: row.get(1),
        age: Duration::try_from_secs_f64(row.get::<_, f64>(2)).unwrap_or_default(),
        transactions: u64::try_from(row.get::<_, i64>(3)).unwrap_or(0),
    }
}
