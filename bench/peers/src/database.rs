//! A fresh PostgreSQL database for each measurement, gone afterwards.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

use crate::args::Args;

pub(crate) struct Database {
    admin: PgPool,
    name: String,
    options: PgConnectOptions,
    pub(crate) pool: PgPool,
}

impl Database {
    pub(crate) async fn create(args: &Args, connections: u32) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let options: PgConnectOptions = args.pg.as_deref().context("--pg is missing")?.parse()?;
        let admin = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        let name = format!("peers_{}_{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
        let options = options.database(&name);
        let pool = PgPoolOptions::new().max_connections(connections).connect_with(options.clone()).await?;
        let durable: bool = sqlx::query_scalar(
            "SELECT bool_and(setting = 'on') FROM pg_settings
             WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')",
        )
        .fetch_one(&pool)
        .await?;
        ensure!(
            durable,
            "the server does not keep what it commits: fsync, synchronous_commit or full_page_writes is off"
        );
        Ok(Self { admin, name, options, pool })
    }

    /// The database's address, for peers that connect by themselves.
    pub(crate) fn url(&self) -> String {
        let mut url = self.options.to_url_lossy();
        url.set_query(None);
        url.to_string()
    }

    /// A pool of the sqlx before this one, which some peers are built on.
    pub(crate) async fn pool_0_8(&self, args: &Args, connections: u32) -> Result<sqlx_0_8::PgPool> {
        let options: sqlx_0_8::postgres::PgConnectOptions =
            args.pg.as_deref().context("--pg is missing")?.parse()?;
        let pool = sqlx_0_8::postgres::PgPoolOptions::new().max_connections(connections);
        Ok(pool.connect_with(options.database(&self.name)).await?)
    }

    /// What autovacuum would get round to, so that the drain starts from fresh statistics. There is no
    /// checkpoint: every page that is changed after one goes to the log as a whole.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.pool.execute("VACUUM ANALYZE").await?;
        Ok(())
    }

    /// Makes sure that the peer acknowledged everything.
    pub(crate) async fn expect(&self, condition: &'static str) -> Result<()> {
        let met: bool = sqlx::query_scalar(condition).fetch_one(&self.pool).await?;
        ensure!(met, "not everything is acknowledged: {condition}");
        Ok(())
    }

    pub(crate) async fn remove(self) -> Result<()> {
        self.pool.close().await;
        self.admin.execute(AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.name))).await?;
        Ok(())
    }
}
