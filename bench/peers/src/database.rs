//! A fresh PostgreSQL database for each measurement, gone afterwards.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};

use crate::args::Args;

pub(crate) struct Database {
    admin: PgPool,
    name: String,
    pub(crate) pool: PgPool,
}

impl Database {
    pub(crate) async fn create(args: &Args, connections: u32) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let options: PgConnectOptions = args.pg.as_deref().context("--pg is missing")?.parse()?;
        let admin = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        let name = format!("peers_{}_{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
        let pool =
            PgPoolOptions::new().max_connections(connections).connect_with(options.database(&name)).await?;
        Ok(Self { admin, name, pool })
    }

    /// What autovacuum would get round to, so that the drain starts from fresh statistics and pays for
    /// no checkpoint of the enqueueing.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.pool.execute("VACUUM ANALYZE").await?;
        self.admin.execute("CHECKPOINT").await?;
        Ok(())
    }

    pub(crate) async fn remove(self) -> Result<()> {
        self.pool.close().await;
        self.admin.execute(AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.name))).await?;
        Ok(())
    }
}
