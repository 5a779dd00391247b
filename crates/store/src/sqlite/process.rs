//! Processes: who works on the store (contract 41).

use sickbay_core::Timestamp;
use sickbay_core::stats::ProcessView;

use super::state::Process;
use super::tx::Tx;
use crate::door::WORKS_ON;
use crate::present::Present;

/// A claim that a process made last from a queue.
#[derive(Clone, Debug)]
pub(super) struct LastClaim {
    pub(super) at: i64,
    pub(super) worker: Box<str>,
}

impl Process {
    /// It claims from a queue.
    pub(super) fn claims_from(&mut self, queue: i64, worker: &str, at: i64) {
        match self.queues.get_mut(&queue) {
            Some(last) if *last.worker == *worker => last.at = at,
            _ => drop(self.queues.insert(queue, LastClaim { at, worker: worker.into() })),
        }
    }

    /// The queues it claimed from a short while ago.
    pub(super) fn works_on(&self, now: i64) -> impl Iterator<Item = (i64, &LastClaim)> {
        let recent = self.queues.iter().filter(move |(_, last)| now - last.at <= WORKS_ON.as_millis() as i64);
        recent.map(|(queue, last)| (*queue, last))
    }
}

impl Tx<'_> {
    pub(super) fn processes(&self) -> Vec<ProcessView> {
        let mut present = Present::default();
        for (process, known) in &self.state.processes {
            for (queue, last) in known.works_on(self.now) {
                if let Some(queue) = self.state.queues.get(&queue) {
                    present.works(*process, &last.worker, &queue.name, Timestamp::from_millis(last.at), 0);
                }
            }
        }
        for lease in self.state.leases.values() {
            let queue = self.state.queues.get(&lease.place.queue());
            if let (Some(claim), Some(queue)) = (self.state.claims.get(&lease.claim), queue) {
                let claimed_at = Timestamp::from_millis(claim.claimed_at);
                present.works(claim.process, &claim.worker, &queue.name, claimed_at, 1);
            }
        }
        present.finish()
    }
}
