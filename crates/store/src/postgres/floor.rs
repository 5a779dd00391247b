//! Where the next claim begins to look (`functions/claim.sql`).
//!
//! A claim takes from the front of its queue, and the database steps over what was taken until it is vacuumed. So we
//! remember what the last claim reached. That is a hint and no more: what comes in before it is found when a claim
//! looks from the very front again, which it does for a twentieth of the time at most, or when nothing else is left;
//! and at once after something that this process did itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::types::Type;

use super::call::Param;
use super::settle::Nothing;

/// Priorities that there are.
const RANKS: usize = 10;
/// A push that commits so long after it was stamped is still found at once.
const MARGIN_MS: i64 = 100;
/// A look from the very front may cost one part in so many of all the time.
const SHARE: i64 = 20;
/// Who was idle for so long looks from the very front in any case.
const IDLE_MS: i64 = 1000;

/// What claims on one queue have reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    /// One a rank: nothing that was there lies at or before this time and number.
    pub(super) dues: Vec<i64>,
    pub(super) ids: Vec<i64>,
    /// When that was.
    pub(super) since: i64,
    /// From then on one claim looks from the very front.
    until: i64,
    /// And from then on every claim.
    idle_until: i64,
    /// One does so now.
    walking: bool,
}

/// What a claim said about its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) now: i64,
    /// Microseconds from the very front, or 0 from the floor.
    pub(super) walked: i64,
    /// It got all that it asked for: what lies behind was not looked at.
    pub(super) full: bool,
}

/// Where a delivery lay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    pub(super) rank: i16,
    pub(super) due: i64,
    pub(super) id: i64,
}

#[derive(Debug, Default)]
struct Known {
    queues: HashMap<String, Floor>,
    /// How often it was forgotten: a claim that was under way then knows nothing either.
    forgotten: u64,
}

/// What claims have reached, by queue.
#[derive(Debug, Default)]
pub(super) struct Floors {
    known: Mutex<Known>,
}

impl Floors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have come in before what claims have reached.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.forgotten += 1;
        known.queues.clear();
    }

    /// Where a claim on this queue begins, and what to hand back with its answer.
    pub(super) fn of(&self, queue: &str) -> (Option<Floor>, u64) {
        let mut known = self.known();
        let forgotten = known.forgotten;
        let Some(floor) = known.queues.get_mut(queue) else { return (None, forgotten) };
        if floor.since >= floor.until && !floor.walking {
            floor.walking = true;
            return (None, forgotten);
        }
        (Some(floor.clone()), forgotten)
    }

    /// A claim on this queue was answered that says nothing about where the next one can begin.
    pub(super) fn forget_queue(&self, queue: &str) {
        self.known().queues.remove(queue);
    }

    /// A claim was answered that began at `floor`; `last` is the last that it got.
    pub(super) fn learn(&self, queue: &str, begun: (Option<Floor>, u64), walk: Walk, last: End) {
        let (floor, forgotten) = begun;
        let mut known = self.known();
        let walking = known.queues.get(queue).is_some_and(|known| known.walking);
        let newer = known.queues.get(queue).is_none_or(|known| known.since <= walk.now);
        if known.forgotten == forgotten && (newer || walk.walked > 0) {
            let mut reached = Floor::reached(floor.filter(|_| walk.walked == 0), walk, last);
            reached.walking = walking && walk.walked == 0;
            known.queues.insert(queue.to_owned(), reached);
        }
    }
}

impl Floor {
    fn reached(before: Option<Self>, walk: Walk, last: End) -> Self {
        let mut floor = before.unwrap_or_else(|| Self {
            dues: vec![i64::MIN; RANKS],
            ids: vec![0; RANKS],
            since: walk.now,
            until: walk.now.saturating_add((walk.walked.saturating_mul(SHARE) / 1000).max(1)),
            idle_until: 0,
            walking: false,
        });
        floor.since = walk.now;
        floor.idle_until = floor.until.max(walk.now).saturating_add(IDLE_MS);
        let edge = walk.now.saturating_sub(MARGIN_MS);
        // What is due and before the last one is taken; behind that one nobody has looked.
        let last = Some(last).filter(|_| walk.full);
        let through = last.map_or(RANKS, |last| usize::try_from(last.rank).unwrap_or(0));
        for rank in 0..through {
            (floor.dues[rank], floor.ids[rank]) = (edge, i64::MAX);
        }
        if let Some(last) = last {
            (floor.dues[through], floor.ids[through]) = (last.due, last.id).min((edge, i64::MAX));
        }
        floor
    }

    pub(super) fn params(&self) -> [Param<'_>; 4] {
        [
            (&self.dues, Type::INT8_ARRAY),
            (&self.ids, Type::INT8_ARRAY),
            (&self.since, Type::INT8),
            (&self.idle_until, Type::INT8),
        ]
    }

    /// That a claim begins at the very front.
    pub(super) fn none<'p>() -> [Param<'p>; 4] {
        [Type::INT8_ARRAY, Type::INT8_ARRAY, Type::INT8, Type::INT8]
            .map(|kind| -> Param<'p> { (&Nothing, kind) })
    }
}
