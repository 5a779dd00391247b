//! One HTTP status or a range of them, as a rule names it.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// HTTP statuses: `503`, `"503"`, `"5xx"` or `"500..504"`, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusMatch {
    first: u16,
    last: u16,
}

/// A text that names no HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no HTTP status; write 503, 5xx or 500..504, between 100 and 599")]
pub struct InvalidStatus(String);

impl StatusMatch {
    /// From the first to the last, both included; `None` unless 100 ≤ first ≤ last ≤ 599.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first < 100 || last > 599 || first > last { None } else { Some(Self { first, last }) }
    }

    /// True if this status is one of them.
    pub const fn matches(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }

    /// True if it matches whatever `other` matches.
    pub const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl fmt::Display for StatusMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = *self;
        if first == last {
            write!(f, "{first}")
        } else if first % 100 == 0 && last == first + 99 {
            write!(f, "{}xx", first / 100)
        } else {
            write!(f, "{first}..{last}")
        }
    }
}

impl FromStr for StatusMatch {
    type Err = InvalidStatus;

    fn from_str(text: &str) -> Result<Self, InvalidStatus> {
        let read = || {
            let trimmed = text.trim();
            if let Some(hundreds) = trimmed.strip_suffix("xx").or_else(|| trimmed.strip_suffix("XX")) {
                let first = hundreds.parse::<u16>().ok()?.checked_mul(100)?;
                return Self::new(first, first.checked_add(99)?);
            }
            let (first, last) = trimmed
                .split_once("..=")
                .or_else(|| trimmed.split_once(".."))
                .or_else(|| trimmed.split_once('-'))
                .unwrap_or((trimmed, trimmed));
            Self::new(first.trim().parse().ok()?, last.trim().parse().ok()?)
        };
        read().ok_or_else(|| InvalidStatus(text.chars().take(40).collect()))
    }
}

impl Serialize for StatusMatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = StatusMatch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an HTTP status such as 503, \"5xx\" or \"500..504\"")
    }

    fn visit_u64<E: de::Error>(self, status: u64) -> Result<StatusMatch, E> {
        let small = u16::try_from(status).ok();
        let matched = small.and_then(|status| StatusMatch::new(status, status));
        matched.ok_or_else(|| E::custom(InvalidStatus(status.to_string())))
    }

    fn visit_i64<E: de::Error>(self, status: i64) -> Result<StatusMatch, E> {
        self.visit_u64(u64::try_from(status).map_err(|_| E::custom(InvalidStatus(status.to_string())))?)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StatusMatch, E> {
        text.parse().map_err(E::custom)
    }
}
