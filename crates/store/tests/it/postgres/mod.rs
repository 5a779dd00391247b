//! The PostgreSQL store keeps every promise. `cargo xtask test` starts the server and says where it is.

mod at_once;
mod copy;
mod faults;
mod floor;
mod many;
mod model;
mod outbox;
mod pooler;
mod server_crashes;
mod settings;
mod tls;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_store::{PostgresEffect, PostgresOptions, PostgresStore};
use sickbay_testkit::{Fixture, ManualClock};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;
use xxhash_rust::xxh3::xxh3_64;

/// Where connections live: the runtimes of tests come and go.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// The address of the server.
pub(crate) fn address() -> String {
    std::env::var("SICKBAY_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("SICKBAY_TEST_POSTGRES does not say where PostgreSQL is; `cargo xtask test` starts one and says it")
    })
}

/// Does something where connections live, from wherever it is called.
pub(crate) fn block<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| RUNTIME.block_on(work)).join()).unwrap_or_else(|panic| {
        std::panic::resume_unwind(panic);
    })
}

/// A connection behind the store's back.
pub(crate) async fn connect(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    RUNTIME.spawn(connection);
    client
}

/// Where schemas are listed that an earlier test has no use for any more: to make one takes longer than most
/// tests, and each test may be a program of its own.
const FREE: &str = "CREATE TABLE IF NOT EXISTS public.sickbay_free_schema (name text PRIMARY KEY)";
const TAKE: &str = "DELETE FROM public.sickbay_free_schema WHERE name = (
    SELECT name FROM public.sickbay_free_schema WHERE name LIKE $1 LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING name";

/// Everything that a test can leave in a schema.
const EMPTY: &str = "DELETE FROM sickbay.queue; DELETE FROM sickbay.tally; DELETE FROM sickbay.type_gate;
    DELETE FROM sickbay.waiting; DELETE FROM sickbay.lease; DELETE FROM sickbay.stream; DELETE FROM sickbay.hold;
    DELETE FROM sickbay.key; DELETE FROM sickbay.origin; DELETE FROM sickbay.dead; DELETE FROM sickbay.attempt;
    DELETE FROM sickbay.original; DELETE FROM sickbay.completed; DELETE FROM sickbay.presence;
    DELETE FROM sickbay.instance; DELETE FROM sickbay.waiter; DELETE FROM sickbay.copy; DROP TABLE IF EXISTS sickbay.handled;
    UPDATE sickbay.meta SET value = 1 WHERE name = 'epoch';
    SELECT setval('sickbay.message_number', 1, false), setval('sickbay.claim_number', 1, false),
        setval('sickbay.dead_number', 1, false)";

/// A schema of a test's own, as if it were new.
pub(crate) struct Schema(pub(crate) String);

impl Schema {
    pub(crate) async fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Of the same version, down to the last letter of its functions.
        let statements = PostgresStore::migration_sql(&address(), &PostgresOptions::default()).await.unwrap();
        let version = format!("test_{:08x}_", xxh3_64(statements.as_bytes()) as u32);
        let client = connect(&address()).await;
        // Two tests may try to make the table at the same time.
        drop(client.batch_execute(&format!("SET client_min_messages = error; {FREE}")).await);
        if let Some(row) = client.query_opt(TAKE, &[&format!("{version}%")]).await.unwrap() {
            return Self(row.get(0));
        }
        let schema =
            Self(format!("{version}{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        PostgresStore::migrate(&address(), &schema.options()).await.unwrap();
        schema
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::default().schema(&self.0)
    }

    /// A statement with the name of this schema in it.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace("sickbay.", &format!("{}.", self.0))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        block(async {
            let client = connect(&address()).await;
            let quietly = "SET lock_timeout = '5s'; SET client_min_messages = error;";
            if client.batch_execute(&format!("{quietly} {}", self.sql(EMPTY))).await.is_ok() {
                let give_back = "INSERT INTO public.sickbay_free_schema VALUES ($1)";
                drop(client.execute(give_back, &[&self.0]).await);
            }
        });
    }
}

/// A store in a schema of its own.
pub(crate) struct PostgresFixture {
    clock: ManualClock,
    store: PostgresStore,
    schema: Schema,
    address: String,
}

impl PostgresFixture {
    pub(crate) fn new() -> Self {
        Self::at(address())
    }

    /// The store reaches its server by this address.
    pub(crate) fn at(address: String) -> Self {
        let clock = ManualClock::new();
        block(async {
            let schema = Schema::create().await;
            let store = open(&address, &schema, &clock).await;
            Self { clock, store, schema, address }
        })
    }

    fn execute(&self, sql: &str) -> u64 {
        block(async { connect(&address()).await.execute(&self.schema.sql(sql), &[]).await.unwrap() })
    }
}

async fn open(address: &str, schema: &Schema, clock: &ManualClock) -> PostgresStore {
    let options = schema
        .options()
        .clock(Arc::new(clock.clone()))
        .name("fixture")
        .sole_owner(true)
        .connections(2)
        .listen(false);
    PostgresStore::connect(address, options).await.unwrap()
}

impl Fixture for PostgresFixture {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn process(&self) -> ProcessId {
        self.store.process()
    }

    fn crash(&mut self) {
        self.store.crash();
        self.store = block(open(&self.address, &self.schema, &self.clock));
    }

    fn reopen(&mut self) {
        block(self.store.close()).unwrap();
        self.store = block(open(&self.address, &self.schema, &self.clock));
    }

    fn effect(&self, key: &str) -> Effect {
        let (key, schema) = (key.to_owned(), self.schema.0.clone());
        PostgresEffect::new(move |transaction| {
            Box::pin(async move {
                let create = format!(
                    "CREATE TABLE IF NOT EXISTS {schema}.handled (no bigint GENERATED ALWAYS AS IDENTITY, key text)"
                );
                transaction.batch_execute(&create).await?;
                let insert = format!("INSERT INTO {schema}.handled (key) VALUES ($1)");
                transaction.execute(&insert, &[&key]).await?;
                // Fails after it has written, so that the write must be undone.
                if key == "fail" {
                    transaction.batch_execute("SELECT 1 / 0").await?;
                }
                Ok::<_, tokio_postgres::Error>(())
            })
        })
    }

    fn effects(&self) -> Vec<String> {
        block(async {
            let sql = format!("SELECT key FROM {}.handled ORDER BY no", self.schema.0);
            let rows = connect(&address()).await.query(&sql, &[]).await.unwrap_or_default();
            rows.iter().map(|row| row.get(0)).collect()
        })
    }

    fn damage(&self, id: MessageId) {
        let change = |table: &str, payload: &str, old: &str| {
            self.execute(&format!(
                "UPDATE sickbay.{table} SET {payload} = {old} || 'x' WHERE id = {}",
                id.number()
            ))
        };
        let changed =
            change("waiting", "payload", "payload") + change("dead", "message.payload", "(message).payload");
        assert_eq!(changed, 1);
    }
}

sickbay_testkit::conformance!(PostgresFixture::new());
