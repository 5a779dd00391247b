//! What the worker holds: the buffer, what is being handled, and what waits to be handed in. All of it
//! under one lock that is taken once per batch.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::decide::Decision;
use sickbay_core::{Settlement, Timestamp};

use crate::held::Held;
use crate::lane::LANES;
use crate::sync::atomic::Ordering;

/// The later deliveries of a stream's run, in order.
pub(crate) type Rest = Option<Box<VecDeque<Arc<Held>>>>;

/// Something to handle: a delivery, and what must come after it.
pub(crate) struct Work {
    pub(crate) held: Arc<Held>,
    pub(crate) rest: Rest,
}

impl Work {
    /// The next of a run.
    pub(crate) fn next_of(rest: Rest) -> Option<Self> {
        let mut rest = rest?;
        let held = rest.pop_front()?;
        Some(Self { held, rest: (!rest.is_empty()).then_some(rest) })
    }

    /// The delivery and what comes after it.
    pub(crate) fn all(self) -> impl Iterator<Item = Arc<Held>> {
        std::iter::once(self.held).chain(self.rest.into_iter().flat_map(|rest| *rest))
    }
}

/// A settlement to hand in.
pub(crate) struct Outgoing {
    pub(crate) held: Arc<Held>,
    pub(crate) settlement: Settlement,
    /// Goes on only when this settlement has taken effect.
    pub(crate) rest: Rest,
    /// A turn left it behind in favour of others.
    pub(crate) passed_over: bool,
}

impl Outgoing {
    pub(crate) fn new(held: Arc<Held>, settlement: Settlement, rest: Rest) -> Self {
        Self { held, settlement, rest, passed_over: false }
    }

    pub(crate) fn release(held: Arc<Held>) -> Self {
        let settlement = Settlement::release(held.token());
        Self::new(held, settlement, None)
    }

    pub(crate) fn claim(&self) -> u64 {
        self.settlement.token.claim
    }
}

/// What one task has concluded and not yet put into the worker's hands.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) lost: Vec<Arc<Held>>,
    /// Behind a failure in their stream: no handler saw them.
    pub(crate) untried: Vec<Arc<Held>>,
}

/// What happened so far. Settlements are counted when they have taken effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) claimed: u64,
    pub(crate) done: u64,
    pub(crate) retried: u64,
    pub(crate) quarantined: u64,
    pub(crate) given_back: u64,
    pub(crate) lost: u64,
    pub(crate) effects_failed: u64,
    pub(crate) panics: u64,
    pub(crate) overruns: u64,
    pub(crate) source_errors: u64,
    pub(crate) last_error: Option<String>,
    /// Attempts that have come to an end, handed in or not.
    pub(crate) concluded: u64,
    /// Deliveries given back that no handler saw, handed in or not.
    pub(crate) untried: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, end: End) {
        let counter = match end {
            End::Done => &mut self.done,
            End::Retried => &mut self.retried,
            End::Quarantined => &mut self.quarantined,
            End::GivenBack => &mut self.given_back,
        };
        *counter += 1;
    }
}

/// A decision, without what comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Retried,
    Quarantined,
    GivenBack,
}

impl End {
    pub(crate) fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Complete => Self::Done,
            Decision::Retry { .. } => Self::Retried,
            Decision::Quarantine { .. } => Self::Quarantined,
            Decision::Release { .. } | Decision::Redeliver => Self::GivenBack,
        }
    }
}

pub(crate) struct Hands {
    pub(crate) concurrency: u32,
    pub(crate) prefetch: u32,
    pub(crate) buffer: VecDeque<Work>,
    pub(crate) outbox: Vec<Outgoing>,
    /// Everything whose lease must be kept, settlements on their way included.
    pub(crate) held: Vec<Arc<Held>>,
    /// Handlers running, and lanes that run them.
    pub(crate) running: u32,
    /// Deliveries in hand that have no settlement yet.
    pub(crate) unsettled: u32,
    /// The same by claim.
    pub(crate) unsettled_of: HashMap<u64, u32>,
    /// Deliveries asked for by turns under way.
    pub(crate) wanted: u32,
    /// A claim waits at the source.
    pub(crate) waiting: bool,
    /// It is being withdrawn; nothing is handed in before, or it would take what is given back.
    pub(crate) recalling: bool,
    /// The claims whose settlements each lane is handing in, in order. Two turns that settle parts of one claim at
    /// once would wait for each other where many share a store.
    pub(crate) settling: [Vec<u64>; LANES],
    /// Lanes with nothing to do.
    pub(crate) parked: Vec<usize>,
    /// How much of the prefetch is used now: nothing after the buffer expired, then growing again.
    pub(crate) room: u32,
    pub(crate) room_grows_from: Timestamp,
    /// The source failed; no turn before this.
    pub(crate) turns_from: Timestamp,
    pub(crate) failures_in_a_row: u32,
    /// Handlers block their thread; lanes leave them to runners until then.
    pub(crate) inline_from: Timestamp,
    pub(crate) tally: Tally,
}

impl Hands {
    pub(crate) fn new(concurrency: u32, prefetch: u32) -> Self {
        Self {
            concurrency,
            prefetch,
            buffer: VecDeque::new(),
            outbox: Vec::new(),
            held: Vec::new(),
            running: 0,
            unsettled: 0,
            unsettled_of: HashMap::new(),
            wanted: 0,
            waiting: false,
            recalling: false,
            settling: Default::default(),
            parked: Vec::new(),
            room: prefetch,
            room_grows_from: Timestamp::default(),
            turns_from: Timestamp::default(),
            failures_in_a_row: 0,
            inline_from: Timestamp::default(),
            tally: Tally::default(),
        }
    }

    /// How many more deliveries fit.
    pub(crate) fn spare(&self) -> u32 {
        (self.concurrency + self.room).saturating_sub(self.unsettled + self.wanted)
    }

    /// How many to ask for in one turn: half of what fits in all, so that two turns can be under way.
    pub(crate) fn want(&self, turn_max: u32) -> u32 {
        self.spare().min((self.concurrency + self.room).div_ceil(2)).min(turn_max)
    }

    pub(crate) fn register(&mut self, held: &Arc<Held>) {
        held.place.store(self.held.len(), Ordering::Relaxed);
        self.held.push(Arc::clone(held));
        self.tally.claimed += 1;
    }

    /// So many deliveries of a claim are in hand now.
    pub(crate) fn expect(&mut self, claim: u64, count: usize) {
        self.unsettled += count as u32;
        *self.unsettled_of.entry(claim).or_default() += count as u32;
    }

    /// So many deliveries of a claim have got their settlement, or need none.
    fn conclude(&mut self, claim: u64, count: usize) {
        self.unsettled -= count as u32;
        if let Entry::Occupied(mut left) = self.unsettled_of.entry(claim) {
            *left.get_mut() = left.get().saturating_sub(count as u32);
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    /// Its lease need not be kept any longer.
    pub(crate) fn unregister(&mut self, held: &Held) {
        let place = held.place.swap(usize::MAX, Ordering::Relaxed);
        if place < self.held.len() {
            self.held.swap_remove(place);
            if let Some(moved) = self.held.get(place) {
                moved.place.store(place, Ordering::Relaxed);
            }
        }
    }

    /// Gives a delivery back untried, unless it is settled already.
    pub(crate) fn release(&mut self, held: Arc<Held>) {
        if held.settle_once() {
            self.conclude(held.token().claim, 1);
            self.tally.untried += u64::from(!held.is_begun());
            self.outbox.push(Outgoing::release(held));
        }
    }

    pub(crate) fn release_rest(&mut self, rest: Rest) {
        rest.into_iter().flat_map(|rest| *rest).for_each(|held| self.release(held));
    }

    /// Takes over what a task has concluded.
    pub(crate) fn merge(&mut self, batch: &mut Batch) {
        for part in batch.outgoing.chunk_by(|one, next| one.claim() == next.claim()) {
            self.conclude(part[0].claim(), part.len());
        }
        self.tally.concluded += batch.outgoing.len() as u64;
        self.tally.lost += batch.lost.len() as u64;
        for held in batch.lost.drain(..) {
            self.conclude(held.token().claim, 1);
            self.unregister(&held);
        }
        self.outbox.append(&mut batch.outgoing);
        batch.untried.drain(..).for_each(|held| self.release(held));
    }

    /// The next thing to handle. What lost its lease in the buffer is forgotten on the way.
    pub(crate) fn pop(&mut self) -> Option<Work> {
        loop {
            let work = self.buffer.pop_front()?;
            if !work.held.dropped.is_up() {
                return Some(work);
            }
            if work.held.settle_once() {
                self.conclude(work.held.token().claim, 1);
                self.tally.lost += 1;
                self.unregister(&work.held);
            }
            self.release_rest(work.rest);
        }
    }

    /// Since when the oldest has been buffered.
    pub(crate) fn oldest_buffered(&self) -> Option<Timestamp> {
        self.buffer.iter().map(|work| work.held.claimed_at).min()
    }

    /// Gives back everything that is buffered.
    pub(crate) fn empty_buffer(&mut self) -> u64 {
        self.expire_buffer(Timestamp::NEVER, Duration::ZERO)
    }

    /// Gives back what has been buffered for as long as this.
    pub(crate) fn expire_buffer(&mut self, now: Timestamp, expiry: Duration) -> u64 {
        let before = self.outbox.len();
        for work in std::mem::take(&mut self.buffer) {
            if work.held.claimed_at.plus(expiry) <= now {
                work.all().for_each(|held| self.release(held));
            } else {
                self.buffer.push_back(work);
            }
        }
        (self.outbox.len() - before) as u64
    }

    /// A lane to wake, if there is something to do and one is free.
    pub(crate) fn lane_to_wake(&mut self, stopping: bool) -> Option<usize> {
        let claim = !stopping && !self.waiting && self.spare() > 0;
        let work = claim || self.has_outgoing();
        if work && !self.recalling { self.parked.pop() } else { None }
    }
}
