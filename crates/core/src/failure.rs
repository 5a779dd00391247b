//! Failures: what went wrong, classified in two layers (A5).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It may work next time.
    Transient,
    /// It will never work as it is.
    Poison,
    /// Nobody knows: it is tried again up to the limit, and is poison after that.
    Unknown,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The network or transport was not there.
    TransportUnavailable,
    /// The handler failed.
    HandlerException,
    /// The message is not what its queue accepts.
    ValidationFailure,
    /// The handler ran out of its time budget.
    TimeoutExceeded,
    /// The body could not be read.
    SerializationError,
    /// Something the handler depends on failed.
    DependencyFailure,
    /// It was delivered more often than its queue allows.
    PoisonMessage,
    /// It killed its worker.
    Crash,
    /// Its deadline has passed.
    Expired,
    /// Its stored bytes are not the bytes that were pushed.
    Corrupt,
    /// A person set it aside.
    Operator,
    /// Not classified.
    Unknown,
}

/// A word that names none of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no {what}; choose one of {choices}")]
pub struct UnknownWord {
    given: String,
    what: &'static str,
    choices: String,
}

macro_rules! words {
    ($type:ident, $what:literal, $($variant:ident = $word:literal),+ $(,)?) => {
        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word that people see.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                let known = Self::ALL.iter().find(|known| known.as_str().eq_ignore_ascii_case(word));
                known.copied().ok_or_else(|| UnknownWord {
                    given: word.chars().take(60).collect(),
                    what: $what,
                    choices: Self::ALL.iter().map(|known| known.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}

words!(Kind, "failure kind", Transient = "transient", Poison = "poison", Unknown = "unknown");
words!(
    Reason,
    "failure reason",
    TransportUnavailable = "TransportUnavailable",
    HandlerException = "HandlerException",
    ValidationFailure = "ValidationFailure",
    TimeoutExceeded = "TimeoutExceeded",
    SerializationError = "SerializationError",
    DependencyFailure = "DependencyFailure",
    PoisonMessage = "PoisonMessage",
    Crash = "Crash",
    Expired = "Expired",
    Corrupt = "Corrupt",
    Operator = "Operator",
    Unknown = "Unknown",
);

/// A classified failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whether trying again can help.
    pub kind: Kind,
    /// What went wrong.
    pub reason: Reason,
    /// The error in its own words. Cleaned and cut before it is stored.
    pub error: String,
    /// A code of the handler's own ("DOWNSTREAM_PERMANENT"), an exit code, an HTTP status.
    pub code: Option<String>,
    /// When the handler asked to be tried again.
    pub retry_after: Option<Duration>,
    /// The failing path, where a schema refused the message.
    pub schema_path: Option<String>,
}

impl Failure {
    /// A failure of this kind and reason.
    pub fn new(kind: Kind, reason: Reason, error: impl Into<String>) -> Self {
        Self { kind, reason, error: error.into(), code: None, retry_after: None, schema_path: None }
    }

    /// Something that may work next time.
    pub fn transient(error: impl Into<String>) -> Self {
        Self::new(Kind::Transient, Reason::DependencyFailure, error)
    }

    /// Something that will never work.
    pub fn poison(error: impl Into<String>) -> Self {
        Self::new(Kind::Poison, Reason::HandlerException, error)
    }

    /// Something nobody has classified.
    pub fn unknown(error: impl Into<String>) -> Self {
        Self::new(Kind::Unknown, Reason::HandlerException, error)
    }

    /// Sets the reason.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
    }

    /// Sets the code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Asks to be tried again no sooner than this.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.reason, self.kind, self.error)
    }
}
