//! Retention: what was discarded longer ago than its queue keeps it is removed for good. What waits in quarantine
//! is nobody's to remove but a person's.

use std::time::Duration;

use sickbay::Sickbay;
use sickbay_cli::config::{Config, show_duration};

use crate::output::{Output, Result, plural};

/// How often it is looked.
pub(super) const EVERY: Duration = Duration::from_secs(60);
/// How many go in one transaction, so that nobody waits for it.
const ROWS_MAX: u32 = 500;

/// Removes what is too old, a part at a time, and says so.
pub(super) async fn enforce(bay: &Sickbay, config: &Config, out: &Output) -> Result<()> {
    for (name, queue) in &config.queues {
        let Some(age) = queue.retention else { continue };
        let mut removed = 0;
        loop {
            let count = bay.store().purge(name, age, ROWS_MAX).await?;
            removed += count;
            if count < u64::from(ROWS_MAX) {
                break;
            }
            tokio::task::yield_now().await;
        }
        if removed > 0 {
            let what = plural(removed, "discarded message");
            out.say(&format!(
                "{name}: {what} removed for good, discarded {} ago or longer",
                show_duration(age)
            ));
        }
    }
    Ok(())
}
