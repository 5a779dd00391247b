//! Lists of dead letters, newest first.

use rusqlite::{Connection, Row, ToSql};
use sickbay_core::decide::SetAside;
use sickbay_core::quarantine::{DeadLetter, Page, PageRequest, QuarantineFilter};
use sickbay_core::signature::Signature;
use sickbay_core::{ErrorKind, MessageType, QueueName, StoreError, StreamKey, Timestamp};

use super::failure::Translate;
use super::pack::unpack_facts;
use super::place::Place;
use super::state::Leased;
use crate::door;

const COLUMNS: &str =
    "d.place, q.name, t.name, d.stream_key, d.set_aside, d.kind, d.reason, d.error, d.signature,
    d.deliveries, d.failures, d.facts, d.pushed_at, d.quarantined_at, d.discarded_at, d.payload_bytes, d.no";
const TABLES: &str = "dead d JOIN queue q ON q.no = d.queue LEFT JOIN type t ON t.no = d.type";

/// What a filter means in SQL.
struct Condition {
    sql: String,
    values: Vec<Box<dyn ToSql>>,
}

impl Condition {
    fn new(filter: &QuarantineFilter) -> Self {
        let discarded =
            if filter.discarded { "d.discarded_at IS NOT NULL" } else { "d.discarded_at IS NULL" };
        let mut condition = Self { sql: discarded.to_owned(), values: Vec::new() };
        if let Some(queue) = &filter.queue {
            condition.and("d.queue = (SELECT no FROM queue WHERE name = ?)", queue.as_str().to_owned());
        }
        if let Some(message_type) = &filter.message_type {
            condition.and("d.type = (SELECT no FROM type WHERE name = ?)", message_type.as_str().to_owned());
        }
        if let Some(reason) = filter.reason {
            condition.and("d.reason = ?", reason.as_str());
        }
        if let Some(kind) = filter.kind {
            condition.and("d.kind = ?", kind.as_str());
        }
        if let Some(signature) = filter.signature {
            condition.and("d.signature = ?", signature.to_bits() as i64);
        }
        if let Some(stream) = &filter.stream {
            condition.and("d.stream_key = ?", stream.as_str().to_owned());
        }
        if let Some(since) = filter.since {
            condition.and("d.quarantined_at >= ?", since.millis());
        }
        if let Some(until) = filter.until {
            condition.and("d.quarantined_at < ?", until.millis());
        }
        condition
    }

    fn and(&mut self, sql: &str, value: impl ToSql + 'static) {
        self.sql.push_str(" AND ");
        self.sql.push_str(sql);
        self.values.push(Box::new(value));
    }

    fn values(&self) -> impl rusqlite::Params {
        rusqlite::params_from_iter(self.values.iter())
    }
}

/// One page. An error text is looked for row by row; everything else by index.
pub(super) fn page(
    connection: &Connection,
    filter: &QuarantineFilter,
    page: PageRequest,
) -> Result<Page<DeadLetter>, StoreError> {
    let mut condition = Condition::new(filter);
    if let Some(after) = page.after {
        condition.and("d.no < ?", after as i64);
    }
    let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE {} ORDER BY d.no DESC", condition.sql);
    let mut statement = connection.prepare_cached(&sql).translated()?;
    let mut rows = statement.query(condition.values()).translated()?;
    let wanted = filter.error_contains.as_ref().map(|text| text.to_lowercase());
    let mut found: Vec<(u64, DeadLetter)> = Vec::new();
    while let Some(row) = rows.next().translated()? {
        if !contains(row, wanted.as_deref())? {
            continue;
        }
        if found.len() == page.rows_max as usize {
            let next = found.last().map(|(no, _)| *no);
            return Ok(Page { rows: found.into_iter().map(|(_, row)| row).collect(), next });
        }
        found.push((row.get::<_, i64>(16).translated()? as u64, read(row)?));
    }
    Ok(Page { rows: found.into_iter().map(|(_, row)| row).collect(), next: None })
}

/// What the queues' own figures answer without a look at the dead letters: all of a queue, or of all queues.
fn tallied(connection: &Connection, filter: &QuarantineFilter) -> Result<Option<u64>, StoreError> {
    let QuarantineFilter { queue, discarded, .. } = filter;
    if *filter != (QuarantineFilter { queue: queue.clone(), discarded: *discarded, ..Default::default() }) {
        return Ok(None);
    }
    let column = if *discarded { "discarded" } else { "dead" };
    let sql = format!(
        "SELECT coalesce(sum(t.{column}), 0) FROM tally t JOIN queue q ON q.no = t.queue WHERE q.name = ?1 OR ?1 IS NULL"
    );
    let name = queue.as_ref().map(QueueName::as_str);
    let mut statement = connection.prepare_cached(&sql).translated()?;
    let count: i64 = statement.query_row([name], |row| row.get(0)).translated()?;
    Ok(Some(count as u64))
}

/// How many match.
pub(super) fn count(connection: &Connection, filter: &QuarantineFilter) -> Result<u64, StoreError> {
    if let Some(known) = tallied(connection, filter)? {
        return Ok(known);
    }
    let condition = Condition::new(filter);
    let Some(wanted) = filter.error_contains.as_ref().map(|text| text.to_lowercase()) else {
        let sql = format!("SELECT count(*) FROM dead d WHERE {}", condition.sql);
        let mut statement = connection.prepare_cached(&sql).translated()?;
        return statement.query_row(condition.values(), |row| row.get(0)).translated();
    };
    let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE {}", condition.sql);
    let mut statement = connection.prepare_cached(&sql).translated()?;
    let mut rows = statement.query(condition.values()).translated()?;
    let mut count = 0;
    while let Some(row) = rows.next().translated()? {
        count += u64::from(contains(row, Some(&wanted))?);
    }
    Ok(count)
}

fn contains(row: &Row<'_>, wanted: Option<&str>) -> Result<bool, StoreError> {
    let Some(wanted) = wanted else { return Ok(true) };
    Ok(row.get::<_, String>(7).translated()?.to_lowercase().contains(wanted))
}

/// The row of one dead letter.
pub(super) fn read_one(connection: &Connection, place: Place) -> Result<DeadLetter, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE d.place = ?1");
    let mut statement = connection.prepare_cached(&sql).translated()?;
    let mut rows = statement.query([place.0]).translated()?;
    match rows.next().translated()? {
        Some(row) => read(row),
        None => Err(damaged("a dead letter is gone")),
    }
}

fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, "SB0012", format!("the store's quarantine cannot be read: {what}"))
}

fn read(row: &Row<'_>) -> Result<DeadLetter, StoreError> {
    let text = |at: usize| row.get::<_, String>(at).translated();
    let maybe = |at: usize| row.get::<_, Option<String>>(at).translated();
    let time = |at: usize| row.get::<_, i64>(at).map(Timestamp::from_millis).translated();
    let set_aside = text(4)?;
    let set_asides = [
        SetAside::PoisonMessage,
        SetAside::NonRetryableError,
        SetAside::MaxDeliveryCountExceeded,
        SetAside::CrashBudgetSpent,
        SetAside::DeadlinePassed,
        SetAside::Corrupt,
        SetAside::Operator,
    ];
    let place = Place(row.get(0).translated()?);
    let mut known = Leased::fresh(place, 0, None);
    unpack_facts(row.get_ref(11).translated()?.as_blob().map_err(damaged)?, &mut known);
    known.counters.deliveries = row.get(9).translated()?;
    known.counters.failures = row.get(10).translated()?;
    let quarantined_at = time(13)?;
    Ok(DeadLetter {
        id: place.id().ok_or_else(|| damaged("a number is out of range"))?,
        queue: QueueName::new(text(1)?).map_err(damaged)?,
        message_type: maybe(2)?.and_then(|name| MessageType::new(name).ok()),
        stream: maybe(3)?.and_then(|key| StreamKey::new(key).ok()),
        set_aside: set_asides
            .into_iter()
            .find(|known| known.as_str() == set_aside)
            .unwrap_or(SetAside::Operator),
        kind: text(5)?.parse().map_err(damaged)?,
        reason: text(6)?.parse().map_err(damaged)?,
        error: door::first_line(&text(7)?),
        signature: Signature::from_bits(row.get::<_, i64>(8).translated()? as u64),
        counters: known.counters,
        pushed_at: time(12)?,
        first_failed_at: known.first_failed_at.map_or(quarantined_at, Timestamp::from_millis),
        last_failed_at: quarantined_at,
        quarantined_at,
        discarded_at: row.get::<_, Option<i64>>(14).translated()?.map(Timestamp::from_millis),
        payload_bytes: row.get::<_, i64>(15).translated()? as u64,
    })
}
