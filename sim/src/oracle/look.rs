//! What can be seen of a store, against what is known.

use std::collections::BTreeMap;

use sickbay_core::LeaseToken;
use sickbay_core::message::Status;
use sickbay_core::quarantine::{AttemptEnd, MessageView};
use sickbay_core::stats::{QueueStats, StreamDetail};

use super::Oracle;
use super::entry::{Entry, Gone, Place};

/// How many messages of a queue are where, as both sides count it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    waiting: [u64; 3],
    active: u64,
    dead: u64,
    discarded: u64,
    pushed: u64,
    completed: u64,
    duplicates: u64,
    failures: u64,
    quarantined: u64,
    replayed: u64,
    removed: u64,
    paused: bool,
    reasons: BTreeMap<String, u64>,
    retries: BTreeMap<u32, u64>,
    next_due: Option<i64>,
}

impl Oracle {
    /// True if the clock has not gone back in this life of the store.
    fn time_is_plain(&self) -> bool {
        self.clock == self.now
    }

    fn status(&self, entry: &Entry) -> Status {
        match (&entry.place, entry.due_at > self.now) {
            (Place::Waiting, false) => Status::Pending,
            (Place::Waiting, true) if entry.counters.failures == 0 => Status::Scheduled,
            (Place::Waiting, true) => Status::Failed,
            (Place::Leased { .. }, _) => Status::Active,
            (Place::Dead { .. }, _) => Status::Dead,
            (Place::Discarded { .. }, _) => Status::Discarded,
        }
    }

    /// I1: the figures of a queue.
    pub fn saw_stats(&mut self, queue: &str, stats: &QueueStats) {
        let index = self.queue(queue);
        if !stats.adds_up() {
            return self.accuse("I1", format!("the counts of {queue} do not add up: {stats:?}"));
        }
        let plain = self.time_is_plain();
        let seen = seen_counts(stats, plain);
        let expected = self.counts(index, plain);
        let lost = seen.active + seen.dead + seen.discarded + seen.waiting.iter().sum::<u64>();
        let there =
            expected.active + expected.dead + expected.discarded + expected.waiting.iter().sum::<u64>();
        let invariant = if lost == there { "counts" } else { "I1" };
        self.expect(invariant, || format!("the counts of {queue}"), &seen, &expected);
    }

    fn counts(&self, queue: usize, plain: bool) -> Counts {
        let line = &self.lines[queue];
        let mut counts = Counts {
            pushed: line.pushed,
            completed: line.completed,
            duplicates: line.duplicates,
            failures: line.failures,
            quarantined: line.quarantined,
            replayed: line.replayed,
            removed: line.removed,
            paused: line.paused,
            ..Counts::default()
        };
        for entry in self.entries.values().filter(|entry| entry.queue == queue) {
            let status = self.status(entry);
            match status {
                Status::Pending => counts.waiting[0] += 1,
                Status::Scheduled => counts.waiting[1] += 1,
                Status::Failed => counts.waiting[2] += 1,
                Status::Active => counts.active += 1,
                Status::Dead => counts.dead += 1,
                Status::Discarded | Status::Completed => counts.discarded += 1,
            }
            if let Place::Dead { reason, .. } = entry.place {
                *counts.reasons.entry(reason.as_str().to_owned()).or_default() += 1;
            }
            if entry.is_waiting() && entry.counters.failures > 0 {
                *counts.retries.entry(entry.counters.failures).or_default() += 1;
            }
            if matches!(status, Status::Scheduled | Status::Failed) {
                counts.next_due =
                    Some(counts.next_due.map_or(entry.due_at, |due: i64| due.min(entry.due_at)));
            }
        }
        counts.flatten_time(plain)
    }

    /// I1, I4: one message in full.
    pub fn saw_message(&mut self, id: u64, view: Option<&MessageView>) {
        let gone = self.gone.get(id as usize - 1).copied().unwrap_or(Gone::Removed);
        let due_at = view.and_then(|view| view.due_at).map(sickbay_core::Timestamp::millis);
        if let Some(entry) = self.entries.get_mut(&id)
            && let Some(before) = entry.unsure.take()
            && due_at == Some(before)
        {
            entry.due_at = before;
        }
        let Some(entry) = self.entries.get(&id).cloned() else {
            let kept = matches!(gone, Gone::Completed { kept_until } if kept_until > self.now);
            let seen = view.map(|view| view.status);
            // What was forgotten does not come back with an earlier time.
            if self.set_back > 0
                && matches!(gone, Gone::Completed { kept_until: 0.. })
                && seen != Some(Status::Active)
            {
                return;
            }
            let expected = kept.then_some(Status::Completed);
            return self.expect("I7", || format!("message {id}, which is {gone:?}"), &seen, &expected);
        };
        let Some(view) = view else {
            return self
                .accuse("I1", format!("message {id} is lost; it was last known as {:?}", entry.place));
        };
        let what = |part: &str| format!("message {id}: {part}");
        if self.time_is_plain() || !entry.is_waiting() {
            let status = self.status(&entry);
            self.expect("I1", || what("status"), &view.status, &status);
        }
        self.expect("I4", || what("counters"), &view.counters, &entry.counters);
        self.expect("I4", || what("cause"), &view.cause, &entry.cause);
        self.expect("I6", || what("suspect"), &view.suspect, &entry.suspect);
        self.expect("I1", || what("stages"), &view.stages.bits(), &entry.stages);
        self.expect("time", || what("due"), &due_at, &entry.is_waiting().then_some(entry.due_at));
        if !entry.damaged {
            self.expect("I9", || what("bytes"), &view.message.payload, &entry.bytes);
            self.expect("I9", || what("original bytes"), &view.original_payload, &entry.original);
        }
        let set_aside = match entry.place {
            Place::Dead { set_aside, reason } | Place::Discarded { set_aside, reason, .. } => {
                Some((set_aside, reason))
            }
            Place::Waiting | Place::Leased { .. } => None,
        };
        let seen = view.dead.as_ref().map(|dead| (dead.set_aside, dead.reason));
        self.expect("I6", || what("set aside"), &seen, &set_aside);
        let history: Vec<(u32, AttemptEnd)> = view.history.iter().map(|row| (row.number, row.end)).collect();
        self.expect("I4", || what("history"), &history, &entry.history);
        self.check_causes(id, &entry);
        self.check_texts(id, view);
    }

    /// I11: no text is kept that could hurt whoever reads it.
    fn check_texts(&mut self, id: u64, view: &MessageView) {
        let errors = view.history.iter().filter_map(|row| row.failure.as_ref().map(|failure| &failure.error));
        let hostile = |text: &&String| text.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
        let found = errors.chain(view.dead.iter().map(|dead| &dead.error)).find(hostile).cloned();
        if let Some(text) = found {
            self.accuse("I11", format!("message {id} keeps the uncleaned text {text:?}"));
        }
    }

    /// A stream's holds and entries.
    pub fn saw_stream(&mut self, queue: &str, stream: &str, detail: Option<&StreamDetail>) {
        let (queue, stream) = (self.queue(queue), self.stream_names.index(stream));
        let line = &self.lines[queue];
        let holds: Vec<u64> = line.holds.get(&stream).into_iter().flatten().copied().collect();
        let entries = line.streams.get(&stream).into_iter().flatten();
        let entries: Vec<(u64, bool)> =
            entries.filter_map(|id| Some((*id, self.entries.get(id)?.deferred))).collect();
        let seen = detail.map(|detail| {
            let holds: Vec<u64> = detail.holds.iter().map(|hold| hold.id.number()).collect();
            let entries: Vec<_> = detail.entries.iter().map(|e| (e.id.number(), e.deferred)).collect();
            (holds, entries)
        });
        let expected = (!holds.is_empty() || !entries.is_empty()).then_some((holds, entries));
        self.expect("order", || "holds and entries of a stream".to_owned(), &seen, &expected);
    }

    /// I4 in its own words: no more deliveries than one and the recorded causes.
    fn check_causes(&mut self, id: u64, entry: &Entry) {
        let explains = |end: AttemptEnd| !matches!(end, AttemptEnd::Quarantined | AttemptEnd::Reset);
        let causes = entry.history.iter().filter(|(_, end)| explains(*end)).count() as u32;
        if entry.seen > 1 + entry.brought + causes {
            self.accuse(
                "I4",
                format!("message {id} was delivered {} times for {causes} recorded causes", entry.seen),
            );
        }
    }

    /// A handler is about to run on this message, by the worker's word.
    pub fn handled(&mut self, token: LeaseToken, payload: &[u8], late: bool) {
        let id = token.message.number();
        let Some(entry) = self.entries.get(&id).filter(|_| self.is_current(token)) else { return };
        if entry.bytes != payload {
            return self.accuse("I9", format!("a handler got other bytes than message {id} has"));
        }
        if let Some(failed) = self.failing_before(id) {
            let text = format!(
                "a handler was called for message {id} of a stream in which {failed} has just failed"
            );
            return self.accuse("order", text);
        }
        if late {
            self.accuse("time", format!("a handler was called for message {id} after its deadline"));
        }
    }
}

impl Oracle {
    /// A handler is about to answer that this delivery failed, and that nothing may go on without it.
    pub fn failing(&mut self, token: LeaseToken) {
        self.failing.push(token);
    }

    /// An earlier message of the same stream that failed and is not settled yet.
    fn failing_before(&self, id: u64) -> Option<u64> {
        let entry = self.entries.get(&id).filter(|entry| entry.stream.is_some())?;
        let before = |token: &&LeaseToken| {
            let other = self.entries.get(&token.message.number());
            let same = other.is_some_and(|other| (other.queue, other.stream) == (entry.queue, entry.stream));
            same && token.message.number() < id && self.is_current(**token)
        };
        self.failing.iter().find(before).map(|token| token.message.number())
    }
}

impl Counts {
    /// While the clock is behind the store's time, what is due is a matter of taste.
    fn flatten_time(mut self, plain: bool) -> Self {
        if !plain {
            self.waiting = [self.waiting.iter().sum(), 0, 0];
            self.next_due = None;
        }
        self
    }
}

fn seen_counts(stats: &QueueStats, plain: bool) -> Counts {
    Counts {
        waiting: [stats.pending, stats.scheduled, stats.failed],
        active: stats.active,
        dead: stats.dead,
        discarded: stats.discarded,
        pushed: stats.pushed,
        completed: stats.completed,
        duplicates: stats.duplicates,
        failures: stats.failures,
        quarantined: stats.quarantined,
        replayed: stats.replayed,
        removed: stats.removed,
        paused: stats.paused,
        reasons: stats.reasons.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (name.clone(), *n)).collect(),
        retries: stats.retry_counts.clone(),
        next_due: stats.next_due_at.map(sickbay_core::Timestamp::millis),
    }
    .flatten_time(plain)
}
