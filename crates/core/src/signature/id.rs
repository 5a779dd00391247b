//! The fingerprint itself: 64 bits, shown as 13 letters and digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The digits of the text form: base 32 without `i`, `l`, `o` and `u`, which people misread.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of the text form: 13 digits of 5 bits hold 64 bits.
const LENGTH: usize = 13;

/// What failures have in common: a fingerprint of queue, message type, reason and error.
///
/// Shown, parsed and serialised as 13 lower-case characters. The same failure has the same
/// signature on every machine and in every version of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(u64);

impl Signature {
    /// The signature with these bits, as a store keeps them.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits to keep in a store.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(LENGTH);
        for place in (0..LENGTH).rev() {
            let digit = (self.0 >> (place * 5)) & 31;
            text.push(char::from(DIGITS[digit as usize]));
        }
        f.pad(&text)
    }
}

/// The text is not a signature: it takes 13 characters of `0-9a-z` without `i`, `l`, `o`, `u`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a signature: 13 characters of 0-9 and a-z (without i, l, o, u) are expected")]
pub struct NotASignature;

impl FromStr for Signature {
    type Err = NotASignature;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != LENGTH {
            return Err(NotASignature);
        }
        let mut bits: u128 = 0;
        for byte in text.bytes() {
            let lower = byte.to_ascii_lowercase();
            let digit = DIGITS.iter().position(|&d| d == lower).ok_or(NotASignature)?;
            bits = (bits << 5) | digit as u128;
        }
        u64::try_from(bits).map(Self).map_err(|_| NotASignature)
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
