//! Who works on the store, and who only has it open (contract 41).

use std::sync::Arc;

use sickbay_core::port::ProcessId;
use sickbay_core::stats::ProcessView;
use sickbay_core::{QueueName, StoreError, Timestamp};
use tokio_postgres::types::Type;

use super::Inner;
use super::row::odd;
use crate::door::WORKS_ON;
use crate::present::Present;

/// One row for each queue that a process claimed from a short while ago, each batch that it holds, and each program
/// that has said a short while ago that it lives.
const PRESENT: &str =
    "SELECT p.process, p.worker, q.name, p.last, 0::bigint, NULL::text FROM sickbay.presence p
        JOIN sickbay.queue q ON q.no = p.queue WHERE p.last >= sickbay.time_now($1) - $2
    UNION ALL SELECT l.process, l.worker, q.name, l.claimed_at, cardinality(l.ids)::bigint, NULL
        FROM sickbay.lease l JOIN sickbay.queue q ON q.no = l.queue WHERE cardinality(l.ids) > 0
    UNION ALL SELECT i.process, NULL, NULL, i.beat_at, 0, i.name FROM sickbay.instance i
        WHERE i.beat_at >= sickbay.time_now($1) - $2";

impl Inner {
    pub(super) async fn processes(self: Arc<Self>) -> Result<Vec<ProcessView>, StoreError> {
        let (now, age) = (self.now(), WORKS_ON.as_millis() as i64);
        let mut present = Present::default();
        for row in self.query(PRESENT, &[(&now, Type::INT8), (&age, Type::INT8)]).await? {
            let process = ProcessId(row.get::<_, i64>(0) as u64);
            let at = Timestamp::from_millis(row.get(3));
            match (row.get::<_, Option<&str>>(1), row.get::<_, Option<&str>>(2)) {
                (Some(worker), Some(queue)) => {
                    let queue = QueueName::new(queue).map_err(|error| odd(&error))?;
                    present.works(process, worker, &queue, at, row.get::<_, i64>(4) as u64);
                }
                _ => present.seen(process, at).name = row.get(5),
            }
        }
        Ok(present.finish())
    }
}
