//! What the database holds, record by record.

use std::collections::HashMap;

use bytes::Bytes;
use sickbay_core::decide::SetAside;
use sickbay_core::port::PageSize;
use sickbay_core::quarantine::Attempt;
use sickbay_core::record::{
    Body, CompletedRecord, Cursor, DeadRecord, Flow, GateRecord, KeyRecord, KeyState, OriginRecord,
    QueueRecord, Record, RecordKind, RecordPage, WaitingRecord,
};
use sickbay_core::signature::Signature;
use sickbay_core::stats::TypeGate;
use sickbay_core::{LeaseToken, QueueName, StoreError, Timestamp};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::PostgresAtRest;
use crate::door;
use crate::postgres::call::{Param, column};
use crate::postgres::pack::{Details, end_from};
use crate::postgres::row::{Facts, Places, id, message, odd};

/// What messages leave beside their rows.
#[derive(Default)]
struct Traces {
    histories: HashMap<i64, Vec<Attempt>>,
    originals: HashMap<i64, Bytes>,
}

impl PostgresAtRest {
    pub(super) async fn export_from(
        &self,
        client: &impl GenericClient,
        after: &Cursor,
        size: PageSize,
    ) -> Result<RecordPage, StoreError> {
        let rows_max = i64::from(size.rows_max);
        let bytes_max = i64::try_from(size.bytes_max).unwrap_or(i64::MAX);
        let text = after.text.as_str();
        let params: [Param<'_>; 4] = [
            (&after.number, Type::INT8),
            (&text, Type::TEXT),
            (&rows_max, Type::INT8),
            (&bytes_max, Type::INT8),
        ];
        let rows = self.ask(client, &statement(after.kind), &params).await?;
        let mut traces = Traces::default();
        if matches!(after.kind, RecordKind::Waiting | RecordKind::Dead | RecordKind::Completed) {
            traces = self.traces(client, &rows).await?;
        }
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            records.push(record(after.kind, row, &mut traces)?);
        }
        let next = match rows.last() {
            Some(row) => {
                let text = column::<Option<String>>(row, "after_text")?.unwrap_or_default();
                Some(Cursor { kind: after.kind, number: column(row, "after_number")?, text })
            }
            None => after.kind.next().map(Cursor::start),
        };
        Ok(RecordPage { records, next })
    }

    async fn traces(&self, client: &impl GenericClient, rows: &[Row]) -> Result<Traces, StoreError> {
        let mut ids: Vec<i64> = Vec::new();
        for row in rows {
            if column(row, "traces")? {
                ids.push(column(row, "id")?);
            }
        }
        let mut traces = Traces::default();
        if ids.is_empty() {
            return Ok(traces);
        }
        let params: [Param<'_>; 1] = [(&ids, Type::INT8_ARRAY)];
        for row in self.ask(client, ATTEMPTS, &params).await? {
            let details = Details::unpack(row.get(6));
            let attempt = Attempt {
                number: row.get::<_, i32>(1) as u32,
                started_at: Timestamp::from_millis(row.get(2)),
                ended_at: Timestamp::from_millis(row.get(3)),
                worker: row.get(4),
                end: end_from(row.get(5)),
                failure: details.failure,
                signature: details.signature,
                ran: details.ran,
                output: details.output,
            };
            traces.histories.entry(row.get(0)).or_default().push(attempt);
        }
        let originals = "SELECT message, payload FROM sickbay.original WHERE message = ANY ($1)";
        for row in self.ask(client, originals, &params).await? {
            traces.originals.insert(row.get(0), Bytes::copy_from_slice(row.get(1)));
        }
        Ok(traces)
    }
}

const ATTEMPTS: &str =
    "SELECT message, number, started_at, ended_at, worker, ended, details FROM sickbay.attempt
    WHERE message = ANY ($1) ORDER BY message, no";

/// How large a message is, with what it left elsewhere.
const BYTES: &str = "octet_length(m.payload) + CASE WHEN m.traces THEN
    coalesce((SELECT sum(100 + coalesce(octet_length(a.details), 0)) FROM sickbay.attempt a WHERE a.message = m.id), 0)
    + coalesce((SELECT octet_length(o.payload) FROM sickbay.original o WHERE o.message = m.id), 0) ELSE 0 END";

/// The messages of a page: no further one once they are large enough together.
fn page(found: &str) -> String {
    format!(
        "SELECT p.* FROM (SELECT f.*, sum(f.bytes) OVER (ORDER BY f.after_number) - f.bytes AS bytes_before FROM ({found}) f) p
         WHERE p.bytes_before < $4 ORDER BY p.after_number"
    )
}

/// The statement that reads records of a kind: after a number and a text, so many rows, so many bytes.
fn statement(kind: RecordKind) -> String {
    match kind {
        RecordKind::Queue => "SELECT q.no::bigint AS after_number, NULL AS after_text, q.name, q.policy, q.paused, t.*
            FROM sickbay.queue q, LATERAL (SELECT coalesce(sum(pushed), 0)::bigint AS pushed,
                coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(duplicates), 0)::bigint AS duplicates,
                coalesce(sum(failures), 0)::bigint AS failures, coalesce(sum(quarantined), 0)::bigint AS quarantined,
                coalesce(sum(replayed), 0)::bigint AS replayed, coalesce(sum(removed), 0)::bigint AS removed
                FROM sickbay.tally WHERE queue = q.no) t
            WHERE q.no > $1 AND $2 = '' AND $4 > 0 ORDER BY q.no LIMIT $3"
            .to_owned(),
        RecordKind::Gate => "SELECT g.queue::bigint AS after_number, g.type AS after_text, q.name, g.type, g.gate, g.probes_left
            FROM sickbay.type_gate g JOIN sickbay.queue q ON q.no = g.queue
            WHERE (g.queue, g.type) > ($1, $2) AND $4 > 0 ORDER BY g.queue, g.type LIMIT $3"
            .to_owned(),
        RecordKind::Waiting => page(&format!(
            "SELECT m.id AS after_number, NULL AS after_text, q.name, m.*, {BYTES} AS bytes FROM sickbay.waiting m
             JOIN sickbay.queue q ON q.no = m.queue WHERE m.id > $1 AND $2 = '' ORDER BY m.id LIMIT $3"
        )),
        RecordKind::Dead => page(&format!(
            "SELECT d.no AS after_number, NULL AS after_text, q.name, d.set_aside, d.kind, d.reason, d.signature, d.error,
             d.quarantined_at, d.discarded_at, d.discarded_why, h.since, m.*, {BYTES} AS bytes
             FROM sickbay.dead d JOIN sickbay.queue q ON q.no = d.queue
             LEFT JOIN sickbay.hold h ON h.queue = d.queue AND h.key = d.stream AND h.id = d.id,
             unnest(ARRAY[d.message]) m WHERE d.no > $1 AND $2 = '' ORDER BY d.no LIMIT $3"
        )),
        RecordKind::Completed => page(&format!(
            "SELECT c.id AS after_number, NULL AS after_text, q.name, c.expires_at, m.*, {BYTES} AS bytes
             FROM sickbay.completed c, unnest(ARRAY[c.message]) m JOIN sickbay.queue q ON q.no = m.queue
             WHERE c.id > $1 AND $2 = '' ORDER BY c.id LIMIT $3"
        )),
        RecordKind::Key => "SELECT k.queue::bigint AS after_number, k.key AS after_text, q.name, k.key, k.owner, k.state, k.done_until
            FROM sickbay.key k JOIN sickbay.queue q ON q.no = k.queue
            WHERE (k.queue, k.key) > ($1, $2) AND k.owner > 0 AND $4 > 0 ORDER BY k.queue, k.key LIMIT $3"
            .to_owned(),
        RecordKind::Origin => "SELECT o.queue::bigint AS after_number, encode(o.origin, 'hex') AS after_text, q.name, o.origin, o.id,
            o.adopted_at FROM sickbay.origin o JOIN sickbay.queue q ON q.no = o.queue
            WHERE (o.queue, o.origin) > ($1, decode($2, 'hex')) AND $4 > 0 ORDER BY o.queue, o.origin LIMIT $3"
            .to_owned(),
    }
}

fn record(kind: RecordKind, row: &Row, traces: &mut Traces) -> Result<Record, StoreError> {
    let queue: QueueName = column::<&str>(row, "name")?.parse().map_err(|error| odd(&error))?;
    Ok(match kind {
        RecordKind::Queue => Record::Queue(Box::new(queue_record(row, queue)?)),
        RecordKind::Gate => Record::Gate(gate_record(row, queue)?),
        RecordKind::Waiting => Record::Waiting(Box::new(WaitingRecord {
            body: body(row, &queue, traces)?,
            due_at: time(row, "due_at")?,
            suspect: column(row, "suspect")?,
            deferred: column(row, "deferred")?,
        })),
        RecordKind::Dead => Record::Dead(Box::new(dead_record(row, &queue, traces)?)),
        RecordKind::Completed => Record::Completed(Box::new(CompletedRecord {
            body: body(row, &queue, traces)?,
            expires_at: time(row, "expires_at")?,
        })),
        RecordKind::Key => Record::Key(key_record(row, queue)?),
        RecordKind::Origin => {
            let origin = column::<&[u8]>(row, "origin")?.to_vec();
            Record::Origin(OriginRecord {
                queue,
                origin: String::from_utf8(origin).map_err(|error| odd(&error))?,
                id: id(column(row, "id")?)?,
                adopted_at: time(row, "adopted_at")?,
            })
        }
    })
}

fn time(row: &Row, name: &str) -> Result<Timestamp, StoreError> {
    column(row, name).map(Timestamp::from_millis)
}

fn maybe_time(row: &Row, name: &str) -> Result<Option<Timestamp>, StoreError> {
    Ok(column::<Option<i64>>(row, name)?.map(Timestamp::from_millis))
}

fn queue_record(row: &Row, name: QueueName) -> Result<QueueRecord, StoreError> {
    Ok(QueueRecord {
        name,
        policy: serde_json::from_str(column(row, "policy")?).map_err(|error| odd(&error))?,
        paused: column(row, "paused")?,
        flow: Flow {
            pushed: column(row, "pushed")?,
            completed: column(row, "completed")?,
            duplicates: column(row, "duplicates")?,
            failures: column(row, "failures")?,
            quarantined: column(row, "quarantined")?,
            replayed: column(row, "replayed")?,
            removed: column(row, "removed")?,
        },
    })
}

fn gate_record(row: &Row, queue: QueueName) -> Result<GateRecord, StoreError> {
    let left: i64 = column(row, "probes_left")?;
    Ok(GateRecord {
        queue,
        message_type: column::<&str>(row, "type")?.parse().map_err(|error| odd(&error))?,
        gate: match column::<i16>(row, "gate")? {
            1 => TypeGate::Paused,
            2 => TypeGate::Tripped,
            _ => TypeGate::Probing { left: u32::try_from(left).unwrap_or(0) },
        },
    })
}

fn key_record(row: &Row, queue: QueueName) -> Result<KeyRecord, StoreError> {
    Ok(KeyRecord {
        queue,
        key: column::<&str>(row, "key")?.parse().map_err(|error| odd(&error))?,
        owner: id(column(row, "owner")?)?,
        state: match (column::<i16>(row, "state")?, maybe_time(row, "done_until")?) {
            (0, _) => KeyState::Live,
            (1, Some(until)) => KeyState::Done { until },
            _ => KeyState::Dead,
        },
    })
}

fn dead_record(row: &Row, queue: &QueueName, traces: &mut Traces) -> Result<DeadRecord, StoreError> {
    let body = body(row, queue, traces)?;
    let set_aside: &str = column(row, "set_aside")?;
    let token = column::<Option<i64>>(row, "last_epoch")?.zip(column::<Option<i64>>(row, "last_claim")?);
    let last_delivery = token.map(|(epoch, claim)| LeaseToken {
        epoch: epoch as u64,
        claim: claim as u64,
        message: body.message.id,
    });
    Ok(DeadRecord {
        order: column::<i64>(row, "after_number")? as u64,
        set_aside: SetAside::from_word(set_aside).ok_or_else(|| odd(&set_aside))?,
        kind: column::<&str>(row, "kind")?.parse().map_err(|error| odd(&error))?,
        reason: column::<&str>(row, "reason")?.parse().map_err(|error| odd(&error))?,
        signature: Signature::from_bits(column::<i64>(row, "signature")? as u64),
        error: column(row, "error")?,
        last_delivery,
        quarantined_at: time(row, "quarantined_at")?,
        discarded_at: maybe_time(row, "discarded_at")?,
        discarded_why: column(row, "discarded_why")?,
        holds_since: maybe_time(row, "since")?,
        body,
    })
}

fn body(row: &Row, queue: &QueueName, traces: &mut Traces) -> Result<Body, StoreError> {
    let message = message(row, queue, &Places::of(row)?)?;
    let facts = Facts::read(column::<Option<Vec<i32>>>(row, "facts")?.as_deref());
    let checksum: Option<i64> = column(row, "checksum")?;
    let number = message.id.number() as i64;
    Ok(Body {
        // One that was pushed by plain SQL has none.
        damaged: checksum.is_some_and(|checksum| checksum as u64 != door::checksum(&message.payload)),
        message,
        original_payload: traces.originals.remove(&number),
        counters: facts.counters,
        stages: facts.stages,
        cause: facts.cause,
        first_failed_at: maybe_time(row, "first_failed_at")?,
        history: traces.histories.remove(&number).unwrap_or_default(),
    })
}
