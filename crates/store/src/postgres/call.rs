//! One call, one transaction: sent in one piece, and again if others were in its way.

use async_trait::async_trait;
use sickbay_core::StoreError;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, IsolationLevel, Row, Transaction};

use super::failure::{UNKNOWN_QUEUE, is_conflict, outcome_unknown, translate};
use super::{Inner, PostgresStore};
use crate::door;

/// A parameter and what it is to the database.
pub(super) type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// How often a transaction is tried that others were in the way of.
const TURNS_MAX: u32 = 10;

impl PostgresStore {
    /// Runs where the connections live, to the end even if the caller goes away.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.bell.check()?;
        let task = self.inner.tasks.spawn_on(work, &self.inner.runtime);
        task.await.unwrap_or_else(|_| Err(door::closed()))
    }

    /// The same for what may put messages before those that claims have reached.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let changed = async move {
            let done = work.await;
            inner.floors.forget();
            done
        };
        self.run(changed).await
    }
}

impl Inner {
    /// The time that statements are given: none but in tests, where the database's clock is not used.
    pub(super) fn now(&self) -> Option<i64> {
        self.options.clock.as_ref().map(|clock| clock.now().millis())
    }

    /// A statement with the name of the schema in it.
    pub(super) fn sql(&self, text: &str) -> String {
        text.replace("sickbay.", &format!("{}.", self.options.schema))
    }

    /// Runs one statement as one transaction.
    pub(super) async fn query(&self, text: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let sql = self.sql(text);
        let mut turn = 0;
        loop {
            turn += 1;
            let mut lent = self.pool.lend().await?;
            let sent = self.send(lent.client()?, &sql, params);
            let Ok(answer) = timeout(self.options.call_time, sent).await else {
                lent.give_up();
                return Err(outcome_unknown("it took too long"));
            };
            match answer {
                Ok(rows) => return Ok(rows),
                Err(error) if is_conflict(&error) && turn < TURNS_MAX => {}
                Err(error) => {
                    drop(lent);
                    return Err(self.explain(&error).await);
                }
            }
        }
    }

    async fn send(&self, client: &Client, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        if self.read_committed {
            return client.query_typed(sql, params).await;
        }
        // All three are on their way before the first is answered.
        let begin = client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
        let (begun, rows, ended) =
            futures::join!(begin, client.query_typed(sql, params), client.batch_execute("COMMIT"));
        begun?;
        let rows = rows?;
        ended?;
        Ok(rows)
    }

    /// What an error means; the name of an unknown queue is compared with those that there are.
    pub(super) async fn explain(&self, error: &Error) -> StoreError {
        let unknown = error.as_db_error().filter(|database| database.code().code() == UNKNOWN_QUEUE);
        let Some(name) = unknown.and_then(|database| database.detail()) else { return translate(error) };
        let Ok(queue) = sickbay_core::QueueName::new(name) else { return translate(error) };
        match Box::pin(self.query("SELECT name FROM sickbay.queue ORDER BY name", &[])).await {
            Ok(rows) => door::unknown_queue(&queue, rows.iter().map(|row| row.get::<_, &str>(0))),
            Err(other) => other,
        }
    }

    /// Runs several statements as one transaction; again from the beginning if others were in the way.
    pub(super) async fn transact<W: Work>(&self, mut work: W) -> Result<W::Done, StoreError> {
        let mut turn = 0;
        loop {
            turn += 1;
            let mut lent = self.pool.lend().await?;
            let once = async {
                let builder = lent.client()?.build_transaction();
                let builder = builder.isolation_level(IsolationLevel::ReadCommitted).read_only(false);
                let transaction = builder.start().await?;
                // If this machine vanishes now, the database does not keep our locks for hours.
                let limit = self.options.call_time.as_millis();
                let limit = format!("SET LOCAL idle_in_transaction_session_timeout = {limit}");
                let (limited, done) =
                    futures::join!(transaction.batch_execute(&limit), work.run(self, &transaction));
                limited?;
                let done = done?;
                transaction.commit().await?;
                Ok(done)
            };
            let Ok(answer) = timeout(self.options.call_time, once).await else {
                lent.give_up();
                return Err(outcome_unknown("it took too long"));
            };
            match answer {
                Ok(done) => return Ok(done),
                Err(Failed::Database(error)) if is_conflict(&error) && turn < TURNS_MAX => {}
                Err(Failed::Database(error)) => {
                    drop(lent);
                    return Err(self.explain(&error).await);
                }
                Err(Failed::Refused(error)) => return Err(error),
            }
        }
    }
}

/// The statements of one transaction.
#[async_trait]
pub(super) trait Work: Send {
    /// What comes of it.
    type Done: Send;

    /// Runs them. A second time if the first was rolled back.
    async fn run(&mut self, inner: &Inner, transaction: &Transaction<'_>) -> Result<Self::Done, Failed>;
}

/// Why a transaction ended.
pub(super) enum Failed {
    Database(Error),
    Refused(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// A column by its name or place; an error if it has another type than we asked for.
pub(super) fn column<'r, T: tokio_postgres::types::FromSql<'r>>(
    row: &'r Row,
    at: impl tokio_postgres::row::RowIndex + std::fmt::Display,
) -> Result<T, StoreError> {
    row.try_get(at).map_err(|error| translate(&error))
}
