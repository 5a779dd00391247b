//! Messages as columns, for statements that write many of them.

use std::collections::HashMap;

use sickbay_core::StoreError;
use sickbay_core::record::Body;
use tokio_postgres::types::Type;

use crate::door;
use crate::pack::{cause_code, pack_headers};
use crate::postgres::call::Param;
use crate::postgres::pack::Details;
use crate::postgres::row::odd;

/// The numbers of queues by their names.
pub(super) type Queues = HashMap<String, i32>;

/// The columns of messages in any of the tables that hold them.
#[derive(Default)]
pub(super) struct Messages<'r> {
    pub(super) queues: Vec<i32>,
    ranks: Vec<i16>,
    due_ats: Vec<i64>,
    pub(super) ids: Vec<i64>,
    pushed_ats: Vec<i64>,
    deadline_ats: Vec<Option<i64>>,
    checksums: Vec<i64>,
    first_failed_ats: Vec<Option<i64>>,
    last_epochs: Vec<Option<i64>>,
    last_claims: Vec<Option<i64>>,
    suspects: Vec<bool>,
    deferred: Vec<bool>,
    traces: Vec<bool>,
    types: Vec<Option<&'r str>>,
    pub(super) streams: Vec<Option<&'r str>>,
    keys: Vec<Option<&'r str>>,
    facts: Vec<Option<String>>,
    headers: Vec<Option<Vec<u8>>>,
    payloads: Vec<&'r [u8]>,
    /// Attempts and original payloads, in tables of their own.
    pub(super) attempts: Attempts<'r>,
    pub(super) originals: (Vec<i64>, Vec<&'r [u8]>),
}

/// What is known of a message beside its body.
#[derive(Clone, Copy, Default)]
pub(super) struct State {
    pub(super) due_at: i64,
    pub(super) suspect: bool,
    pub(super) deferred: bool,
    /// Epoch and claim of its last delivery.
    pub(super) last: Option<(u64, u64)>,
}

impl<'r> Messages<'r> {
    pub(super) fn add(&mut self, body: &'r Body, state: State, queues: &Queues) -> Result<(), StoreError> {
        let message = &body.message;
        let queue = queues.get(message.queue.as_str()).ok_or_else(|| odd(&"a queue is missing"))?;
        let id = message.id.number() as i64;
        let millis = sickbay_core::Timestamp::millis;
        let checksum = door::checksum(&message.payload) as i64;
        self.queues.push(*queue);
        self.ranks.push(9 - i16::from(message.priority.get()));
        self.due_ats.push(state.due_at);
        self.ids.push(id);
        self.pushed_ats.push(message.pushed_at.millis());
        self.deadline_ats.push(message.deadline_at.map(millis));
        // One whose bytes are damaged gets a checksum that says so.
        self.checksums.push(if body.damaged { !checksum } else { checksum });
        self.first_failed_ats.push(body.first_failed_at.map(millis));
        self.last_epochs.push(state.last.map(|(epoch, _)| epoch as i64));
        self.last_claims.push(state.last.map(|(_, claim)| claim as i64));
        self.suspects.push(state.suspect);
        self.deferred.push(state.deferred);
        self.traces.push(!body.history.is_empty() || body.original_payload.is_some());
        self.types.push(message.message_type.as_ref().map(sickbay_core::MessageType::as_str));
        self.streams.push(message.stream.as_ref().map(sickbay_core::StreamKey::as_str));
        self.keys.push(message.key.as_ref().map(sickbay_core::Key::as_str));
        self.facts.push(facts(body));
        self.headers.push(pack_headers(&message.headers));
        self.payloads.push(&message.payload);
        self.attempts.add(id, body);
        if let Some(original) = &body.original_payload {
            self.originals.0.push(id);
            self.originals.1.push(original);
        }
        Ok(())
    }

    /// In the order of [`COLUMNS`].
    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![
            (&self.queues, Type::INT4_ARRAY),
            (&self.ranks, Type::INT2_ARRAY),
            (&self.due_ats, Type::INT8_ARRAY),
            (&self.ids, Type::INT8_ARRAY),
            (&self.pushed_ats, Type::INT8_ARRAY),
            (&self.deadline_ats, Type::INT8_ARRAY),
            (&self.checksums, Type::INT8_ARRAY),
            (&self.first_failed_ats, Type::INT8_ARRAY),
            (&self.last_epochs, Type::INT8_ARRAY),
            (&self.last_claims, Type::INT8_ARRAY),
            (&self.suspects, Type::BOOL_ARRAY),
            (&self.deferred, Type::BOOL_ARRAY),
            (&self.traces, Type::BOOL_ARRAY),
            (&self.types, Type::TEXT_ARRAY),
            (&self.streams, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.facts, Type::TEXT_ARRAY),
            (&self.headers, Type::BYTEA_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
        ]
    }
}

/// What [`Messages::params`] are called.
pub(super) const COLUMNS: &str = "queue, rank, due_at, id, pushed_at, deadline_at, checksum, first_failed_at, last_epoch, \
    last_claim, suspect, deferred, traces, type, stream, key, facts, headers, payload";

/// The same as parameters.
pub(super) const PARAMS: &str =
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19";

/// A row of `waiting` made of them, but for queue and lane, which come first.
pub(super) const ROW: &str = "u.rank, u.due_at, u.id, u.pushed_at, u.deadline_at, u.checksum, u.first_failed_at, u.last_epoch, \
    u.last_claim, u.suspect, u.deferred, u.traces, u.type, u.stream, u.key, u.facts::integer[], u.headers, u.payload";

/// What is counted and known, as the database reads it; none if it is nothing.
fn facts(body: &Body) -> Option<String> {
    let c = &body.counters;
    let counts =
        [c.deliveries, c.failures, c.crashes, c.charges, c.releases, c.expiries, c.replays, c.earlier];
    let (stages, cause) = (body.stages.bits(), body.cause.map_or(0, cause_code));
    if counts == [0; 8] && stages == 0 && cause == 0 {
        return None;
    }
    let counts = counts.map(|count| (count as i32).to_string()).join(",");
    Some(format!("{{{counts},{stages},{cause}}}"))
}

/// The columns of attempts.
#[derive(Default)]
pub(super) struct Attempts<'r> {
    messages: Vec<i64>,
    numbers: Vec<i32>,
    started_ats: Vec<i64>,
    ended_ats: Vec<i64>,
    workers: Vec<&'r str>,
    ends: Vec<i16>,
    details: Vec<Option<Vec<u8>>>,
}

impl<'r> Attempts<'r> {
    fn add(&mut self, id: i64, body: &'r Body) {
        for attempt in &body.history {
            self.messages.push(id);
            self.numbers.push(attempt.number as i32);
            self.started_ats.push(attempt.started_at.millis());
            self.ended_ats.push(attempt.ended_at.millis());
            self.workers.push(&attempt.worker);
            self.ends.push(attempt.end as i16);
            let details = Details {
                failure: attempt.failure.clone(),
                signature: attempt.signature,
                ran: attempt.ran,
                output: attempt.output.clone(),
            };
            self.details.push(details.pack());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn params(&self) -> [Param<'_>; 7] {
        [
            (&self.messages, Type::INT8_ARRAY),
            (&self.numbers, Type::INT4_ARRAY),
            (&self.started_ats, Type::INT8_ARRAY),
            (&self.ended_ats, Type::INT8_ARRAY),
            (&self.workers, Type::TEXT_ARRAY),
            (&self.ends, Type::INT2_ARRAY),
            (&self.details, Type::BYTEA_ARRAY),
        ]
    }
}
