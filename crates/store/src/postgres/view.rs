//! All that is known of one message (B1).

use bytes::Bytes;
use sickbay_core::id::IdPrefix;
use sickbay_core::message::Status;
use sickbay_core::quarantine::{Attempt, MessageView};
use sickbay_core::{LeaseToken, MessageId, QueueName, StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::call::{Param, column};
use super::list::dead_letter;
use super::pack::{Details, end_from};
use super::row::{Facts, Places, message, odd};
use crate::door;

const LOOK: &str = "SELECT l.place, l.queue, l.worker, l.epoch, l.claim, (l.m).*, l.set_aside, l.kind, l.reason, l.signature, \
    l.error, l.quarantined_at, l.discarded_at, octet_length((l.m).payload)::bigint AS payload_bytes, \
    sickbay.time_now($1) AS now FROM (SELECT place, queue, worker, epoch, claim, m, set_aside, kind, reason, signature, \
    error, quarantined_at, discarded_at FROM sickbay.look($1, $2)) l";

const ATTEMPTS: &str = "SELECT number, started_at, ended_at, worker, ended, details FROM sickbay.attempt
    WHERE message = $1 ORDER BY no";

impl Inner {
    pub(super) async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        let last = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM sickbay.message_number";
        let rows = self.query(last, &[]).await?;
        let last = rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64);
        door::check_prefix(prefix, last)?;
        let ids: Vec<i64> = prefix.numbers(last).map(|id| id.number() as i64).collect();
        let now = self.now();
        let params: [Param<'_>; 2] = [(&now, Type::INT8), (&ids, Type::INT8_ARRAY)];
        let found = self.query(LOOK, &params).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let first = super::row::id(column(row, "id")?)?;
        if let Some(second) = found.get(1) {
            return Err(door::ambiguous_prefix(first, super::row::id(column(second, "id")?)?));
        }
        let (history, original) = futures::try_join!(self.history(first), self.original(first))?;
        view(row, history, original).map(Some)
    }

    async fn history(&self, id: MessageId) -> Result<Vec<Attempt>, StoreError> {
        let rows = self.query(ATTEMPTS, &[(&(id.number() as i64), Type::INT8)]).await?;
        let attempt = |row: &Row| {
            let details = Details::unpack(row.get(5));
            Attempt {
                number: row.get::<_, i32>(0) as u32,
                started_at: Timestamp::from_millis(row.get(1)),
                ended_at: Timestamp::from_millis(row.get(2)),
                worker: row.get(3),
                end: end_from(row.get(4)),
                failure: details.failure,
                signature: details.signature,
                ran: details.ran,
                output: details.output,
            }
        };
        Ok(rows.iter().map(attempt).collect())
    }

    async fn original(&self, id: MessageId) -> Result<Option<Bytes>, StoreError> {
        let sql = "SELECT payload FROM sickbay.original WHERE message = $1";
        let rows = self.query(sql, &[(&(id.number() as i64), Type::INT8)]).await?;
        Ok(rows.first().map(|row| Bytes::copy_from_slice(row.get(0))))
    }
}

fn view(row: &Row, history: Vec<Attempt>, original: Option<Bytes>) -> Result<MessageView, StoreError> {
    let place: &str = column(row, "place")?;
    let queue = QueueName::new(column::<&str>(row, "queue")?).map_err(|error| odd(&error))?;
    let message = message(row, &queue, &Places::of(row)?)?;
    let mut facts = Facts::read(column::<Option<Vec<i32>>>(row, "facts")?.as_deref());
    let due_at = Timestamp::from_millis(column(row, "due_at")?);
    let now = Timestamp::from_millis(column(row, "now")?);
    let status = match place {
        "leased" => Status::Active,
        "dead" => Status::Dead,
        "discarded" => Status::Discarded,
        "completed" => Status::Completed,
        _ => door::waiting_status(facts.counters.failures, due_at, now),
    };
    if status == Status::Active {
        facts.counters.deliveries += 1;
    }
    let dead = matches!(status, Status::Dead | Status::Discarded).then(|| dead_letter(row)).transpose()?;
    let epoch: Option<i64> = column(row, "last_epoch")?;
    let claim: Option<i64> = column(row, "last_claim")?;
    let token = epoch.zip(claim).map(|(epoch, claim)| LeaseToken {
        epoch: epoch as u64,
        claim: claim as u64,
        message: message.id,
    });
    Ok(MessageView {
        message,
        original_payload: original,
        status,
        due_at: (place == "waiting").then_some(due_at),
        counters: facts.counters,
        stages: facts.stages,
        cause: facts.cause,
        suspect: column(row, "suspect")?,
        worker: column(row, "worker")?,
        last_delivery: token.filter(|_| dead.is_some()).map(|token| token.to_string()),
        dead,
        history,
    })
}
