//! What the writer keeps in memory: where each band's cursor stands, who holds what, and nothing that
//! grows with the backlog.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use sickbay_core::port::ProcessId;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Cause, Counters, MessageType, QueueName, QueuePolicy, Stages};

use super::mark::Reached;
use super::place::{Band, Place};
use super::process::LastClaim;
use super::ready::Ready;
use super::row::MessageRow;

/// Message numbers are consecutive, which makes the cheapest hash a good one.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(super) type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// A message in somebody's hands.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) place: Place,
    pub(super) claim: u64,
    /// Epoch and claim of an earlier delivery than the one that `claim` names, if there was one.
    pub(super) last: Option<(u64, u64)>,
    pub(super) until: i64,
    pub(super) due_at: i64,
    pub(super) counters: Counters,
    pub(super) stages: Stages,
    pub(super) cause: Option<Cause>,
    pub(super) suspect: bool,
    /// It has a row in `waiting`.
    pub(super) in_waiting: bool,
    /// It waits among those kept in memory.
    pub(super) in_memory: bool,
    /// Every attempt, packed.
    pub(super) history: Vec<u8>,
    /// Its stream and whether it was deferred in it.
    pub(super) stream: Option<(i64, bool)>,
    pub(super) keyed: bool,
    pub(super) type_no: Option<i64>,
    pub(super) first_failed_at: Option<i64>,
    pub(super) pushed_at: i64,
    pub(super) payload_bytes: u64,
    /// The message itself, while it is in hand: a retry that is due at once needs no second look.
    pub(super) row: Option<Box<MessageRow>>,
}

/// A message that is about to be handed out.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) lease: Leased,
    pub(super) row: MessageRow,
}

/// An entry that waits for its stream: (not suspect, band, due_at, number, place).
pub(super) type Demoted = (bool, i64, i64, u64, i64);

/// A batch handed out together.
#[derive(Clone, Debug)]
pub(super) struct ClaimInfo {
    pub(super) process: ProcessId,
    pub(super) worker: Arc<str>,
    pub(super) claimed_at: i64,
    pub(super) numbers: Vec<u64>,
    pub(super) left: u32,
}

/// Where a queue's messages of one priority stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandState {
    /// Fresh messages up to here have been handed out.
    pub(super) cursor: i64,
    /// The last fresh message.
    pub(super) last: i64,
    /// No waiting message is due before this.
    pub(super) next_due: i64,
}

/// The figures of a queue, as in the table `tally`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) live: i64,
    pub(super) active: i64,
    pub(super) dead: i64,
    pub(super) discarded: i64,
    pub(super) pushed: i64,
    pub(super) completed: i64,
    pub(super) duplicates: i64,
    pub(super) failures: i64,
    pub(super) quarantined: i64,
    pub(super) replayed: i64,
    pub(super) removed: i64,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) no: i64,
    pub(super) name: QueueName,
    pub(super) policy: Arc<QueuePolicy>,
    pub(super) paused: bool,
    pub(super) tally: Tally,
    pub(super) tally_changed: bool,
    pub(super) bands: [BandState; 10],
    pub(super) gates: HashMap<i64, TypeGate>,
    /// How many dead letters have which reason, and whether that changed.
    pub(super) reasons: HashMap<String, i64>,
    pub(super) reasons_changed: bool,
    pub(super) ready: Ready,
    /// Suspects that can be claimed: (9 - priority, due_at, number).
    pub(super) suspects: BTreeSet<(i64, i64, u64)>,
}

impl Queue {
    pub(super) fn band_of(&mut self, place: Place) -> &mut BandState {
        &mut self.bands[(place.band().0 & 15).min(9) as usize]
    }

    pub(super) fn band(&self, index: usize) -> Band {
        Band(self.no << 4 | index as i64)
    }

    pub(super) fn tally(&mut self) -> &mut Tally {
        self.tally_changed = true;
        &mut self.tally
    }

    /// So many dead letters more or less have this reason.
    pub(super) fn count_reason(&mut self, reason: &str, change: i64) {
        match self.reasons.get_mut(reason) {
            Some(count) => *count += change,
            None => drop(self.reasons.insert(reason.to_owned(), change)),
        }
        self.reasons_changed = true;
    }

    /// A waiting message will be due at this time.
    pub(super) fn expect(&mut self, place: Place, due_at: i64) {
        let band = self.band_of(place);
        band.next_due = band.next_due.min(due_at);
    }
}

/// What a worker process holds.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) in_hand: u32,
    pub(super) holds_suspect: bool,
    /// The queues it claimed from, when last, and by which worker.
    pub(super) queues: HashMap<i64, LastClaim>,
}

/// Everything the writer remembers between turns.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) last_number: u64,
    pub(super) last_dead: i64,
    /// Which store this is, and how many commits it has seen.
    pub(super) store: u64,
    pub(super) commits: u64,
    /// What room the disk has is kept for settlements.
    pub(super) nearly_full: bool,
    pub(super) last_claim: u64,
    pub(super) queues: HashMap<i64, Queue>,
    /// A queue was defined or its policy changed.
    pub(super) policies_changed: bool,
    pub(super) queue_by_name: HashMap<QueueName, i64>,
    pub(super) types: HashMap<MessageType, i64>,
    pub(super) type_names: HashMap<i64, MessageType>,
    pub(super) leases: NumberMap<Leased>,
    pub(super) claims: NumberMap<ClaimInfo>,
    /// Claims that were settled completely in this turn.
    pub(super) ended_claims: Vec<u64>,
    /// (until, claim): looked at when due; what was renewed goes back in.
    pub(super) expiries: BinaryHeap<Reverse<(i64, u64)>>,
    pub(super) processes: HashMap<ProcessId, Process>,
    /// Streams with leased entries, and how many.
    pub(super) leased_streams: HashMap<i64, u32>,
    /// Entries that came due while their stream was leased.
    pub(super) demoted: HashMap<i64, BTreeSet<Demoted>>,
    /// Types whose gate opened while messages were held: (queue, type).
    pub(super) reopening: BTreeSet<(i64, i64)>,
}

impl State {
    pub(super) fn queue(&mut self, no: i64) -> Option<&mut Queue> {
        self.queues.get_mut(&no)
    }

    /// How far the store has got.
    pub(super) fn reached(&self) -> Reached {
        Reached { store: self.store, commits: self.commits, last_number: self.last_number, epoch: self.epoch }
    }

    /// The earliest time at which something happens by itself.
    pub(super) fn next_event(&self, now: i64) -> i64 {
        if !self.reopening.is_empty() {
            return now;
        }
        let bands = self.queues.values().flat_map(|queue| queue.bands.iter().map(|band| band.next_due));
        let suspects = self.queues.values().filter_map(|queue| queue.suspects.iter().map(|s| s.1).min());
        let lease = self.expiries.peek().map(|Reverse((until, _))| *until);
        bands.chain(suspects).filter(|due| *due > now).chain(lease).min().unwrap_or(i64::MAX)
    }
}
