//! Views (rule 30).

use std::collections::{BTreeMap, BTreeSet};

use sickbay_core::clock::Timestamp;
use sickbay_core::id::IdPrefix;
use sickbay_core::message::Status;
use sickbay_core::quarantine::{AttemptEnd, DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{
    ProcessView, QueueStats, StreamDetail, StreamEntry, StreamHold, StreamState, StreamView,
};
use sickbay_core::{Key, MessageId, QueueName, StoreError, StreamKey};

use super::push::Ownership;
use super::state::{Dead, Place, Queue, Record, State};
use crate::door;
use crate::present::Present;

impl State {
    pub(super) fn stats(&self, name: &QueueName, now: Timestamp) -> Result<QueueStats, StoreError> {
        let queue = self.queue(name)?;
        let mut stats = QueueStats {
            pushed: queue.pushed,
            completed: queue.completed,
            duplicates: queue.duplicates,
            failures: queue.failures,
            quarantined: queue.quarantined,
            replayed: queue.replayed,
            removed: queue.removed,
            paused: queue.paused,
            paused_types: queue.gates.iter().map(|(name, gate)| (name.clone(), *gate)).collect(),
            ..QueueStats::default()
        };
        for record in self.messages.values().filter(|record| record.message.queue == *name) {
            count(&mut stats, queue, record, now);
        }
        Ok(stats)
    }

    pub(super) fn find(&self, prefix: IdPrefix, now: Timestamp) -> Result<Option<MessageView>, StoreError> {
        door::check_prefix(prefix, self.last)?;
        let kept =
            |id: &MessageId| self.kept.get(id).filter(|(_, until)| *until > now).map(|(record, _)| record);
        let mut known =
            prefix.numbers(self.last).filter_map(|id| self.messages.get(&id).or_else(|| kept(&id)));
        let Some(record) = known.next() else { return Ok(None) };
        if let Some(second) = known.next() {
            return Err(door::ambiguous_prefix(record.message.id, second.message.id));
        }
        Ok(Some(record.view(now)))
    }

    pub(super) fn quarantine(&self, filter: &QuarantineFilter, page: PageRequest) -> Page<DeadLetter> {
        let mut found: Vec<(u64, DeadLetter)> = self.matching(filter).collect();
        found.sort_unstable_by_key(|(order, _)| std::cmp::Reverse(*order));
        found.retain(|(order, _)| page.after.is_none_or(|after| *order < after));
        let more = found.len() > page.rows_max as usize;
        found.truncate(page.rows_max as usize);
        let next = found.last().map(|(order, _)| *order).filter(|_| more);
        Page { rows: found.into_iter().map(|(_, row)| row).collect(), next }
    }

    pub(super) fn matching<'a>(
        &'a self,
        filter: &'a QuarantineFilter,
    ) -> impl Iterator<Item = (u64, DeadLetter)> + 'a {
        let dead = self.messages.values().filter_map(|record| Some((record, record.dead()?)));
        dead.filter(|(record, (dead, _))| matches(filter, record, dead))
            .filter_map(|(record, (dead, _))| Some((dead.order, record.dead_letter()?)))
    }

    pub(super) fn streams(
        &self,
        name: &QueueName,
        rows_max: u32,
        now: Timestamp,
    ) -> Result<Vec<StreamView>, StoreError> {
        let queue = self.queue(name)?;
        let live = self.messages.values().filter(|record| record.is_live() && record.message.queue == *name);
        let mut keys: BTreeSet<&StreamKey> =
            live.filter_map(|record| record.message.stream.as_ref()).collect();
        keys.extend(queue.holds.keys());
        let mut views: Vec<StreamView> =
            keys.into_iter().filter_map(|key| self.stream(name, key, now)).collect();
        views.sort_by_key(|view| match view.state {
            StreamState::Held => 0,
            StreamState::Scheduled => 1,
            StreamState::Leased => 2,
            StreamState::Ready => 3,
        });
        views.truncate(rows_max as usize);
        Ok(views)
    }

    /// Whether one stream moves, and by which message it is known.
    fn stream(&self, name: &QueueName, key: &StreamKey, now: Timestamp) -> Option<StreamView> {
        let queue = self.queues.get(name)?;
        let entries = self.entries(name, key);
        let holds = queue.holds.get(key).map_or(0, BTreeSet::len);
        let leased = entries.iter().find(|entry| !entry.is_waiting());
        let first = entries.iter().find(|entry| !entry.deferred);
        let hold = queue.holds.get(key).and_then(|holds| holds.first());
        let hold = hold.filter(|hold| first.is_none_or(|first| **hold < first.message.id));
        let view = |state, head, since, due_at| StreamView {
            queue: name.clone(),
            key: key.clone(),
            state,
            head: Some(head),
            since,
            due_at,
            length: (entries.len() + holds) as u64,
        };
        if let Some(leased) = leased {
            let since = leased.held().map(|held| held.started_at);
            return Some(view(StreamState::Leased, leased.message.id, since, None));
        }
        if let Some(hold) = hold {
            let since = self.messages.get(hold).and_then(Record::dead).map(|(dead, _)| dead.quarantined_at);
            return Some(view(StreamState::Held, *hold, since, None));
        }
        let next = entries.iter().min_by_key(|entry| (entry.due_at, entry.message.id));
        let head = first.or(next)?;
        let state = if head.due_at > now { StreamState::Scheduled } else { StreamState::Ready };
        Some(view(state, head.message.id, None, Some(head.due_at)))
    }

    /// A stream with its holds and entries in their order.
    pub(super) fn stream_detail(
        &self,
        name: &QueueName,
        key: &StreamKey,
        rows_max: u32,
        now: Timestamp,
    ) -> Result<Option<StreamDetail>, StoreError> {
        let queue = self.queue(name)?;
        let Some(view) = self.stream(name, key, now) else { return Ok(None) };
        let held_since = |id: &MessageId| {
            let (dead, _) = self.messages.get(id)?.dead()?;
            Some(StreamHold { id: *id, since: dead.quarantined_at })
        };
        let holds = queue.holds.get(key).into_iter().flatten().take(rows_max as usize);
        let entry = |record: &Record| StreamEntry {
            id: record.message.id,
            message_type: record.message.message_type.clone(),
            status: record.status(now),
            due_at: record.due_at,
            deferred: record.deferred,
            failures: record.counters.failures,
        };
        let entries = self.entries(name, key).into_iter().take(rows_max as usize);
        Ok(Some(StreamDetail {
            view,
            holds: holds.filter_map(held_since).collect(),
            entries: entries.map(entry).collect(),
        }))
    }

    /// Who works on the store (rule 41).
    pub(super) fn processes(&self, now: Timestamp) -> Vec<ProcessView> {
        let mut present = Present::default();
        for (process, queues) in &self.claimed_from {
            for (queue, (last, worker)) in queues {
                if now.since(*last) <= door::WORKS_ON {
                    present.works(*process, worker.as_str(), queue, *last, 0);
                }
            }
        }
        for record in self.messages.values() {
            if let Some(held) = record.held() {
                present.works(held.process, &held.worker, &record.message.queue, held.started_at, 1);
            }
        }
        present.finish()
    }

    pub(super) fn is_done(&self, queue: &QueueName, key: &Key, now: Timestamp) -> Result<bool, StoreError> {
        self.queue(queue)?;
        Ok(matches!(self.owner(queue, key, now), Ownership::Done(_)))
    }
}

fn count(stats: &mut QueueStats, queue: &Queue, record: &Record, now: Timestamp) {
    let status = record.status(now);
    match status {
        Status::Pending => stats.pending += 1,
        Status::Scheduled => stats.scheduled += 1,
        Status::Failed => stats.failed += 1,
        Status::Active => stats.active += 1,
        Status::Dead => stats.dead += 1,
        Status::Discarded => stats.discarded += 1,
        Status::Completed => {}
    }
    if matches!(status, Status::Scheduled | Status::Failed) {
        let due_at = record.due_at;
        stats.next_due_at = Some(stats.next_due_at.map_or(due_at, |next| next.min(due_at)));
        stats.latest_due_at = stats.latest_due_at.max(Some(due_at));
    }
    if let Place::Dead(dead) = &record.place {
        *stats.reasons.entry(dead.failure.reason.as_str().to_owned()).or_default() += 1;
    }
    let failures = record.counters.failures;
    if record.is_waiting() && failures > 0 {
        *stats.retry_counts.entry(failures).or_default() += 1;
        let limit = queue.policy.deliveries_max(record.message.message_type.as_ref());
        stats.poison_candidates += u64::from(failures + 1 >= limit);
    }
}

fn matches(filter: &QuarantineFilter, record: &Record, dead: &Dead) -> bool {
    let discarded = matches!(record.place, Place::Discarded(..));
    let message = &record.message;
    let wanted_text = filter.error_contains.as_ref().map(|text| text.to_lowercase());
    filter.discarded == discarded
        && filter.queue.as_ref().is_none_or(|queue| *queue == message.queue)
        && filter.message_type.as_ref().is_none_or(|name| message.message_type.as_ref() == Some(name))
        && filter.stream.as_ref().is_none_or(|stream| message.stream.as_ref() == Some(stream))
        && filter.reason.is_none_or(|reason| reason == dead.failure.reason)
        && filter.kind.is_none_or(|kind| kind == dead.failure.kind)
        && filter.signature.is_none_or(|signature| signature == dead.signature)
        && filter.since.is_none_or(|since| dead.quarantined_at >= since)
        && filter.until.is_none_or(|until| dead.quarantined_at < until)
        && wanted_text.is_none_or(|text| dead.failure.error.to_lowercase().contains(&text))
}

impl Record {
    /// Why it was set aside and when it was discarded, if it was.
    fn dead(&self) -> Option<(&Dead, Option<Timestamp>)> {
        match &self.place {
            Place::Dead(dead) => Some((dead, None)),
            Place::Discarded(dead, at) => Some((dead, Some(*at))),
            Place::Waiting | Place::Leased(_) | Place::Completed => None,
        }
    }

    fn dead_letter(&self) -> Option<DeadLetter> {
        let (dead, discarded_at) = self.dead()?;
        let failed = |end| matches!(end, AttemptEnd::Failed | AttemptEnd::Crashed | AttemptEnd::Quarantined);
        let mut failed =
            self.history.iter().filter(|attempt| failed(attempt.end)).map(|attempt| attempt.ended_at);
        let first_failed_at = failed.next().unwrap_or(dead.quarantined_at);
        Some(DeadLetter {
            id: self.message.id,
            queue: self.message.queue.clone(),
            message_type: self.message.message_type.clone(),
            stream: self.message.stream.clone(),
            set_aside: dead.set_aside,
            kind: dead.failure.kind,
            reason: dead.failure.reason,
            error: door::first_line(&dead.failure.error),
            signature: dead.signature,
            counters: self.counters,
            pushed_at: self.message.pushed_at,
            first_failed_at,
            last_failed_at: failed.next_back().unwrap_or(first_failed_at),
            quarantined_at: dead.quarantined_at,
            discarded_at,
            payload_bytes: self.message.payload.len() as u64,
        })
    }

    fn view(&self, now: Timestamp) -> MessageView {
        let dead = self.dead_letter();
        MessageView {
            message: self.message.clone(),
            original_payload: self.original_payload.clone(),
            status: self.status(now),
            due_at: self.is_waiting().then_some(self.due_at),
            counters: self.counters,
            stages: self.stages,
            cause: self.cause,
            suspect: self.suspect,
            worker: self.held().map(|held| held.worker.clone()),
            last_delivery: self.last_token.filter(|_| dead.is_some()).map(|token| token.to_string()),
            dead,
            history: self.history.clone(),
        }
    }
}

/// The queues by name, with their policies.
pub(super) fn queues(state: &State) -> Vec<(QueueName, sickbay_core::QueuePolicy)> {
    let all: &BTreeMap<QueueName, Queue> = &state.queues;
    all.iter().map(|(name, queue)| (name.clone(), queue.policy.as_ref().clone())).collect()
}
