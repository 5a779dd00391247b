//! The quarantine as a list: newest first, filtered, in pages.

use std::fmt::Write as _;

use sickbay_core::decide::SetAside;
use sickbay_core::quarantine::{DeadLetter, Page, PageRequest, QuarantineFilter};
use sickbay_core::signature::Signature;
use sickbay_core::{QueueName, StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::Inner;
use super::call::{Param, column};
use super::row::{Facts, id, name, odd};
use crate::door;

/// The columns of a dead letter in a list. Of its error only what a row shows is fetched.
const COLUMNS: &str = "d.no, d.id, q.name AS queue, d.type, d.stream, d.set_aside, d.kind, d.reason, left(d.error, 2000) AS error, \
    d.signature, (d.message).facts, (d.message).pushed_at, (d.message).first_failed_at, d.quarantined_at, \
    d.discarded_at, d.payload_bytes";

const ALL: [SetAside; 7] = [
    SetAside::PoisonMessage,
    SetAside::NonRetryableError,
    SetAside::MaxDeliveryCountExceeded,
    SetAside::CrashBudgetSpent,
    SetAside::DeadlinePassed,
    SetAside::Corrupt,
    SetAside::Operator,
];

/// The conditions of a filter, with their parameters.
struct Conditions {
    sql: String,
    params: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Conditions {
    fn new(filter: &QuarantineFilter) -> Self {
        let discarded =
            if filter.discarded { "d.discarded_at IS NOT NULL" } else { "d.discarded_at IS NULL" };
        let mut conditions = Self { sql: discarded.to_owned(), params: Vec::new() };
        let text = |value: Option<&str>| value.map(str::to_owned);
        let texts = [
            (
                "d.queue = (SELECT no FROM sickbay.queue WHERE name = $)",
                text(filter.queue.as_ref().map(QueueName::as_str)),
            ),
            ("d.type = $", text(filter.message_type.as_ref().map(sickbay_core::MessageType::as_str))),
            ("d.stream = $", text(filter.stream.as_ref().map(sickbay_core::StreamKey::as_str))),
            ("d.reason = $", text(filter.reason.map(sickbay_core::Reason::as_str))),
            ("d.kind = $", text(filter.kind.map(sickbay_core::Kind::as_str))),
            (
                "position($ in coalesce(d.error_lower, d.error)) > 0",
                filter.error_contains.as_ref().map(|text| text.to_lowercase()),
            ),
        ];
        for (sql, value) in texts {
            // No stored text has a NUL in it, and none can be sent.
            match value {
                Some(value) if value.contains('\0') => conditions.sql.push_str(" AND false"),
                Some(value) => conditions.add(sql, value, Type::TEXT),
                None => {}
            }
        }
        let numbers = [
            ("d.signature = $", filter.signature.map(|signature| signature.to_bits() as i64)),
            ("d.quarantined_at >= $", filter.since.map(Timestamp::millis)),
            ("d.quarantined_at < $", filter.until.map(Timestamp::millis)),
        ];
        for (sql, value) in numbers {
            if let Some(value) = value {
                conditions.add(sql, value, Type::INT8);
            }
        }
        conditions
    }

    fn add(&mut self, sql: &str, value: impl ToSql + Sync + Send + 'static, kind: Type) {
        self.params.push((Box::new(value), kind));
        let numbered = sql.replace('$', &format!("${}", self.params.len()));
        let _ = write!(self.sql, " AND {numbered}");
    }

    fn params(&self) -> Vec<Param<'_>> {
        self.params.iter().map(|(value, kind)| -> Param<'_> { (value.as_ref(), kind.clone()) }).collect()
    }
}

impl Inner {
    pub(super) async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        let mut conditions = Conditions::new(filter);
        if let Some(after) = page.after {
            conditions.add("d.no < $", i64::try_from(after).unwrap_or(i64::MAX), Type::INT8);
        }
        let limit = i64::from(page.rows_max) + 1;
        let sql = format!(
            "SELECT {COLUMNS} FROM sickbay.dead d JOIN sickbay.queue q ON q.no = d.queue WHERE {} ORDER BY d.no DESC LIMIT {limit}",
            conditions.sql
        );
        let found = self.query(&sql, &conditions.params()).await?;
        let more = found.len() > page.rows_max as usize;
        let shown = &found[..found.len().min(page.rows_max as usize)];
        let rows = shown.iter().map(dead_letter).collect::<Result<Vec<_>, _>>()?;
        let next = shown.last().filter(|_| more).map(|row| column::<i64>(row, "no")).transpose()?;
        Ok(Page { rows, next: next.map(|no| no as u64) })
    }

    pub(super) async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        let conditions = Conditions::new(filter);
        let sql = format!("SELECT count(*) FROM sickbay.dead d WHERE {}", conditions.sql);
        let rows = self.query(&sql, &conditions.params()).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }
}

/// A row with the columns of a dead letter.
pub(super) fn dead_letter(row: &Row) -> Result<DeadLetter, StoreError> {
    let set_aside: &str = column(row, "set_aside")?;
    let set_aside =
        ALL.into_iter().find(|known| known.as_str() == set_aside).ok_or_else(|| odd(&set_aside))?;
    let quarantined_at = Timestamp::from_millis(column(row, "quarantined_at")?);
    let first_failed_at: Option<i64> = column(row, "first_failed_at")?;
    Ok(DeadLetter {
        id: id(column(row, "id")?)?,
        queue: column::<&str>(row, "queue")?.parse().map_err(|error| odd(&error))?,
        message_type: name(column(row, "type")?)?,
        stream: name(column(row, "stream")?)?,
        set_aside,
        kind: column::<&str>(row, "kind")?.parse().map_err(|error| odd(&error))?,
        reason: column::<&str>(row, "reason")?.parse().map_err(|error| odd(&error))?,
        error: door::first_line(column(row, "error")?),
        signature: Signature::from_bits(column::<i64>(row, "signature")? as u64),
        counters: Facts::read(column::<Option<Vec<i32>>>(row, "facts")?.as_deref()).counters,
        pushed_at: Timestamp::from_millis(column(row, "pushed_at")?),
        first_failed_at: first_failed_at.map_or(quarantined_at, Timestamp::from_millis),
        last_failed_at: quarantined_at,
        quarantined_at,
        discarded_at: column::<Option<i64>>(row, "discarded_at")?.map(Timestamp::from_millis),
        payload_bytes: column::<i64>(row, "payload_bytes")? as u64,
    })
}
