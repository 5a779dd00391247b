//! Lease tokens as text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sickbay_core::LeaseToken;

/// The fencing token of a delivery, as text: `3.1041.8w3kq0v7m2xn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub LeaseToken);

impl From<LeaseToken> for Token {
    fn from(token: LeaseToken) -> Self {
        Self(token)
    }
}

impl From<Token> for LeaseToken {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}
