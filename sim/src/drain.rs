//! Faults stop. Everything that is ready must get through (I8), and nothing acknowledged may be missing.

use std::time::Duration;

use sickbay_core::port::{Claim, Deliveries, Desk, Exchange};
use sickbay_core::stats::TypeGate;
use sickbay_core::{MessageType, QueueName, Settlement, StreamKey, WorkerName};

use crate::generate::TYPES;
use crate::wait::wait;
use crate::world::{QUEUES, World};

/// How often the clock is moved on before what is left counts as stuck.
const ROUNDS: u32 = 60;
/// The process that empties the queues.
const LAST: u64 = 9;

impl World {
    /// Opens every gate, lets every blocked stream go, completes what comes, and looks at everything.
    pub(crate) fn drain(&mut self) {
        for by in self.crews.keys().copied().collect::<Vec<_>>() {
            self.stop(by);
        }
        self.catch_up();
        self.open_everything();
        for _ in 0..ROUNDS {
            if self.violation().is_some() || self.oracle().live() == 0 {
                break;
            }
            self.release_streams();
            self.pass(Duration::from_secs(600));
            self.complete_all();
        }
        if self.violation().is_none() {
            let stuck = self.oracle().numbers(|entry| entry.is_waiting() || entry.is_leased());
            if !stuck.is_empty() {
                self.oracle().accuse("I8", format!("messages {stuck:?} never get through"));
            }
        }
        self.look_at_all();
        let written = self.fixture.effects();
        if written != self.effects && self.violation().is_none() {
            self.oracle().accuse("I1", "the effects written are not those acknowledged");
        }
    }

    fn open_everything(&self) {
        for queue in QUEUES.iter().filter_map(|name| QueueName::new(name).ok()) {
            drop(wait(self.store.set_paused(&queue, false)));
            for kind in TYPES.iter().filter_map(|name| MessageType::new(name).ok()) {
                drop(wait(self.store.set_type_gate(&queue, &kind, TypeGate::Open)));
            }
        }
    }

    fn release_streams(&self) {
        let streams = self.oracle().streams();
        for (queue, stream) in streams {
            let (Ok(queue), Ok(stream)) = (QueueName::new(queue), StreamKey::new(stream)) else { continue };
            drop(wait(self.store.release_followers(&queue, &stream)));
        }
    }

    fn complete_all(&self) {
        let mut idle = 0;
        for name in QUEUES.iter().cycle().take(1000) {
            let (Ok(queue), Ok(worker)) = (QueueName::new(name), WorkerName::new("last")) else { return };
            let claim = Claim {
                queue,
                worker,
                process: self.process(LAST),
                max: 8,
                wait: Duration::ZERO,
                lease: Duration::from_secs(60),
            };
            let Ok(taken) = wait(self.store.exchange(Exchange::claim(claim))) else { return };
            let tokens = taken.deliveries.iter().map(sickbay_core::Delivery::token);
            let settlements: Vec<Settlement> = tokens.map(Settlement::complete).collect();
            idle = if settlements.is_empty() { idle + 1 } else { 0 };
            if idle > QUEUES.len() || self.violation().is_some() {
                return;
            }
            drop(wait(self.store.exchange(Exchange::settle(settlements))));
        }
    }
}
