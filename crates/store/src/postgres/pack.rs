//! What is kept of an attempt beside the columns of its row.

use std::time::Duration;

use sickbay_core::Failure;
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::signature::Signature;

use crate::pack::{Packer, Unpacker};

/// How attempts end, by the number in their row.
const ENDS: [AttemptEnd; 7] = [
    AttemptEnd::Failed,
    AttemptEnd::Quarantined,
    AttemptEnd::Crashed,
    AttemptEnd::LeaseExpired,
    AttemptEnd::Released,
    AttemptEnd::Replayed,
    AttemptEnd::Reset,
];

pub(super) fn end_from(code: i16) -> AttemptEnd {
    usize::try_from(code).ok().and_then(|code| ENDS.get(code).copied()).unwrap_or(AttemptEnd::Failed)
}

/// What went wrong and what was seen of it. Texts are clean.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) failure: Option<Failure>,
    pub(super) signature: Option<Signature>,
    pub(super) ran: Option<Duration>,
    pub(super) output: Option<String>,
}

impl Details {
    /// As bytes; none if there is nothing to say.
    pub(super) fn pack(&self) -> Option<Vec<u8>> {
        if *self == Self::default() {
            return None;
        }
        let mut packer = Packer(Vec::with_capacity(64));
        packer.outcome(self.failure.as_ref(), self.signature, self.ran, self.output.as_deref());
        Some(packer.0)
    }

    /// The inverse of [`Details::pack`]; what makes no sense is left out.
    pub(super) fn unpack(packed: Option<&[u8]>) -> Self {
        packed.and_then(|packed| Self::read(&mut Unpacker(packed))).unwrap_or_default()
    }

    fn read(unpacker: &mut Unpacker<'_>) -> Option<Self> {
        let mut details = Self::default();
        if unpacker.number()? == 1 {
            details.failure = Some(Failure {
                kind: unpacker.text()?.parse().ok()?,
                reason: unpacker.text()?.parse().ok()?,
                error: unpacker.text()?.to_owned(),
                code: unpacker.maybe_text()?.map(str::to_owned),
                retry_after: unpacker.maybe_number()?.map(Duration::from_millis),
                schema_path: unpacker.maybe_text()?.map(str::to_owned),
            });
        }
        let has_signature = unpacker.number()? == 1;
        let signature = Signature::from_bits(unpacker.number()?);
        details.signature = has_signature.then_some(signature);
        details.ran = unpacker.maybe_number()?.map(Duration::from_micros);
        details.output = unpacker.maybe_text()?.map(str::to_owned);
        Some(details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_round_trip_and_nothing_is_nothing() {
        let failure =
            Failure { schema_path: Some("/a".into()), ..Failure::transient("ü\u{fffd}").code("7") };
        let details = Details {
            failure: Some(failure.retry_after(Duration::from_secs(3))),
            signature: Some(Signature::from_bits(u64::MAX)),
            ran: Some(Duration::from_micros(9)),
            output: Some(String::new()),
        };
        let packed = details.pack().unwrap();
        assert_eq!(Details::unpack(Some(&packed)), details);
        assert_eq!(Details::default().pack(), None);
        for cut in 0..packed.len() {
            assert_eq!(
                Details::unpack(Some(&packed[..cut])),
                Details::default(),
                "what is cut off is left out"
            );
        }
    }
}
