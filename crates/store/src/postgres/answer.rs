//! What comes of one exchange, as the database tells it.

use std::time::Duration;

use sickbay_core::delivery::{Delivery, Lease};
use sickbay_core::port::Claim;
use sickbay_core::settlement::Settled;
use sickbay_core::{LeaseToken, QueueName, StoreError, Timestamp};
use tokio_postgres::Row;

use super::call::column;
use super::floor::{End, Walk};
use super::row::{Facts, Places, message, place};
use crate::door;

/// What came of one round trip.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) settled: Vec<Settled>,
    pub(super) deliveries: Vec<Delivery>,
    /// Those whose payloads are not what was pushed.
    pub(super) corrupt: Vec<usize>,
    pub(super) again_in: Option<Duration>,
    /// Something may lie before what claims have reached.
    pub(super) low: bool,
    /// How far the claim came.
    pub(super) reached: Option<(Walk, End)>,
}

impl Answer {
    /// The first row holds for all of them; each other is a delivery.
    pub(super) fn read(rows: &[Row], claim: Option<&Claim>) -> Result<Self, StoreError> {
        let mut answer = Self::default();
        let Some((head, rows)) = rows.split_first() else { return Ok(answer) };
        let said = |code: i16| if code == 0 { Settled::Applied } else { Settled::LeaseLost };
        let settled: Option<Vec<i16>> = column(head, "answers")?;
        answer.settled = settled.unwrap_or_default().into_iter().map(said).collect();
        answer.low = column(head, "low")?;
        let Some(claim) = claim else { return Ok(answer) };
        let now: i64 = column(head, "now")?;
        let ends_at = column::<Option<i64>>(head, "expires_at")?.map(Timestamp::from_millis);
        let walked: Option<i64> = column(head, "walked")?;
        let (Some(number), Some(expires_at)) = (column::<Option<i64>>(head, "claim")?, ends_at) else {
            answer.reached = walked.map(|walked| (Walk { now, walked, full: false }, End::default()));
            answer.again_in = ends_at.map(|next| next.since(Timestamp::from_millis(now)));
            return Ok(answer);
        };
        let lease = Granted {
            epoch: column::<i64>(head, "epoch")? as u64,
            claim: number as u64,
            granted_at: Timestamp::from_millis(now),
            expires_at,
            at: At::of(head)?,
        };
        let full = rows.len() >= claim.max as usize;
        let given: Result<Vec<_>, _> = rows.iter().map(|row| lease.delivery(row, &claim.queue)).collect();
        let mut given = given?;
        given.sort_unstable_by_key(|given| given.order);
        answer.reached = walked.map(|walked| {
            let (_, rank, due, id) = given.last().map(|given| given.order).unwrap_or_default();
            (Walk { now, walked, full }, End { rank, due, id })
        });
        for (at, given) in given.into_iter().enumerate() {
            if given.corrupt {
                answer.corrupt.push(at);
            }
            answer.deliveries.push(given.delivery);
        }
        Ok(answer)
    }
}

/// Where the columns of a delivery are.
struct At {
    message: Places,
    place: usize,
    due_at: usize,
    facts: usize,
    checksum: usize,
    suspect: usize,
    rank: usize,
}

impl At {
    fn of(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            message: Places::of(row)?,
            place: place(row, "place")?,
            due_at: place(row, "due_at")?,
            facts: place(row, "facts")?,
            checksum: place(row, "checksum")?,
            suspect: place(row, "suspect")?,
            rank: place(row, "rank")?,
        })
    }
}

/// The lease of all that a claim got.
struct Granted {
    epoch: u64,
    claim: u64,
    granted_at: Timestamp,
    expires_at: Timestamp,
    at: At,
}

/// One of them, and where it stands among the others: by its place where it was chosen, or by rank, time and number.
struct Given {
    order: (Option<i32>, i16, i64, i64),
    delivery: Delivery,
    corrupt: bool,
}

impl Granted {
    fn delivery(&self, row: &Row, queue: &QueueName) -> Result<Given, StoreError> {
        let message = message(row, queue, &self.at.message)?;
        let mut facts = Facts::read(column::<Option<Vec<i32>>>(row, self.at.facts)?.as_deref());
        facts.counters.deliveries += 1;
        let checksum: Option<i64> = column(row, self.at.checksum)?;
        let corrupt = checksum.is_some_and(|checksum| checksum as u64 != door::checksum(&message.payload));
        let (rank, due, id) =
            (column(row, self.at.rank)?, column(row, self.at.due_at)?, message.id.number() as i64);
        let order = (column(row, self.at.place)?, rank, due, id);
        let token = LeaseToken { epoch: self.epoch, claim: self.claim, message: message.id };
        let delivery = Delivery {
            message,
            lease: Lease { token, granted_at: self.granted_at, expires_at: self.expires_at },
            counters: facts.counters,
            stages: facts.stages,
            cause: facts.cause,
            suspect: column(row, self.at.suspect)?,
        };
        Ok(Given { order, delivery, corrupt })
    }
}
