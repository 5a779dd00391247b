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

/// Where the columns of a message are in the rows of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    id: usize,
    message_type: usize,
    stream: usize,
    key: usize,
    rank: usize,
    pushed_at: usize,
    deadline_at: usize,
    headers: usize,
    payload: usize,
}

impl Places {
    /// The same in every row that came with this one.
    pub(super) fn of(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: place(row, "id")?,
            message_type: place(row, "type")?,
            stream: place(row, "stream")?,
            key: place(row, "key")?,
            rank: place(row, "rank")?,
            pushed_at: place(row, "pushed_at")?,
            deadline_at: place(row, "deadline_at")?,
            headers: place(row, "headers")?,
            payload: place(row, "payload")?,
        })
    }
}

/// Where a column is.
pub(super) fn place(row: &Row, name: &str) -> Result<usize, StoreError> {
    let found = row.columns().iter().position(|column| column.name() == name);
    found.ok_or_else(|| odd(&format!("there is no column {name}")))
}

/// The message in a row that has its columns.
pub(super) fn message(row: &Row, queue: &QueueName, at: &Places) -> Result<Message, StoreError> {
    let rank: i16 = column(row, at.rank)?;
    let priority = u8::try_from(9 - rank).ok().and_then(Priority::new);
    Ok(Message {
        id: id(column(row, at.id)?)?,
        queue: queue.clone(),
        message_type: name(column(row, at.message_type)?)?,
        stream: name(column(row, at.stream)?)?,
        key: name(column(row, at.key)?)?,
        priority: priority.ok_or_else(|| odd(&"there is no such rank"))?,
        pushed_at: Timestamp::from_millis(column(row, at.pushed_at)?),
        deadline_at: column::<Option<i64>>(row, at.deadline_at)?.map(Timestamp::from_millis),
        headers: unpack_headers(column(row, at.headers)?),
        payload: Bytes::copy_from_slice(column(row, at.payload)?),
    })
}
