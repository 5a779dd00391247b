//! Where a message lies: its rowid, made so that a queue's messages of one priority lie side by side
//! in the order of their numbers.

use sickbay_core::{MessageId, Priority};

use crate::pack::{Packer, Unpacker};

const NUMBER_BITS: u32 = 40;
const FRESH: i64 = 1 << NUMBER_BITS;
const BAND_SHIFT: u32 = 41;
/// The largest number a queue can have.
pub(super) const QUEUES_MAX: i64 = (1 << 18) - 1;
/// The largest number a message can have.
pub(super) const NUMBERS_MAX: u64 = (1 << NUMBER_BITS) - 1;

/// A message's rowid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(pub(super) i64);

/// A queue and a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Band(pub(super) i64);

impl Band {
    pub(super) fn new(queue: i64, priority: Priority) -> Self {
        Self(queue << 4 | i64::from(9 - priority.get()))
    }

    /// The places of fresh messages lie above the first and at most at the second.
    pub(super) const fn fresh(self) -> (i64, i64) {
        let low = self.0 << BAND_SHIFT | FRESH;
        (low, low | (FRESH - 1))
    }
}

impl Place {
    /// Where a message that can be claimed at once lies: last in its band, so that pushing it appends.
    pub(super) fn fresh(band: Band, number: u64) -> Self {
        Self(band.0 << BAND_SHIFT | FRESH | number as i64)
    }

    /// Where a message lies that the cursor must not meet.
    pub(super) fn parked(band: Band, number: u64) -> Self {
        Self(band.0 << BAND_SHIFT | number as i64)
    }

    pub(super) const fn band(self) -> Band {
        Band(self.0 >> BAND_SHIFT)
    }

    pub(super) const fn queue(self) -> i64 {
        self.0 >> (BAND_SHIFT + 4)
    }

    /// True if a cursor comes here.
    pub(super) const fn is_fresh(self) -> bool {
        self.0 & FRESH != 0
    }

    pub(super) const fn number(self) -> u64 {
        (self.0 & (FRESH - 1)) as u64
    }

    pub(super) fn id(self) -> Option<MessageId> {
        MessageId::from_number(self.number())
    }

    pub(super) fn priority(self) -> Priority {
        Priority::new((9 - (self.band().0 & 15)).clamp(0, 9) as u8).unwrap_or_default()
    }

    /// Every place that the message with this number could have in a queue.
    pub(super) fn all(queue: i64, number: u64) -> impl Iterator<Item = Self> {
        (0..Priority::COUNT).filter_map(Priority::new).flat_map(move |priority| {
            let band = Band::new(queue, priority);
            [Self::fresh(band, number), Self::parked(band, number)]
        })
    }
}

/// The places of a queue lie from the first to the second.
pub(super) const fn queue_range(queue: i64) -> (i64, i64) {
    let low = queue << (BAND_SHIFT + 4);
    (low, low | ((1 << (BAND_SHIFT + 4)) - 1))
}

/// Packs places for the claim journal: differences in as few bytes as they need.
pub(super) fn pack(places: &[i64]) -> Vec<u8> {
    let mut packer = Packer(Vec::with_capacity(places.len() * 2 + 8));
    let mut last = 0i64;
    for place in places {
        let difference = place.wrapping_sub(last);
        packer.number(((difference << 1) ^ (difference >> 63)) as u64);
        last = *place;
    }
    packer.0
}

/// The inverse of [`pack`]; stops at the first byte that makes no sense.
pub(super) fn unpack(packed: &[u8]) -> Vec<i64> {
    let (mut places, mut last, mut unpacker) = (Vec::new(), 0i64, Unpacker(packed));
    while let Some(value) = unpacker.number() {
        let difference = (value >> 1) as i64 ^ -((value & 1) as i64);
        last = last.wrapping_add(difference);
        places.push(last);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_tells_queue_priority_and_number() {
        for priority in (0..10).filter_map(Priority::new) {
            for place in [
                Place::fresh(Band::new(7, priority), 42),
                Place::parked(Band::new(QUEUES_MAX, priority), NUMBERS_MAX),
            ] {
                assert!(place.0 > 0);
                assert_eq!(place.priority(), priority);
                assert!(Place::all(place.queue(), place.number()).any(|p| p == place));
                let (low, high) = queue_range(place.queue());
                assert!(low <= place.0 && place.0 <= high);
            }
        }
    }

    #[test]
    fn urgent_messages_lie_before_others_and_older_ones_before_newer() {
        let urgent = Place::fresh(Band::new(1, Priority::new(9).unwrap()), 5);
        let idle = Place::fresh(Band::new(1, Priority::new(0).unwrap()), 4);
        assert!(urgent < idle);
        assert!(Place::fresh(idle.band(), 4) < Place::fresh(idle.band(), 5));
    }

    #[test]
    fn packed_places_round_trip() {
        let places = vec![5, 6, 7, i64::MAX, 1, 1 << 45, (1 << 45) + 1];
        assert_eq!(unpack(&pack(&places)), places);
        assert!(unpack(&[0xff; 20]).is_empty());
    }
}
