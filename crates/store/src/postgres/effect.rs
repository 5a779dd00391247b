//! The handler's own writes, in the transaction that acknowledges the message (A10).

use std::fmt::Display;

use futures::future::{BoxFuture, FutureExt};
use sickbay_core::verdict::Effect;
use tokio_postgres::Transaction;

type Writes = dyn for<'t> FnOnce(&'t Transaction<'t>) -> BoxFuture<'t, Result<(), String>> + Send;

/// Writes to tables of the application in the database of the store. They commit together with the
/// acknowledgement and the idempotency key, or not at all.
///
/// ```
/// use sickbay_store::postgres::PostgresEffect;
/// let effect = PostgresEffect::new(|transaction| {
///     Box::pin(async move {
///         transaction.execute("INSERT INTO ledger VALUES (7, 1250)", &[]).await.map(drop)
///     })
/// });
/// # drop(effect);
/// ```
pub struct PostgresEffect(Box<Writes>);

impl PostgresEffect {
    /// Wraps the writes. Leave `BEGIN` and `COMMIT` to the store.
    #[expect(clippy::new_ret_no_self, reason = "what a verdict carries is the opaque effect")]
    pub fn new<E: Display + 'static>(
        writes: impl for<'t> FnOnce(&'t Transaction<'t>) -> BoxFuture<'t, Result<(), E>> + Send + 'static,
    ) -> Effect {
        Effect::new(Self(Box::new(|transaction| {
            writes(transaction).map(|written| written.map_err(|error| error.to_string())).boxed()
        })))
    }

    /// Runs the writes; a panic in them is a failure like any other.
    pub(super) async fn run(self, transaction: &Transaction<'_>) -> Result<(), String> {
        let writes = async { (self.0)(transaction).await };
        std::panic::AssertUnwindSafe(writes).catch_unwind().await.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("the handler's writes panicked: {}", text.unwrap_or_default()))
        })
    }
}
