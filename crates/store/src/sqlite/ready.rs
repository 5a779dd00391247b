//! Messages that came back and are due at once: the first to be tried again, kept in memory so that no index
//! has to be written and read for them. Their rows in `waiting` have state 5.

use std::collections::BTreeMap;

use super::place::Place;
use super::state::Taken;

/// How much a queue may keep here.
const BYTES_MAX: usize = 16 << 20;
/// What one message takes beside its payload and its history.
const OVERHEAD_BYTES: usize = 512;

/// (9 - priority, due_at, number)
type Turn = (i64, i64, u64);

#[derive(Debug, Default)]
pub(super) struct Ready {
    by_turn: BTreeMap<Turn, Taken>,
    bytes: usize,
}

impl Ready {
    pub(super) fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    pub(super) fn insert(&mut self, taken: Taken) {
        self.bytes += size(&taken);
        let turn = turn(taken.lease.place, taken.lease.due_at);
        if let Some(earlier) = self.by_turn.insert(turn, taken) {
            self.bytes -= size(&earlier);
        }
    }

    pub(super) fn remove(&mut self, place: Place, due_at: i64) {
        self.remove_turn(&turn(place, due_at));
    }

    fn remove_turn(&mut self, turn: &Turn) -> Option<Taken> {
        let taken = self.by_turn.remove(turn)?;
        self.bytes -= size(&taken);
        Some(taken)
    }

    /// When the first message of a band is due.
    pub(super) fn first_due(&self, band: i64) -> Option<i64> {
        self.by_turn.range(whole(band)).next().map(|((_, due_at, _), _)| *due_at)
    }

    /// Takes messages of a band, the first due first.
    pub(super) fn take(&mut self, band: i64, count: usize) -> Vec<Taken> {
        let turns: Vec<_> = self.by_turn.range(whole(band)).take(count).map(|(turn, _)| *turn).collect();
        turns.iter().filter_map(|turn| self.remove_turn(turn)).collect()
    }
}

fn turn(place: Place, due_at: i64) -> Turn {
    (place.band().0 & 15, due_at, place.number())
}

fn whole(band: i64) -> std::ops::Range<Turn> {
    (band, i64::MIN, 0)..(band + 1, i64::MIN, 0)
}

fn size(taken: &Taken) -> usize {
    OVERHEAD_BYTES + taken.row.payload.len() + taken.lease.history.len()
}
