//! A stand-in broker, in memory: at least once, with acknowledgements and redelivery, and with the
//! faults that brokers have. [`BrokerSource`] guards it the way real brokers are guarded.

mod source;
mod streams;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sickbay_core::{Counters, NewMessage, Timestamp};
use tokio::sync::Notify;

pub use source::BrokerSource;
pub use streams::BrokerStreams;

/// A message as the broker knows it.
#[derive(Clone, Debug)]
struct Stored {
    /// Unique for this message, also across redeliveries.
    origin: String,
    message: NewMessage,
    published_at: Timestamp,
    counters: Counters,
}

/// A message in a consumer's hands.
#[derive(Clone, Debug)]
struct Unacknowledged {
    stored: Stored,
    received_at: Timestamp,
}

#[derive(Default)]
struct State {
    published: u64,
    deliveries: u64,
    acknowledged: u64,
    queue: VecDeque<Stored>,
    /// By the number of their delivery.
    unacknowledged: BTreeMap<u64, Unacknowledged>,
    loses_next_acknowledgement: bool,
}

/// The broker. Clones are the same broker.
#[derive(Clone, Default)]
pub struct Broker {
    state: Arc<Mutex<State>>,
    arrived: Arc<Notify>,
}

impl Broker {
    /// An empty broker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes a message. Answers its origin.
    pub fn publish(&self, message: NewMessage, now: Timestamp) -> String {
        let mut state = self.state();
        state.published += 1;
        let origin = format!("stand-in/{}", state.published);
        let counters = Counters::default();
        state.queue.push_back(Stored { origin: origin.clone(), message, published_at: now, counters });
        drop(state);
        self.arrived.notify_waiters();
        origin
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    /// How many messages are in consumers' hands.
    pub fn unacknowledged(&self) -> usize {
        self.state().unacknowledged.len()
    }

    /// How many messages were acknowledged and are gone.
    pub fn acknowledged(&self) -> u64 {
        self.state().acknowledged
    }

    /// The consumer is gone: what it held is delivered again.
    pub fn disconnect(&self) {
        let mut state = self.state();
        let held = std::mem::take(&mut state.unacknowledged);
        for (_, mut held) in held.into_iter().rev() {
            held.stored.counters.crashes += 1;
            state.queue.push_front(held.stored);
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// The connection breaks when something is acknowledged next, before the broker hears of it.
    pub fn lose_next_acknowledgement(&self) {
        self.state().loses_next_acknowledgement = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out at most so many, each with the number of its delivery.
    fn receive(&self, max: usize, now: Timestamp) -> Vec<(u64, Unacknowledged)> {
        let mut state = self.state();
        let count = state.queue.len().min(max);
        let taken: Vec<Stored> = state.queue.drain(..count).collect();
        let mut received = Vec::with_capacity(count);
        for mut stored in taken {
            stored.counters.deliveries += 1;
            state.deliveries += 1;
            let held = Unacknowledged { stored, received_at: now };
            let number = state.deliveries;
            state.unacknowledged.insert(number, held.clone());
            received.push((number, held));
        }
        received
    }

    fn held(&self, number: u64) -> Option<Unacknowledged> {
        self.state().unacknowledged.get(&number).cloned()
    }

    /// Done with it. False if the broker has given it to somebody else, or did not hear it.
    fn acknowledge(&self, number: u64) -> bool {
        if std::mem::take(&mut self.state().loses_next_acknowledgement) {
            self.disconnect();
            return false;
        }
        let mut state = self.state();
        let known = state.unacknowledged.remove(&number).is_some();
        state.acknowledged += u64::from(known);
        known
    }

    /// Untried: back to where it was.
    fn give_back(&self, number: u64) -> bool {
        let mut state = self.state();
        let Some(mut held) = state.unacknowledged.remove(&number) else { return false };
        held.stored.counters.releases += 1;
        state.queue.push_front(held.stored);
        drop(state);
        self.arrived.notify_waiters();
        true
    }
}
