//! Errors: what a caller should do about them first, what happened second. And the taxonomy of
//! errors that a message can end with (A6).

use std::fmt;

use serde::{Deserialize, Serialize};

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The input was wrong; the same call will never work.
    Invalid,
    /// What it names does not exist.
    NotFound,
    /// What it names is not in a state that allows it.
    Conflict,
    /// The store has no room; existing messages can still be settled.
    Full,
    /// It may work later.
    TryAgain,
    /// Stored data is damaged.
    Corrupt,
    /// The store cannot go on; stop and look.
    Stop,
}

/// An error of a store, with a stable code that `sickbay explain` knows.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: ErrorKind,
    code: &'static str,
    message: String,
}

impl StoreError {
    /// An error with a stable code.
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into() }
    }

    /// What to do about it.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable code ("SB0007").
    pub const fn code(&self) -> &'static str {
        self.code
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for StoreError {}

/// What kind of message a poison error is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PoisonSubject {
    /// A message of a queue.
    Message {
        /// Its type, if it has one.
        message_type: Option<String>,
    },
    /// A turn of a durable orchestration.
    Orchestration,
    /// An activity of a durable orchestration.
    Activity {
        /// The activity's name.
        name: String,
        /// Its number within the orchestration.
        id: u64,
    },
}

/// The error that a message or the work behind it ended with (A6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "category", rename_all = "snake_case")]
pub enum ErrorDetails {
    /// The machinery failed: network, disk, database.
    #[error("infrastructure error during {operation}: {message}")]
    Infrastructure {
        /// What was being done.
        operation: String,
        /// What happened.
        message: String,
        /// Trying again may help.
        retryable: bool,
    },
    /// The set-up is wrong; someone must change it.
    #[error("configuration error: {message}")]
    Configuration {
        /// What is wrong.
        message: String,
    },
    /// The handler failed.
    #[error("application error: {message}")]
    Application {
        /// What the handler said.
        message: String,
        /// Trying again may help.
        retryable: bool,
    },
    /// The message failed as often as it may.
    #[error("poison: {count} of {limit} attempts{}", last_error.as_ref().map(|e| format!("; last error: {e}")).unwrap_or_default())]
    Poison {
        /// How often it failed.
        count: u32,
        /// The limit that was in force.
        limit: u32,
        /// The last error, if there is one.
        last_error: Option<String>,
        /// What kind of message it is.
        subject: PoisonSubject,
    },
}

impl ErrorDetails {
    /// The category as a word.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Infrastructure { .. } => "infrastructure",
            Self::Configuration { .. } => "configuration",
            Self::Application { .. } => "application",
            Self::Poison { .. } => "poison",
        }
    }

    /// True if trying again may help. Poison never is.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Infrastructure { retryable, .. } | Self::Application { retryable, .. } => *retryable,
            Self::Configuration { .. } | Self::Poison { .. } => false,
        }
    }
}
