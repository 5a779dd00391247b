//! The oracle: what must be true of a store, known only from what was asked of it and what it answered.
//!
//! It stands at the port ([`Watched`](crate::watch::Watched)) and shares no code with any store. Every
//! answer is compared with what the contract (`docs/store-contract.md`) says; the first difference is
//! the violation that a run ends with.

mod act;
mod claim;
mod entry;
mod flow;
mod look;
mod probe;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sickbay_core::QueuePolicy;
use sickbay_core::port::ProcessId;
use sickbay_core::stats::TypeGate;

pub use act::Act;
pub use entry::{Entry, Gone, Place};
pub(crate) use flow::told as adoption;
pub use settle::{Fate, Told};

/// The first thing that was not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which of the invariants of the design is broken.
    pub invariant: &'static str,
    /// What was seen, and what should have been.
    pub text: String,
}

/// Names are kept by their place in a list.
#[derive(Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    fn index(&mut self, name: &str) -> usize {
        self.known(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    fn known(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }
}

/// A queue, and what went through it.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) policy: Arc<QueuePolicy>,
    /// The step at which the policy last changed.
    pub(crate) policy_since: u64,
    pub(crate) paused: bool,
    pub(crate) gates: BTreeMap<usize, TypeGate>,
    pub(crate) holds: BTreeMap<usize, BTreeSet<u64>>,
    pub(crate) live: BTreeSet<u64>,
    pub(crate) streams: BTreeMap<usize, BTreeSet<u64>>,
    pub(crate) pushed: u64,
    pub(crate) completed: u64,
    pub(crate) duplicates: u64,
    pub(crate) failures: u64,
    pub(crate) quarantined: u64,
    pub(crate) replayed: u64,
    pub(crate) removed: u64,
}

/// Who carries a key, and until when it is known to be done.
#[derive(Clone, Copy)]
pub(crate) struct KeyOwner {
    pub(crate) id: u64,
    pub(crate) done_until: Option<i64>,
}

/// Everything that was acknowledged, and what follows from it.
#[derive(Default)]
pub struct Oracle {
    /// The store's time: within one life of the store it never goes back.
    pub(crate) now: i64,
    /// The clock's time.
    pub(crate) clock: i64,
    /// How often the clock has been set back.
    pub(crate) set_back: u64,
    pub(crate) calls: u64,
    pub(crate) queue_names: Names,
    pub(crate) stream_names: Names,
    pub(crate) key_names: Names,
    pub(crate) type_names: Names,
    pub(crate) lines: Vec<Line>,
    /// What is waiting, leased, dead or discarded.
    pub(crate) entries: BTreeMap<u64, Entry>,
    /// What became of message `n + 1` if it is no longer there.
    pub(crate) gone: Vec<Gone>,
    pub(crate) keys: BTreeMap<(usize, usize), KeyOwner>,
    /// Who was adopted from where, and when.
    pub(crate) origins: BTreeMap<(usize, String), (u64, i64)>,
    /// When each process last asked which queue.
    pub(crate) asked: BTreeMap<ProcessId, BTreeMap<usize, i64>>,
    /// Epoch and number of the last claim that handed something out.
    pub(crate) last_claim: (u64, u64),
    pub(crate) deliveries: u64,
    /// The store looks at the bytes of what a claim took, and not before: damaged ones take the place of others.
    pub(crate) reads_what_it_took: bool,
    /// Messages that the last claim put off because of their keys, and when they were due before.
    put_off: Vec<(u64, i64)>,
    /// Keys that the last claim gave to messages, and who had them before.
    keys_taken: Vec<((usize, usize), Option<KeyOwner>)>,
    /// Deliveries whose handlers failed.
    failing: Vec<sickbay_core::LeaseToken>,
    violation: Option<Violation>,
}

impl Oracle {
    /// What was found, if anything.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Deliveries handed out so far.
    pub fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// Notes a violation; only the first one counts.
    pub fn accuse(&mut self, invariant: &'static str, text: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, text: text.into() });
        }
    }

    pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(
        &mut self,
        invariant: &'static str,
        what: impl FnOnce() -> String,
        seen: &T,
        expected: &T,
    ) {
        if seen != expected && self.violation.is_none() {
            let text = format!("{}: {seen:?}, and not {expected:?}", what());
            self.accuse(invariant, text);
        }
    }

    /// The store is about to be called at this time by the clock: what time made due happens first.
    pub fn call(&mut self, clock: i64) {
        self.calls += 1;
        self.set_back += u64::from(clock < self.clock);
        self.clock = clock;
        self.now = self.now.max(clock);
        self.expire();
    }

    pub(crate) fn queue(&mut self, name: &str) -> usize {
        let index = self.queue_names.index(name);
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, Line::default);
        }
        index
    }

    /// Messages that wait or are leased, in all queues.
    pub fn live(&self) -> usize {
        self.lines.iter().map(|line| line.live.len()).sum()
    }

    /// Messages in quarantine, discarded ones included.
    pub fn set_aside(&self) -> usize {
        self.entries.len() - self.live()
    }

    /// The numbers of messages in a place of this kind, oldest first.
    pub fn numbers(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.entries.iter().filter(|(_, entry)| wanted(entry)).map(|(id, _)| *id).collect()
    }

    /// How many messages were ever acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.gone.len() as u64
    }

    /// What is known of a message that is there.
    pub fn entry(&self, id: u64) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// The streams that a hold or a scheduled head blocks: queue and stream by name.
    pub fn streams(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (queue, line) in self.lines.iter().enumerate() {
            let keys: BTreeSet<usize> = line.holds.keys().chain(line.streams.keys()).copied().collect();
            all.extend(
                keys.into_iter()
                    .map(|stream| (self.queue_names.0[queue].clone(), self.stream_names.0[stream].clone())),
            );
        }
        all
    }

    /// How often the clock has been set back so far.
    pub fn set_back(&self) -> u64 {
        self.set_back
    }

    /// True if probes of a type are let through: which messages they are is left to the store.
    pub fn is_probed(&mut self, queue: &str) -> bool {
        let queue = self.queue(queue);
        self.lines[queue].gates.values().any(|gate| matches!(gate, TypeGate::Probing { .. }))
    }

    /// True if a message of this queue may meet a key that it does not own.
    pub fn has_strange_keys(&mut self, queue: &str) -> bool {
        let queue = self.queue(queue);
        let strange =
            |entry: &Entry| entry.queue == queue && entry.key.is_some() && entry.counters.replays > 0;
        self.entries.values().any(strange)
    }

    /// Messages that have to be looked at to know when they are due.
    pub fn unsure(&self) -> Vec<u64> {
        self.numbers(|entry| entry.unsure.is_some())
    }

    /// The store's time.
    pub fn time(&self) -> i64 {
        self.now
    }

    /// The gates of types, in words.
    pub fn gates(&self) -> String {
        let gates = |line: &Line| format!("{:?}", line.gates);
        self.lines.iter().map(gates).collect::<Vec<_>>().join(", ")
    }

    /// Every message that is there, in words.
    pub fn tell(&self) -> BTreeMap<u64, String> {
        let stream = |entry: &Entry| entry.stream.map(|stream| self.stream_names.0[stream].clone());
        let kind = |entry: &Entry| entry.kind.map(|kind| self.type_names.0[kind].clone());
        let tell = |entry: &Entry| {
            let place = match &entry.place {
                Place::Leased { process, .. } => format!("leased by {}", process.0),
                other => format!("{other:?}"),
            };
            let marks =
                [(entry.suspect, " suspect"), (entry.deferred, " deferred"), (entry.damaged, " damaged")];
            let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
            let due = (entry.due_at - self.now).max(0);
            format!(
                "{} {:?} {:?} p{} {place}{marks} due in {due} ms",
                self.queue_names.0[entry.queue],
                stream(entry),
                kind(entry),
                entry.priority
            )
        };
        self.entries.iter().map(|(id, entry)| (*id, tell(entry))).collect()
    }

    /// Forgets what was noted about handlers long gone.
    pub fn forget(&mut self) {
        let current: Vec<_> = self.failing.iter().copied().filter(|token| self.is_current(*token)).collect();
        self.failing = current;
    }

    /// What a process holds, smallest number first.
    pub fn hands(&self, process: ProcessId) -> Vec<u64> {
        let held = |entry: &Entry| entry.is_leased_by(process);
        self.lines
            .iter()
            .flat_map(|line| &line.live)
            .copied()
            .filter(|id| self.entries.get(id).is_some_and(held))
            .collect::<BTreeSet<u64>>()
            .into_iter()
            .collect()
    }
}
