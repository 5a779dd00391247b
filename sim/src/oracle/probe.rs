//! Claims while probes are let through (rule 31): which messages of a probed type come is left to the store, and
//! nothing else is.

use std::collections::BTreeSet;

use sickbay_core::port::Claim;
use sickbay_core::stats::TypeGate;

use super::Oracle;
use super::entry::Entry;

/// Queues and their types of which the store chooses what it lets through.
pub(super) struct Probed(BTreeSet<(usize, usize)>);

impl Probed {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, entry: &Entry) -> bool {
        entry.kind.is_some_and(|kind| self.0.contains(&(entry.queue, kind)))
    }
}

impl Oracle {
    /// What the store may choose from in this claim. A suspect that waits in one queue decides for the others that
    /// the process works on, so those count, too.
    pub(super) fn probed(&self, claim: &Claim) -> Probed {
        let mut probed = BTreeSet::new();
        for queue in self.works_on(claim) {
            let line = &self.lines[queue];
            let left = line.gates.iter().filter(|(_, gate)| matches!(gate, TypeGate::Probing { left: 1.. }));
            let waits = |kind: usize| {
                let mut live = line.live.iter().filter_map(|id| self.entries.get(id));
                live.any(|entry| entry.kind == Some(kind) && entry.is_waiting())
            };
            probed.extend(left.map(|(kind, _)| (queue, *kind)).filter(|(_, kind)| waits(*kind)));
        }
        Probed(probed)
    }

    /// Goes through what the store gave, and takes it as long as nothing but a probe's choice is needed to explain it.
    /// Answers what the claim should have got, which is what was seen if all is well.
    pub(super) fn hand_out_instead(
        &mut self,
        expected: &[u64],
        seen: &[u64],
        claim: &Claim,
        probed: &Probed,
    ) -> Vec<u64> {
        self.take_all_back(expected);
        let mut given = Vec::new();
        let hands = self.hands(claim.process);
        if hands.iter().any(|id| self.entries.get(id).is_some_and(|entry| entry.suspect)) {
            return given;
        }
        let queue = self.queue(claim.queue.as_str());
        while given.len() < seen.len().min(claim.max as usize) {
            let next = seen[given.len()];
            let Some(entry) = self.entries.get(&next).filter(|entry| entry.queue == queue) else { break };
            let (chosen, suspect) = (probed.has(entry), entry.suspect);
            let alone = self.certain_suspect_waits(claim, probed);
            let alone_in_hands = suspect && hands.is_empty() && given.is_empty();
            if !self.is_eligible(next, entry) || ((alone || suspect) && !alone_in_hands) {
                break;
            }
            let best = self.best(queue, |entry| !probed.has(entry) && (!alone || entry.suspect));
            match best {
                Some(best) if !chosen && best != next => {
                    if self.is_passed_over(best, claim) {
                        continue;
                    }
                    given.push(best);
                    break;
                }
                _ => {}
            }
            if !self.take(next, claim) {
                break;
            }
            given.push(next);
            if suspect {
                break;
            }
            self.take_run(next, claim, &mut given, |given, (id, entry)| {
                !probed.has(entry) || seen.get(given.len()) == Some(&id)
            });
        }
        self.doubt();
        if given == seen {
            self.check_nothing_is_left(queue, &given, claim);
        }
        given
    }

    /// Undoes what the oracle would have handed out.
    fn take_all_back(&mut self, expected: &[u64]) {
        expected.iter().for_each(|id| self.take_back(*id));
        for (at, before) in std::mem::take(&mut self.keys_taken).into_iter().rev() {
            match before {
                Some(owner) => drop(self.keys.insert(at, owner)),
                None => drop(self.keys.remove(&at)),
            }
        }
        self.doubt();
    }

    /// Whether the store came to the messages that the oracle has put off is not known.
    pub(super) fn doubt(&mut self) {
        for (id, before) in std::mem::take(&mut self.put_off) {
            self.entries.entry(id).and_modify(|entry| entry.unsure = Some(before));
        }
    }

    /// True if a suspect waits for the process whatever the probes choose.
    fn certain_suspect_waits(&self, claim: &Claim, probed: &Probed) -> bool {
        let certain = |entry: &Entry| entry.suspect && !probed.has(entry);
        self.works_on(claim).any(|queue| self.best(queue, certain).is_some())
    }

    /// True if the store comes to this message and hands it out to nobody: its bytes or its key forbid it.
    fn is_passed_over(&mut self, id: u64, claim: &Claim) -> bool {
        let Some(entry) = self.entries.get(&id) else { return false };
        if entry.damaged {
            self.set_damaged_aside(id);
            return true;
        }
        let foreign = entry.key.and_then(|key| self.key_stands(entry.queue, key));
        foreign.is_some_and(|(owner, done)| owner != id || done) && !self.take(id, claim)
    }

    /// I8: a claim that got less than it asked for left nothing that it could have got.
    fn check_nothing_is_left(&mut self, queue: usize, given: &[u64], claim: &Claim) {
        let suspect = |entry: &Entry| entry.suspect;
        let alone = given.iter().any(|id| self.entries.get(id).is_some_and(suspect))
            || self.works_on(claim).any(|queue| self.best(queue, suspect).is_some());
        // Damaged messages may have taken the place of others.
        if alone || given.len() >= claim.max as usize || self.reads_what_it_took {
            return;
        }
        let whole = |entry: &Entry| !entry.damaged && (entry.key.is_none() || entry.counters.replays == 0);
        if let Some(left) = self.best(queue, whole) {
            let process = claim.process.0;
            self.accuse("I8", format!("process {process} was given {given:?}, and {left} was left out"));
        }
    }
}
