//! The work: messages of 256 bytes, a tally of those handled, and what came of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The size of a message's JSON.
pub(crate) const PAYLOAD_BYTES: usize = 256;

/// Messages per call where a peer has a bulk enqueue.
pub(crate) const ENQUEUE_BATCH: usize = 1000;

/// The pause between two messages of a latency measurement: about 80 messages a second.
pub(crate) const PRODUCER_PAUSE: Duration = Duration::from_micros(12_500);

/// How long to wait for the last handler before a peer counts as stuck.
const PATIENCE: Duration = Duration::from_secs(300);

/// Samples at the start of a latency measurement that are left out: connections, caches and plans warm up.
const WARM_UP: usize = 20;

/// What every message carries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: usize,
    kind: String,
    customer: u64,
    note: String,
}

impl Message {
    pub(crate) fn new(id: usize) -> Self {
        let mut message =
            Self { id, kind: "order.created".into(), customer: 7_000_000 + id as u64, note: String::new() };
        let bare = message.to_json().len();
        message.note = "n".repeat(PAYLOAD_BYTES.saturating_sub(bare));
        message
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a struct of plain fields is JSON")
    }
}

/// The one place that reads the clock.
#[expect(clippy::disallowed_methods, reason = "a measurement needs the machine's clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits on the machine's clock.
#[expect(clippy::disallowed_methods, reason = "a producer at low load pauses between messages")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Who was handled when. Every message counts once, however often it is delivered.
#[derive(Debug)]
pub(crate) struct Tally {
    handled: Vec<AtomicBool>,
    sent_at: Vec<OnceLock<Instant>>,
    started_at: Vec<OnceLock<Instant>>,
    count: AtomicUsize,
    finished_at: OnceLock<Instant>,
    finished: Notify,
}

impl Tally {
    /// A tally that is complete when `count` messages were handled.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            handled: (0..count).map(|_| AtomicBool::new(false)).collect(),
            sent_at: (0..count).map(|_| OnceLock::new()).collect(),
            started_at: (0..count).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
            finished_at: OnceLock::new(),
            finished: Notify::new(),
        })
    }

    /// The producer is about to enqueue this message.
    pub(crate) fn sending(&self, id: usize) {
        let _ = self.sent_at[id].set(now());
    }

    /// A handler for this message began at `started_at`.
    pub(crate) fn started(&self, id: usize, started_at: Instant) {
        let _ = self.started_at[id].set(started_at);
        self.handled(id);
    }

    /// The handler of this message is through. True for the last message of all.
    pub(crate) fn handled(&self, id: usize) -> bool {
        if self.handled[id].swap(true, Ordering::Relaxed) {
            return false;
        }
        let last = self.count.fetch_add(1, Ordering::AcqRel) + 1 == self.handled.len();
        if last {
            let _ = self.finished_at.set(now());
            self.finished.notify_one();
        }
        last
    }

    /// Waits for the last handler and says when it ran.
    pub(crate) async fn finished_at(&self) -> Result<Instant> {
        let waited = tokio::time::timeout(PATIENCE, self.finished.notified()).await;
        let handled = self.count.load(Ordering::Acquire);
        waited.with_context(|| format!("only {handled} of {} messages were handled", self.handled.len()))?;
        self.finished_at.get().copied().context("a notice without a time")
    }

    /// Whether the last handler ran.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished_at.get().is_some()
    }

    /// Gives stragglers two seconds, then takes stock.
    pub(crate) async fn latencies(&self) -> Latencies {
        let _ = tokio::time::timeout(Duration::from_secs(2), self.finished.notified()).await;
        let mut latencies = Latencies::default();
        for (sent, started) in self.sent_at.iter().zip(&self.started_at).skip(WARM_UP) {
            match (sent.get(), started.get()) {
                (Some(sent), Some(started)) => latencies.samples.push(started.duration_since(*sent)),
                (Some(_), None) => latencies.missing += 1,
                (None, _) => {}
            }
        }
        latencies
    }
}

/// How many messages one producer sends at low load in this time, warm-up included.
pub(crate) fn latency_count(duration: Duration) -> usize {
    WARM_UP + (duration.as_secs_f64() / PRODUCER_PAUSE.as_secs_f64()).ceil() as usize
}

/// One drain.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(crate) count: usize,
    pub(crate) enqueue: Duration,
    /// Until the last handler ran. Peers that acknowledge behind the handlers' back are not through then.
    pub(crate) handled: Duration,
    /// Until the last acknowledgement was committed, or sent to a peer that confirms none.
    pub(crate) drain: Duration,
}

impl Drained {
    pub(crate) fn drain_per_s(&self) -> f64 {
        self.count as f64 / self.drain.as_secs_f64()
    }

    pub(crate) fn handled_per_s(&self) -> f64 {
        self.count as f64 / self.handled.as_secs_f64()
    }

    pub(crate) fn enqueue_per_s(&self) -> f64 {
        self.count as f64 / self.enqueue.as_secs_f64()
    }
}

/// Times from enqueue to handler.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    samples: Vec<Duration>,
    /// Messages that no handler had seen two seconds after the last was sent.
    pub(crate) missing: usize,
}

impl Latencies {
    pub(crate) fn append(&mut self, mut other: Self) {
        self.samples.append(&mut other.samples);
        self.missing += other.missing;
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(crate) fn percentile_ms(&self, fraction: f64) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let index = ((sorted.len() as f64 * fraction) as usize).min(sorted.len().checked_sub(1)?);
        Some((sorted[index].as_secs_f64() * 1e6).round() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_256_bytes_of_json() {
        for id in [0, 9, 12_345, 4_999_999] {
            assert_eq!(Message::new(id).to_json().len(), PAYLOAD_BYTES);
        }
    }

    #[test]
    fn a_message_delivered_twice_counts_once() {
        let tally = Tally::new(2);
        assert!(!tally.handled(0));
        assert!(!tally.handled(0));
        assert!(tally.handled(1));
    }

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        let samples = (1..=100).rev().map(Duration::from_millis).collect();
        let latencies = Latencies { samples, missing: 0 };
        assert_eq!(latencies.percentile_ms(0.50), Some(51.0));
        assert_eq!(latencies.percentile_ms(0.99), Some(100.0));
        assert_eq!(Latencies::default().percentile_ms(0.5), None);
    }
}
