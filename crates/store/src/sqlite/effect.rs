//! The handler's own writes, in the transaction that acknowledges the message (A10).

use rusqlite::Connection;
use sickbay_core::verdict::Effect;

type Writes = dyn FnOnce(&Connection) -> Result<(), String> + Send;

/// Writes to tables of the application in the store's own file. They commit together with the
/// acknowledgement and the idempotency key, or not at all.
///
/// ```
/// use sickbay_store::sqlite::SqliteEffect;
/// let effect = SqliteEffect::new(|connection| {
///     connection.execute("INSERT INTO ledger VALUES (?1, ?2)", (7, 1250)).map(drop)
/// });
/// # drop(effect);
/// ```
pub struct SqliteEffect(Box<Writes>);

impl SqliteEffect {
    /// Wraps the writes. They run on the store's writer: keep them short, and leave `BEGIN` and
    /// `COMMIT` to the store.
    #[expect(clippy::new_ret_no_self, reason = "what a verdict carries is the opaque effect")]
    pub fn new<E: std::fmt::Display>(
        writes: impl FnOnce(&Connection) -> Result<(), E> + Send + 'static,
    ) -> Effect {
        Effect::new(Self(Box::new(|connection| writes(connection).map_err(|error| error.to_string()))))
    }

    /// Runs the writes; a panic in them is a failure like any other.
    pub(super) fn run(self, connection: &Connection) -> Result<(), String> {
        let run = std::panic::AssertUnwindSafe(|| (self.0)(connection));
        std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("the handler's writes panicked: {}", text.unwrap_or_default()))
        })
    }
}
