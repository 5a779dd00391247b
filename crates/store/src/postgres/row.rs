//! Messages as the database gives them to us.

use bytes::Bytes;
use sickbay_core::delivery::{Cause, Counters};
use sickbay_core::message::{Message, Priority};
use sickbay_core::{ErrorKind, MessageId, QueueName, Stages, StoreError, Timestamp};
use tokio_postgres::Row;

use super::call::column;
use crate::pack::{cause_from, unpack_headers};

/// A row says what cannot be.
pub(super) fn odd(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, "SB0012", format!("a row of the store makes no sense: {error}"))
}

/// A name that may be missing.
pub(super) fn name<N: std::str::FromStr<Err: std::fmt::Display>>(
    text: Option<&str>,
) -> Result<Option<N>, StoreError> {
    text.map(|text| text.parse().map_err(|error| odd(&error))).transpose()
}

pub(super) fn id(number: i64) -> Result<MessageId, StoreError> {
    let id = u64::try_from(number).ok().and_then(MessageId::from_number);
    id.ok_or_else(|| odd(&"there is no such number"))
}

/// What is counted and known of a message beside the message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    pub(super) counters: Counters,
    pub(super) stages: Stages,
    pub(super) cause: Option<Cause>,
}

impl Facts {
    pub(super) fn read(facts: Option<&[i32]>) -> Self {
        let Some(facts) = facts else { return Self::default() };
        let fact = |at: usize| facts.get(at).copied().unwrap_or(0);
        let count = |at: usize| u32::try_from(fact(at)).unwrap_or(0);
        Self {
            counters: Counters {
                deliveries: count(0),
                failures: count(1),
                crashes: count(2),
                charges: count(3),
                releases: count(4),
                expiries: count(5),
                replays: count(6),
                earlier: count(7),
            },
            stages: Stages::from_bits(fact(8) as u16),
            cause: cause_from(Some(i64::from(fact(9)))),
        }
    }
}

/// The message in a row that has its columns.
pub(super) fn message(row: &Row, queue: &QueueName) -> Result<Message, StoreError> {
    let rank: i16 = column(row, "rank")?;
    let priority = u8::try_from(9 - rank).ok().and_then(Priority::new);
    Ok(Message {
        id: id(column(row, "id")?)?,
        queue: queue.clone(),
        message_type: name(column(row, "type")?)?,
        stream: name(column(row, "stream")?)?,
        key: name(column(row, "key")?)?,
        priority: priority.ok_or_else(|| odd(&"there is no such rank"))?,
        pushed_at: Timestamp::from_millis(column(row, "pushed_at")?),
        deadline_at: column::<Option<i64>>(row, "deadline_at")?.map(Timestamp::from_millis),
        headers: unpack_headers(column(row, "headers")?),
        payload: Bytes::copy_from_slice(column(row, "payload")?),
    })
}
