//! Streams of a strict queue that a broker feeds: of each, one message is in hand, and what came later waits
//! behind it. Once one of them has failed, the store has the stream, and the later ones follow it there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sickbay_core::StreamKey;

/// Who of a stream is in hand and who waits behind, by the numbers of their deliveries.
#[derive(Default)]
pub struct BrokerStreams(Mutex<Streams>);

impl BrokerStreams {
    pub(super) fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(super) struct Streams {
    in_hand: HashMap<StreamKey, u64>,
    behind: HashMap<StreamKey, VecDeque<u64>>,
    /// Those whose turn has come.
    freed: VecDeque<u64>,
}

impl Streams {
    /// True if it is the one in hand from now on; otherwise it waits behind that one.
    pub(super) fn take_turn(
        &mut self,
        stream: &StreamKey,
        number: u64,
        is_held: impl Fn(u64) -> bool,
    ) -> bool {
        if self.in_hand.get(stream).is_some_and(|first| *first != number && is_held(*first)) {
            self.behind.entry(stream.clone()).or_default().push_back(number);
            return false;
        }
        self.in_hand.insert(stream.clone(), number);
        true
    }

    /// The next whose turn has come.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.freed.pop_front()
    }

    /// The one in hand is through: the one behind it is next.
    pub(super) fn go_on(&mut self, stream: &StreamKey) {
        self.in_hand.remove(stream);
        let next = self.behind.get_mut(stream).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.behind.remove(stream);
        }
        self.freed.extend(next);
    }

    /// The one in hand is elsewhere now, and so must be those behind it.
    pub(super) fn take_behind(&mut self, stream: &StreamKey) -> VecDeque<u64> {
        self.in_hand.remove(stream);
        self.behind.remove(stream).unwrap_or_default()
    }
}
