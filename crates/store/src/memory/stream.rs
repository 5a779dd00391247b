//! Streams: their entries, their holds, and what of them can be claimed (rules 19 to 25).

use sickbay_core::clock::Timestamp;
use sickbay_core::policy::{Ordering, WhenHeadQuarantined};
use sickbay_core::{MessageId, QueueName, StoreError, StreamKey};

use super::state::{Queue, Record, State};

impl Queue {
    /// True if what is set aside keeps its place (rule 23).
    pub(super) fn holds_heads(&self) -> bool {
        self.policy.ordering == Ordering::Strict
            && self.policy.when_head_quarantined == WhenHeadQuarantined::Hold
    }

    /// True if a hold stands before this entry (rule 20).
    pub(super) fn is_held(&self, stream: &StreamKey, id: MessageId) -> bool {
        self.holds.get(stream).is_some_and(|holds| holds.range(..id).next().is_some())
    }

    /// Takes the hold of one message away (rule 24).
    pub(super) fn remove_hold(&mut self, record: &Record) {
        let Some(stream) = &record.message.stream else { return };
        if let Some(holds) = self.holds.get_mut(stream) {
            holds.remove(&record.message.id);
            if holds.is_empty() {
                self.holds.remove(stream);
            }
        }
    }

    /// What of one stream can be claimed now, gates aside (rule 20).
    pub(super) fn eligible_entries<'a>(
        &self,
        stream: &StreamKey,
        entries: &[&'a Record],
        now: Timestamp,
    ) -> Vec<&'a Record> {
        if entries.iter().any(|entry| !entry.is_waiting()) {
            return Vec::new();
        }
        let head = entries.iter().find(|entry| !entry.deferred);
        let head = head.filter(|entry| !self.is_held(stream, entry.message.id));
        let deferred = entries.iter().filter(|entry| entry.deferred);
        deferred.chain(head).filter(|entry| entry.due_at <= now).copied().collect()
    }
}

impl State {
    /// The entries of a stream in their order (rule 19).
    pub(super) fn entries(&self, queue: &QueueName, stream: &StreamKey) -> Vec<&Record> {
        let of_stream = |record: &&Record| {
            record.is_live()
                && record.message.queue == *queue
                && record.message.stream.as_ref() == Some(stream)
        };
        self.messages.values().filter(of_stream).collect()
    }

    /// The entry that a run may go on with after `last` (rule 21). A run also ends before a message
    /// whose bytes or key have to be looked at first (rules 6 and 12): that is the head's business.
    pub(super) fn next_of_run(
        &self,
        queue: &QueueName,
        stream: &StreamKey,
        last: MessageId,
        now: Timestamp,
    ) -> Option<MessageId> {
        let entries = self.entries(queue, stream);
        let next = entries.into_iter().find(|entry| entry.message.id > last && !entry.deferred)?;
        let queue = self.queues.get(queue)?;
        let goes_on = next.is_waiting()
            && !next.suspect
            && next.is_intact()
            && (next.message.key.is_none() || next.counters.replays == 0)
            && next.due_at <= now
            && !queue.is_held(stream, next.message.id)
            && queue.is_open(next.message.message_type.as_ref());
        goes_on.then_some(next.message.id)
    }

    /// Lets a blocked stream go on without its head (rule 25).
    pub(super) fn release_followers(
        &mut self,
        queue: &QueueName,
        stream: &StreamKey,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if self.queue_mut(queue)?.holds.remove(stream).is_some() {
            return Ok(true);
        }
        let head = self.entries(queue, stream).into_iter().find(|entry| !entry.deferred);
        let blocking =
            head.filter(|entry| entry.is_waiting() && entry.due_at > now).map(|entry| entry.message.id);
        let Some(record) = blocking.and_then(|id| self.messages.get_mut(&id)) else { return Ok(false) };
        record.deferred = true;
        Ok(true)
    }
}
