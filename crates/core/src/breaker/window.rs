//! The failures of the last minute, exact to the millisecond and bounded in memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::name::MessageType;
use crate::signature::Signature;

const MINUTE: Duration = Duration::from_secs(60);
/// So many signatures are watched at a time; the one that has been quiet longest is forgotten first.
const TRACKED_MAX: usize = 1024;

/// One window per message type and signature, or per message type alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    tracked: BTreeMap<(MessageType, Option<Signature>), Window>,
}

impl Windows {
    /// Adds a failure and answers how many there were in the last minute, this one included.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        message_type: &MessageType,
        signature: Option<Signature>,
    ) -> u64 {
        let key = (message_type.clone(), signature);
        if self.tracked.len() >= TRACKED_MAX && !self.tracked.contains_key(&key) {
            self.make_room(now);
        }
        self.tracked.entry(key).or_default().add(now)
    }

    /// Forgets all failures of a type.
    pub(super) fn forget(&mut self, message_type: &MessageType) {
        self.tracked.retain(|(tracked, _), _| tracked != message_type);
    }

    fn make_room(&mut self, now: Timestamp) {
        self.tracked.retain(|_, window| now.since(window.latest) < MINUTE);
        while self.tracked.len() >= TRACKED_MAX {
            let quietest = self.tracked.iter().min_by_key(|(_, window)| window.latest);
            let Some(key) = quietest.map(|(key, _)| key.clone()) else { return };
            self.tracked.remove(&key);
        }
    }
}

/// Failures by millisecond: never more entries than a minute has of those.
#[derive(Clone, Debug, Default)]
struct Window {
    failures: VecDeque<(Timestamp, u64)>,
    total: u64,
    latest: Timestamp,
}

impl Window {
    fn add(&mut self, now: Timestamp) -> u64 {
        // A clock that steps back must not make the window forget what it has seen.
        let now = if self.failures.is_empty() { now } else { now.max(self.latest) };
        self.latest = now;
        let over = self.failures.partition_point(|(at, _)| now.since(*at) >= MINUTE);
        self.total -= self.failures.drain(..over).map(|(_, count)| count).sum::<u64>();
        match self.failures.back_mut() {
            Some((at, count)) if *at == now => *count += 1,
            _ => self.failures.push_back((now, 1)),
        }
        self.total += 1;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_signatures_are_watched_than_allowed_and_the_quietest_goes_first() {
        let order = MessageType::new("Order").unwrap();
        let mut windows = Windows::default();
        for n in 0..10 * TRACKED_MAX as u64 {
            let now = Timestamp::from_millis(n as i64);
            assert_eq!(windows.add(now, &order, Some(Signature::from_bits(n))), 1);
            assert_eq!(windows.add(now, &order, Some(Signature::from_bits(u64::MAX))), n + 1, "never quiet");
            assert!(windows.tracked.len() <= TRACKED_MAX);
        }
        for n in 0..3 * TRACKED_MAX as u64 {
            let now = Timestamp::from_millis(20 * TRACKED_MAX as i64 + n as i64);
            assert_eq!(windows.add(now, &order, Some(Signature::from_bits(1 << 40 | n))), 1);
            assert!(windows.tracked.len() <= TRACKED_MAX, "only new ones");
        }
    }

    #[test]
    fn a_flood_within_one_millisecond_takes_one_entry() {
        let mut window = Window::default();
        for n in 1..=100_000 {
            assert_eq!(window.add(Timestamp::from_millis(5)), n);
        }
        assert_eq!(window.failures.len(), 1);
        assert_eq!(window.clone().add(Timestamp::from_millis(5 + 59_999)), 100_001);
        assert_eq!(window.add(Timestamp::from_millis(5 + 60_000)), 1, "all of them are a minute old");
    }
}
