//! Stages: which parts of its work a message has already finished (A11).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Flags of finished stages. They only ever add: a failed attempt reports what it did finish, and
/// the next one resumes after it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stages(u16);

impl Stages {
    /// Nothing is finished yet.
    pub const NONE: Self = Self(0);
    /// The message is stored.
    pub const STORED: Self = Self(1);
    /// Its event is in the event store.
    pub const EVENT_STORED: Self = Self(2);
    /// It is published to its transport.
    pub const PUBLISHED: Self = Self(4);
    /// The last attempt failed. An overlay: it says nothing about the other flags.
    pub const FAILED: Self = Self(1 << 15);

    /// The application's own stage `n`, 0 to 11.
    pub const fn application(n: u8) -> Option<Self> {
        if n < 12 { Some(Self(1 << (n + 3))) } else { None }
    }

    /// From the stored bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits to store.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` are finished.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named =
            [(Self::STORED, "Stored"), (Self::EVENT_STORED, "EventStored"), (Self::PUBLISHED, "Published")];
        let mut names: Vec<String> =
            named.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| (*name).to_owned()).collect();
        let own = (0..12).filter(|n| Self::application(*n).is_some_and(|flag| self.has(flag)));
        names.extend(own.map(|n| format!("Application{n}")));
        if self.has(Self::FAILED) {
            names.push("Failed".to_owned());
        }
        f.write_str(&if names.is_empty() { "none".to_owned() } else { names.join("|") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_only_ever_add_and_failed_is_an_overlay() {
        let before = Stages::STORED.with(Stages::EVENT_STORED);
        let after = before.with(Stages::STORED).with(Stages::FAILED);
        assert!(after.has(before) && after.has(Stages::FAILED) && !after.has(Stages::PUBLISHED));
        assert_eq!(after.bits(), 32771);
        assert_eq!(after.to_string(), "Stored|EventStored|Failed");
    }

    #[test]
    fn application_stages_do_not_touch_the_named_ones() {
        let own = (0..12).filter_map(Stages::application).fold(Stages::NONE, Stages::with);
        assert_eq!(own.bits(), 0b0111_1111_1111_1000);
        assert_eq!(Stages::application(12), None);
    }
}
