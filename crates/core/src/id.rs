//! Identifiers: of a message, and of a delivery of it.
//!
//! A store numbers its messages 1, 2, 3 … and never uses a number again. People see that number as
//! text that looks random, so that the first few characters already tell two messages apart. The
//! text is the number times an odd constant, with its bits reversed: the first `n` characters depend
//! only on the low `5n` bits of the number. That is why a prefix can be looked up without an index:
//! it names the numbers of one residue class, and few of those exist.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The low 60 bits are used: twelve characters of five bits.
const BITS: u32 = 60;
const MASK: u64 = (1 << BITS) - 1;
const CHARACTERS: usize = 12;
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Crockford's alphabet in lower case: no i, l, o, u.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The identity of a message: given once, never changed, never reused, also across replays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u64);

impl MessageId {
    /// From the store's number; `None` if it is zero or above 60 bits.
    pub const fn from_number(number: u64) -> Option<Self> {
        if number == 0 || number > MASK { None } else { Some(Self(number)) }
    }

    /// The store's number. Later messages have larger ones.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The first eight characters: enough for people to tell messages apart.
    pub fn short(self) -> String {
        self.to_string()[..8].to_owned()
    }
}

/// The inverse of `FACTOR` modulo 2^64, by Newton's iteration.
const fn factor_inverse() -> u64 {
    let mut inverse = FACTOR;
    let mut round = 0;
    while round < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reversed = (self.0.wrapping_mul(FACTOR) & MASK).reverse_bits() >> (64 - BITS);
        let mut text = [0u8; CHARACTERS];
        for (i, slot) in text.iter_mut().enumerate() {
            let shift = BITS as usize - 5 * (i + 1);
            *slot = ALPHABET[(reversed >> shift) as usize & 31];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}#{}", self.0)
    }
}

/// Why a message id or prefix was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Not one of the alphabet's characters.
    #[error("{character:?} cannot be part of a message id; ids consist of 0-9 and a-z without i, l, o, u")]
    Character {
        /// The character met.
        character: char,
    },
    /// Empty or longer than an id.
    #[error("a message id has {CHARACTERS} characters, not {length}")]
    Length {
        /// How many characters were given.
        length: usize,
    },
}

/// The beginning of a message id, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    residue: u64,
    modulus: u64,
}

impl IdPrefix {
    /// The numbers up to `last` whose ids begin with this prefix, smallest first.
    pub fn numbers(self, last: u64) -> impl Iterator<Item = MessageId> {
        (0..)
            .map_while(move |i: u64| self.modulus.checked_mul(i)?.checked_add(self.residue))
            .take_while(move |number| *number <= last)
            .filter_map(MessageId::from_number)
    }

    /// About how many numbers up to `last` begin with this prefix.
    pub fn candidates(self, last: u64) -> u64 {
        last / self.modulus + 1
    }
}

impl FromStr for IdPrefix {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let length = text.chars().count();
        if length == 0 || length > CHARACTERS {
            return Err(InvalidId::Length { length });
        }
        let mut reversed = 0u64;
        for character in text.chars() {
            let lower = character.to_ascii_lowercase() as u32;
            let digit = ALPHABET.iter().position(|known| u32::from(*known) == lower);
            reversed = reversed << 5 | digit.ok_or(InvalidId::Character { character })? as u64;
        }
        let bits = 5 * length as u32;
        let modulus = 1u64 << bits;
        let product = reversed.reverse_bits() >> (64 - bits);
        Ok(Self { residue: product.wrapping_mul(factor_inverse()) & (modulus - 1), modulus })
    }
}

impl FromStr for MessageId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let length = text.chars().count();
        let prefix = IdPrefix::from_str(text)?;
        if length != CHARACTERS {
            return Err(InvalidId::Length { length });
        }
        Self::from_number(prefix.residue).ok_or(InvalidId::Length { length })
    }
}

impl Serialize for MessageId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The fencing token of one delivery, and its identity: which message, handed out in which claim,
/// in which epoch of the store. A settlement takes effect only under the current token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The store's epoch; a restart, restore or fail-over begins a new one and voids all older tokens.
    pub epoch: u64,
    /// The claim that handed the message out. Later claims have larger numbers.
    pub claim: u64,
    /// The message.
    pub message: MessageId,
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch, self.claim, self.message)
    }
}

/// A text that is no lease token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no lease token; one looks like 3.1041.8w3kq0v7m2xn")]
pub struct InvalidToken(String);

impl FromStr for LeaseToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let parse = || {
            let mut parts = text.splitn(3, '.');
            let (epoch, claim) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some(Self { epoch, claim, message: parts.next()?.parse().ok()? })
        };
        parse().ok_or_else(|| InvalidToken(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> MessageId {
        MessageId::from_number(number).unwrap()
    }

    #[test]
    fn ids_round_trip_through_text() {
        for number in (1..5000).chain([1 << 40, MASK - 1, MASK]) {
            assert_eq!(id(number).to_string().parse::<MessageId>().unwrap(), id(number));
        }
    }

    #[test]
    fn the_first_eight_characters_of_a_million_ids_differ() {
        let mut seen: Vec<_> = (1..=1_000_000).map(|n| id(n).short()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1_000_000);
    }

    #[test]
    fn a_prefix_names_exactly_the_ids_that_begin_with_it() {
        let last = 20_000;
        for number in [1, 77, 19_999] {
            for length in 1..=12 {
                let text = id(number).to_string();
                let prefix: IdPrefix = text[..length].parse().unwrap();
                let found: Vec<_> = prefix.numbers(last).collect();
                let expected: Vec<_> =
                    (1..=last).map(id).filter(|i| i.to_string().starts_with(&text[..length])).collect();
                assert_eq!(found, expected, "{text} {length}");
            }
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        assert_eq!("".parse::<IdPrefix>(), Err(InvalidId::Length { length: 0 }));
        assert_eq!("ab!".parse::<IdPrefix>(), Err(InvalidId::Character { character: '!' }));
        assert_eq!("abc".parse::<MessageId>(), Err(InvalidId::Length { length: 3 }));
        assert!("000000000000".parse::<MessageId>().is_err(), "zero is no message");
        assert!("1.2".parse::<LeaseToken>().is_err());
    }

    #[test]
    fn tokens_round_trip_through_text() {
        let token = LeaseToken { epoch: 3, claim: 1041, message: id(7) };
        assert_eq!(token.to_string().parse(), Ok(token));
    }
}
