//! How stores pack what is kept beside a message: few bytes, and no content that it cannot hold.

use std::time::Duration;

use sickbay_core::message::Headers;
use sickbay_core::signature::Signature;
use sickbay_core::{Cause, Failure};

/// Writes numbers in as few bytes as they need, and texts with their lengths.
#[derive(Default)]
pub(crate) struct Packer(pub(crate) Vec<u8>);

impl Packer {
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Zero for none, otherwise one more than the number.
    pub(crate) fn maybe_number(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number.saturating_add(1)));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn maybe_text(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// How an attempt ended, as far as its handler or the gate said.
    pub(crate) fn outcome(
        &mut self,
        failure: Option<&Failure>,
        signature: Option<Signature>,
        ran: Option<Duration>,
        output: Option<&str>,
    ) {
        self.number(u64::from(failure.is_some()));
        if let Some(failure) = failure {
            self.text(failure.kind.as_str());
            self.text(failure.reason.as_str());
            self.text(&failure.error);
            self.maybe_text(failure.code.as_deref());
            self.maybe_number(failure.retry_after.map(|wait| wait.as_millis() as u64));
            self.maybe_text(failure.schema_path.as_deref());
        }
        self.number(u64::from(signature.is_some()));
        self.number(signature.map_or(0, Signature::to_bits));
        self.maybe_number(ran.map(|ran| ran.as_micros() as u64));
        self.maybe_text(output);
    }
}

/// Reads what [`Packer`] wrote; `None` where the bytes make no sense.
pub(crate) struct Unpacker<'a>(pub(crate) &'a [u8]);

impl<'a> Unpacker<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0u64, 0u32);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    pub(crate) fn maybe_number(&mut self) -> Option<Option<u64>> {
        Some(self.number()?.checked_sub(1))
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn maybe_text(&mut self) -> Option<Option<&'a str>> {
        if self.number()? == 0 { Some(None) } else { Some(Some(self.text()?)) }
    }
}

/// Headers as bytes: lengths and texts, or nothing if there are none.
pub(crate) fn pack_headers(headers: &Headers) -> Option<Vec<u8>> {
    if headers.is_empty() {
        return None;
    }
    let mut packed = Vec::new();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        packed.extend_from_slice(&(text.len() as u32).to_le_bytes());
        packed.extend_from_slice(text.as_bytes());
    }
    Some(packed)
}

/// The inverse of [`pack_headers`]; what makes no sense is left out (the checksum has told by then).
pub(crate) fn unpack_headers(packed: Option<&[u8]>) -> Headers {
    let mut rest = packed.unwrap_or_default();
    let mut texts = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((text, after)) = after.split_at_checked(length) else { break };
        texts.push(String::from_utf8_lossy(text).into_owned());
        rest = after;
    }
    let mut texts = texts.into_iter();
    let mut headers = Headers::new();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        headers.push((name, value));
    }
    headers
}

pub(crate) const fn cause_code(cause: Cause) -> i64 {
    match cause {
        Cause::Failed => 1,
        Cause::Crashed => 2,
        Cause::LeaseExpired => 3,
        Cause::Released => 4,
        Cause::Replayed => 5,
    }
}

pub(crate) const fn cause_from(code: Option<i64>) -> Option<Cause> {
    match code {
        Some(1) => Some(Cause::Failed),
        Some(2) => Some(Cause::Crashed),
        Some(3) => Some(Cause::LeaseExpired),
        Some(4) => Some(Cause::Released),
        Some(5) => Some(Cause::Replayed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let headers = vec![("a".to_owned(), String::new()), ("ü".to_owned(), "x\0y".to_owned())];
        assert_eq!(unpack_headers(pack_headers(&headers).as_deref()), headers);
        assert_eq!(unpack_headers(None), Headers::new());
        assert_eq!(unpack_headers(Some(&[9, 0, 0, 0, 1])), Headers::new());
    }
}
