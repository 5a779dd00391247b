//! A store in PostgreSQL.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_store::{PostgresEffect, PostgresOptions, PostgresStore};
use sickbay_testkit::{Fixture, ManualClock};
use tokio::runtime::{EnterGuard, Runtime};
use tokio_postgres::NoTls;

/// Where connections live: the runtimes of workers come and go.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

fn runtime() -> &'static Runtime {
    RUNTIME.get_or_init(|| {
        let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        built.unwrap_or_else(|error| panic!("a runtime for connections: {error}"))
    })
}

/// Enters the place where connections live, if there are any.
pub(crate) fn enter() -> Option<EnterGuard<'static>> {
    RUNTIME.get().map(Runtime::enter)
}

/// Does something where connections live, from wherever it is called.
fn block<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn address() -> String {
    std::env::var("SICKBAY_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("SICKBAY_TEST_POSTGRES does not say where PostgreSQL is; `cargo xtask sim --store postgres` starts one")
    })
}

fn good<T, E: std::fmt::Display>(what: &str, answer: Result<T, E>) -> T {
    answer.unwrap_or_else(|error| panic!("{what}: {error}"))
}

pub(super) struct Postgres {
    clock: ManualClock,
    schema: String,
    store: PostgresStore,
    /// A connection behind the store's back.
    beside: tokio_postgres::Client,
}

async fn open(schema: &str, clock: &ManualClock) -> PostgresStore {
    let options = PostgresOptions::default().schema(schema).clock(Arc::new(clock.clone()));
    let options = options.name("simulation").sole_owner(true).connections(2).listen(false);
    good("the store cannot be opened", PostgresStore::connect(&address(), options).await)
}

impl Postgres {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("sim_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let clock = ManualClock::new();
        block(async {
            let migrated =
                PostgresStore::migrate(&address(), &PostgresOptions::default().schema(&schema)).await;
            good("the schema cannot be made", migrated);
            let (beside, connection) =
                good("the server cannot be reached", tokio_postgres::connect(&address(), NoTls).await);
            runtime().spawn(connection);
            let made =
                format!("CREATE TABLE {schema}.handled (no bigint GENERATED ALWAYS AS IDENTITY, key text)");
            good("a table for effects", beside.batch_execute(&made).await);
            let store = open(&schema, &clock).await;
            Self { clock, schema, store, beside }
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        block(async {
            drop(self.store.close().await);
            let gone = format!("SET client_min_messages = error; DROP SCHEMA {} CASCADE", self.schema);
            drop(self.beside.batch_execute(&gone).await);
        });
    }
}

impl Fixture for Postgres {
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
        self.store = block(open(&self.schema, &self.clock));
    }

    fn reopen(&mut self) {
        good("the store cannot be closed", block(self.store.close()));
        self.store = block(open(&self.schema, &self.clock));
    }

    fn effect(&self, key: &str) -> Effect {
        let (key, schema) = (key.to_owned(), self.schema.clone());
        PostgresEffect::new(move |transaction| {
            Box::pin(async move {
                transaction
                    .execute(&format!("INSERT INTO {schema}.handled (key) VALUES ($1)"), &[&key])
                    .await?;
                // Fails after it has written, so that the write must be undone.
                if key == "fail" {
                    transaction.batch_execute("SELECT 1 / 0").await?;
                }
                Ok::<_, tokio_postgres::Error>(())
            })
        })
    }

    fn effects(&self) -> Vec<String> {
        let sql = format!("SELECT key FROM {}.handled ORDER BY no", self.schema);
        let rows = good("effects", block(self.beside.query(&sql, &[])));
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn damage(&self, id: MessageId) {
        let (schema, id) = (&self.schema, id.number());
        let sql = format!(
            "WITH w AS (UPDATE {schema}.waiting SET payload = payload || 'x' WHERE id = {id} RETURNING 1),
                  d AS (UPDATE {schema}.dead SET message.payload = (message).payload || 'x' WHERE id = {id} RETURNING 1)
             SELECT (SELECT count(*) FROM w) + (SELECT count(*) FROM d)"
        );
        let row = good("damage", block(self.beside.query_one(&sql, &[])));
        assert_eq!(row.get::<_, i64>(0), 1, "one payload is changed");
    }
}
