//! Streams as operators see them (contract 34).

use sickbay_core::message::Status;
use sickbay_core::stats::{StreamDetail, StreamEntry, StreamHold, StreamState, StreamView};
use sickbay_core::{QueueName, StoreError, StreamKey, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::call::{Param, column};
use super::row::{id, name, odd};
use crate::door;

const STREAMS: &str = "SELECT * FROM sickbay.streams($1, sickbay.queue_no($2), $3, $4)";
const HOLDS: &str = "SELECT id, since FROM sickbay.hold WHERE queue = sickbay.queue_no($1) AND key = $2
    ORDER BY id LIMIT $3";
const ENTRIES: &str =
    "SELECT *, sickbay.time_now($4) AS now FROM sickbay.entries(sickbay.queue_no($1), $2, $3)";

impl Inner {
    pub(super) async fn streams(
        &self,
        queue: &QueueName,
        key: Option<&StreamKey>,
        rows_max: u32,
    ) -> Result<Vec<StreamView>, StoreError> {
        let (now, queue_name, max) = (self.now(), queue.as_str(), i64::from(rows_max));
        let key = key.map(StreamKey::as_str);
        let params: [Param<'_>; 4] =
            [(&now, Type::INT8), (&queue_name, Type::TEXT), (&key, Type::TEXT), (&max, Type::INT8)];
        let rows = self.query(STREAMS, &params).await?;
        rows.iter().map(|row| view(row, queue)).collect()
    }

    pub(super) async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        let Some(view) = self.streams(queue, Some(key), 1).await?.pop() else { return Ok(None) };
        let (now, queue, key, max) = (self.now(), queue.as_str(), key.as_str(), i64::from(rows_max));
        let params: [Param<'_>; 4] =
            [(&queue, Type::TEXT), (&key, Type::TEXT), (&max, Type::INT8), (&now, Type::INT8)];
        let holds = self.query(HOLDS, &params[..3]).await?;
        let hold =
            |row: &Row| Ok(StreamHold { id: id(row.get(0))?, since: Timestamp::from_millis(row.get(1)) });
        let holds = holds.iter().map(hold).collect::<Result<_, StoreError>>()?;
        let entries = self.query(ENTRIES, &params).await?;
        let entries = entries.iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Some(StreamDetail { view, holds, entries }))
    }
}

fn view(row: &Row, queue: &QueueName) -> Result<StreamView, StoreError> {
    let state = match column::<i32>(row, "state")? {
        0 => StreamState::Held,
        1 => StreamState::Scheduled,
        2 => StreamState::Leased,
        _ => StreamState::Ready,
    };
    let time =
        |name: &str| Ok::<_, StoreError>(column::<Option<i64>>(row, name)?.map(Timestamp::from_millis));
    Ok(StreamView {
        queue: queue.clone(),
        key: column::<&str>(row, "key")?.parse().map_err(|error| odd(&error))?,
        state,
        head: column::<Option<i64>>(row, "head")?.map(id).transpose()?,
        since: time("since")?,
        due_at: time("due_at")?,
        length: column::<i64>(row, "length")? as u64,
    })
}

fn entry(row: &Row) -> Result<StreamEntry, StoreError> {
    let due_at = Timestamp::from_millis(column(row, "due_at")?);
    let now = Timestamp::from_millis(column(row, "now")?);
    let failures = column::<i32>(row, "failures")? as u32;
    let leased: bool = column(row, "leased")?;
    Ok(StreamEntry {
        id: id(column(row, "id")?)?,
        message_type: name(column(row, "type")?)?,
        status: if leased { Status::Active } else { door::waiting_status(failures, due_at, now) },
        due_at,
        deferred: column(row, "deferred")?,
        failures,
    })
}
