//! What is kept about a message beside its row, packed: few bytes, one column, one write.

use std::time::Duration;

use sickbay_core::quarantine::{Attempt, AttemptEnd};
use sickbay_core::signature::Signature;
use sickbay_core::{Failure, Kind, Reason, Stages, Timestamp};

use super::state::Leased;
use crate::pack::{Packer, Unpacker, cause_code, cause_from};

/// The largest history that is kept. What is beyond it loses its oldest attempts but the first.
const HISTORY_BYTES_MAX: usize = 256 << 10;

/// Packs what is counted and known of a message, but for deliveries and failures, which have columns.
pub(super) fn pack_facts(message: &Leased) -> Vec<u8> {
    let c = &message.counters;
    let mut packer = Packer(Vec::with_capacity(24));
    for number in
        [c.crashes, c.charges, c.releases, c.expiries, c.replays, c.earlier, u32::from(message.stages.bits())]
    {
        packer.number(u64::from(number));
    }
    packer.number(message.cause.map_or(0, cause_code) as u64);
    packer.maybe_number(message.first_failed_at.map(|at| at as u64));
    if let Some((epoch, claim)) = message.last {
        packer.number(epoch);
        packer.number(claim);
    }
    packer.0
}

/// The inverse of [`pack_facts`].
pub(super) fn unpack_facts(packed: &[u8], message: &mut Leased) {
    let mut unpacker = Unpacker(packed);
    let mut next = || unpacker.number().unwrap_or(0);
    let c = &mut message.counters;
    for slot in
        [&mut c.crashes, &mut c.charges, &mut c.releases, &mut c.expiries, &mut c.replays, &mut c.earlier]
    {
        *slot = next() as u32;
    }
    message.stages = Stages::from_bits(next() as u16);
    message.cause = cause_from(Some(next() as i64));
    message.first_failed_at = next().checked_sub(1).map(|at| at as i64);
    // Files of before did not say it.
    message.last = Some((next(), next())).filter(|(epoch, _)| *epoch > 0);
}

/// One attempt as it is kept: its texts are clean, and its error may go on in a shared trace.
pub(super) struct Entry<'a> {
    pub(super) number: u32,
    pub(super) started_at: i64,
    pub(super) ended_at: i64,
    pub(super) worker: &'a str,
    pub(super) end: AttemptEnd,
    pub(super) failure: Option<&'a Failure>,
    pub(super) error: &'a str,
    pub(super) code: Option<&'a str>,
    pub(super) schema_path: Option<&'a str>,
    pub(super) trace: Option<i64>,
    pub(super) signature: Option<Signature>,
    pub(super) ran: Option<Duration>,
    pub(super) output: Option<&'a str>,
}

const ENDS: [AttemptEnd; 7] = [
    AttemptEnd::Failed,
    AttemptEnd::Quarantined,
    AttemptEnd::Crashed,
    AttemptEnd::LeaseExpired,
    AttemptEnd::Released,
    AttemptEnd::Replayed,
    AttemptEnd::Reset,
];

/// Adds an attempt to a packed history, which loses its middle where it has grown too long.
pub(super) fn append(history: &mut Vec<u8>, entry: &Entry<'_>) {
    append_whole(history, entry);
    forget_middle(history);
}

/// Adds an attempt to a packed history, however long that is.
pub(super) fn append_whole(history: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut packer = Packer(Vec::with_capacity(128 + entry.error.len() + entry.worker.len()));
    packer.number(u64::from(entry.number));
    packer.number(entry.started_at as u64);
    packer.number(entry.ended_at as u64);
    packer.text(entry.worker);
    packer.number(ENDS.iter().position(|end| *end == entry.end).unwrap_or(0) as u64);
    packer.number(u64::from(entry.failure.is_some()));
    if let Some(failure) = entry.failure {
        packer.text(failure.kind.as_str());
        packer.text(failure.reason.as_str());
        packer.text(entry.error);
        packer.maybe_number(entry.trace.map(|trace| trace as u64 >> 1));
        packer.maybe_text(entry.code);
        packer.maybe_number(failure.retry_after.map(|wait| wait.as_millis() as u64));
        packer.maybe_text(entry.schema_path);
    }
    packer.maybe_number(entry.signature.map(|signature| signature.to_bits() >> 1));
    packer.number(entry.signature.map_or(0, |signature| signature.to_bits() & 1));
    packer.maybe_number(entry.ran.map(|ran| ran.as_micros() as u64));
    packer.maybe_text(entry.output);
    history.reserve_exact(packer.0.len() + 5);
    let mut head = Packer(std::mem::take(history));
    head.number(packer.0.len() as u64);
    head.0.extend_from_slice(&packer.0);
    *history = head.0;
}

/// Keeps a history from growing without end: the first attempt and the newest ones stay.
fn forget_middle(history: &mut Vec<u8>) {
    if history.len() <= HISTORY_BYTES_MAX {
        return;
    }
    let length = |bytes: &[u8]| {
        let mut unpacker = Unpacker(bytes);
        let entry = unpacker.number().unwrap_or(0) as usize;
        (bytes.len() - unpacker.0.len() + entry).min(bytes.len())
    };
    let first = length(history);
    let mut end = first;
    while end < history.len() && history.len() - (end - first) > HISTORY_BYTES_MAX * 3 / 4 {
        end += length(&history[end..]).max(1);
    }
    history.drain(first..end.min(history.len()));
}

/// An attempt and the trace that its error goes on in.
pub(super) type Kept = (Attempt, Option<i64>);

/// The attempts of a packed history, oldest first.
pub(super) fn entries(history: &[u8]) -> Vec<Kept> {
    let mut rest = Unpacker(history);
    let mut kept = Vec::new();
    while let Some(length) = rest.number() {
        let Some((entry, after)) = rest.0.split_at_checked(length as usize) else { break };
        rest.0 = after;
        kept.extend(read_entry(&mut Unpacker(entry)));
    }
    kept
}

fn read_entry(entry: &mut Unpacker<'_>) -> Option<Kept> {
    let number = entry.number()? as u32;
    let started_at = Timestamp::from_millis(entry.number()? as i64);
    let ended_at = Timestamp::from_millis(entry.number()? as i64);
    let worker = entry.text()?.to_owned();
    let end = *ENDS.get(entry.number()? as usize)?;
    let (mut failure, mut trace) = (None, None);
    if entry.number()? == 1 {
        let (kind, reason) = (entry.text()?.parse().unwrap_or(Kind::Unknown), entry.text()?);
        let error = entry.text()?.to_owned();
        trace = entry.maybe_number()?.map(|trace| (trace << 1) as i64);
        failure = Some(Failure {
            kind,
            reason: reason.parse().unwrap_or(Reason::Unknown),
            error,
            code: entry.maybe_text()?.map(str::to_owned),
            retry_after: entry.maybe_number()?.map(Duration::from_millis),
            schema_path: entry.maybe_text()?.map(str::to_owned),
        });
    }
    let (high, low) = (entry.maybe_number()?, entry.number()?);
    let signature = high.map(|high| Signature::from_bits(high << 1 | low));
    let ran = entry.maybe_number()?.map(Duration::from_micros);
    let output = entry.maybe_text()?.map(str::to_owned);
    Some((Attempt { number, started_at, ended_at, worker, end, failure, signature, ran, output }, trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u32, failure: Option<&Failure>) -> Entry<'_> {
        Entry {
            number,
            started_at: 1,
            ended_at: 2,
            worker: "w",
            end: AttemptEnd::Failed,
            failure,
            error: failure.map_or("", |failure| &failure.error),
            code: failure.and_then(|failure| failure.code.as_deref()),
            schema_path: None,
            trace: None,
            signature: Some(Signature::from_bits(u64::MAX)),
            ran: Some(Duration::from_micros(7)),
            output: Some("out"),
        }
    }

    #[test]
    fn a_history_round_trips() {
        let failure = Failure::transient("no route").code("E1").retry_after(Duration::from_secs(3));
        let mut history = Vec::new();
        append(&mut history, &entry(1, Some(&failure)));
        append(&mut history, &entry(2, None));
        let kept = entries(&history);
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0].0.failure.as_ref(), Some(&failure));
        assert_eq!(kept[0].0.signature, Some(Signature::from_bits(u64::MAX)));
        assert_eq!((kept[1].0.number, kept[1].0.output.as_deref()), (2, Some("out")));
        for cut in 0..history.len() {
            assert!(entries(&history[..cut]).len() < 2, "what is cut off is left out");
        }
    }

    #[test]
    fn an_endless_history_keeps_its_beginning_and_its_end() {
        let failure = Failure::transient("x".repeat(1000));
        let mut history = Vec::new();
        for number in 1..=2000 {
            append(&mut history, &entry(number, Some(&failure)));
            assert!(history.len() <= HISTORY_BYTES_MAX + 2000);
        }
        let kept = entries(&history);
        assert_eq!(kept.first().map(|kept| kept.0.number), Some(1));
        assert_eq!(kept.last().map(|kept| kept.0.number), Some(2000));
        assert!(kept.len() > 100);
    }
}
