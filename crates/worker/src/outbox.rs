//! The outbox: which settlements a lane hands in next.

use std::collections::HashMap;

use crate::hands::{Hands, Outgoing};
use crate::lane::LANES;

impl Hands {
    /// True if something can be handed in now.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.outbox.iter().any(|outgoing| !self.is_settling(outgoing))
    }

    /// Takes what a lane hands in next out of the outbox: claims of which nothing is left, before parts of others.
    /// A store ends a claim at less cost as a whole than in parts. What was passed over once goes in its turn.
    pub(crate) fn take_outgoing(&mut self, lane: usize, most: usize) -> Vec<Outgoing> {
        let mut claims = self.next_claims(most);
        claims.sort_unstable();
        let (mut taken, mut left) = (Vec::with_capacity(most.min(self.outbox.len())), Vec::new());
        for mut outgoing in std::mem::take(&mut self.outbox) {
            if taken.len() < most && claims.binary_search(&outgoing.claim()).is_ok() {
                taken.push(outgoing);
            } else {
                outgoing.passed_over = true;
                left.push(outgoing);
            }
        }
        self.outbox = left;
        self.settling[lane] = claims;
        taken
    }

    /// The claims to hand in next. What another lane is handing in a part of is not among them.
    fn next_claims(&self, most: usize) -> Vec<u64> {
        let mut found: Vec<Found> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for part in self.outbox.chunk_by(|one, next| one.claim() == next.claim()) {
            let (claim, passed_over) = (part[0].claim(), part[0].passed_over);
            match places.get(&claim).and_then(|place| found.get_mut(*place)) {
                Some(found) => {
                    found.count += part.len();
                    found.first |= passed_over;
                }
                None if is_among(&self.settling, claim) => {}
                None => {
                    let first = passed_over || !self.unsettled_of.contains_key(&claim);
                    places.insert(claim, found.len());
                    found.push(Found { claim, count: part.len(), first });
                }
            }
        }
        // In their order otherwise.
        found.sort_by_key(|found| !found.first);
        let (mut claims, mut room) = (Vec::new(), most);
        let some_first = found.first().is_some_and(|found| found.first);
        for found in found.into_iter().filter(|found| found.first == some_first) {
            if claims.is_empty() || found.count <= room {
                claims.push(found.claim);
                room = room.saturating_sub(found.count);
            }
        }
        claims
    }

    fn is_settling(&self, outgoing: &Outgoing) -> bool {
        is_among(&self.settling, outgoing.claim())
    }
}

/// What the outbox has of a claim.
struct Found {
    claim: u64,
    count: usize,
    /// Nothing of the claim is left elsewhere, or this was passed over.
    first: bool,
}

fn is_among(settling: &[Vec<u64>; LANES], claim: u64) -> bool {
    settling.iter().any(|claims| claims.binary_search(&claim).is_ok())
}

#[cfg(all(test, not(feature = "interleavings")))]
mod tests {
    use std::sync::Arc;

    use sickbay_core::{Settlement, Timestamp};

    use super::*;
    use crate::hands::Batch;
    use crate::held::{Held, sample};

    /// Deliveries of claims, given as the numbers of those claims; what is in hand, and its settlements.
    fn concluded(hands: &mut Hands, claims: &[u64]) -> Batch {
        let mut batch = Batch::default();
        for (number, claim) in claims.iter().enumerate() {
            let delivery = sample(number as u64 + 1, *claim);
            let token = delivery.token();
            hands.expect(*claim, 1);
            let held = Arc::new(Held::new(delivery, Timestamp::default()));
            batch.outgoing.push(Outgoing::new(held, Settlement::complete(token), None));
        }
        batch
    }

    fn taken(hands: &mut Hands, lane: usize, most: usize) -> Vec<u64> {
        hands.take_outgoing(lane, most).iter().map(Outgoing::claim).collect()
    }

    #[test]
    fn a_claim_that_is_done_goes_before_parts_of_others_and_no_part_is_passed_over_twice() {
        let mut hands = Hands::new(10, 0);
        let mut batch = concluded(&mut hands, &[1, 2, 1, 2, 3]);
        hands.expect(1, 1); // one of the first claim is still being handled
        hands.merge(&mut batch);
        assert_eq!(taken(&mut hands, 0, 9), [2, 2, 3]);
        hands.settling[0].clear();
        let mut batch = concluded(&mut hands, &[4]);
        hands.merge(&mut batch);
        assert_eq!(taken(&mut hands, 0, 9), [1, 1, 4]);
        assert!(hands.outbox.is_empty());
    }

    #[test]
    fn parts_go_where_no_claim_is_done() {
        let mut hands = Hands::new(10, 0);
        let mut batch = concluded(&mut hands, &[1, 2, 1]);
        [1, 2].into_iter().for_each(|claim| hands.expect(claim, 1));
        hands.merge(&mut batch);
        assert_eq!(taken(&mut hands, 0, 9), [1, 2, 1]);
    }

    #[test]
    fn two_claims_that_do_not_fit_go_one_after_the_other() {
        let mut hands = Hands::new(10, 0);
        let mut batch = concluded(&mut hands, &[1, 2, 1, 2, 1, 3]);
        hands.merge(&mut batch);
        assert_eq!(taken(&mut hands, 0, 4), [1, 1, 1, 3]);
        assert_eq!(taken(&mut hands, 1, 4), [2, 2]);
    }

    #[test]
    fn a_claim_of_which_another_lane_hands_in_a_part_waits() {
        let mut hands = Hands::new(10, 0);
        let mut batch = concluded(&mut hands, &[1, 1, 1]);
        hands.merge(&mut batch);
        assert_eq!(taken(&mut hands, 0, 2), [1, 1]);
        assert!(!hands.has_outgoing());
        assert_eq!(taken(&mut hands, 1, 2), [0u64; 0]);
        hands.settling[0].clear();
        assert_eq!(taken(&mut hands, 1, 2), [1]);
    }
}
