//! Failures, and the attempts that ended with them.

use serde::{Deserialize, Serialize};
use sickbay_core::failure::{self, Kind, Reason};
use sickbay_core::quarantine::{self, AttemptEnd};
use sickbay_core::signature::Signature;

use super::{Span, Time};

/// A classified failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whether trying again can help.
    pub kind: Kind,
    /// What went wrong.
    pub reason: Reason,
    /// The error in its own words.
    pub error: String,
    /// A code of the handler's own, an exit code, an HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How long the handler asked to be left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Span>,
    /// The failing path, where a schema refused the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,
}

impl From<failure::Failure> for Failure {
    fn from(failure: failure::Failure) -> Self {
        Self {
            kind: failure.kind,
            reason: failure.reason,
            error: failure.error,
            code: failure.code,
            retry_after: failure.retry_after.map(Into::into),
            schema_path: failure.schema_path,
        }
    }
}

impl From<Failure> for failure::Failure {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind,
            reason: failure.reason,
            error: failure.error,
            code: failure.code,
            retry_after: failure.retry_after.map(Into::into),
            schema_path: failure.schema_path,
        }
    }
}

/// The record of one delivery and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1 for the first delivery ever, counting on across replays.
    pub number: u32,
    /// When it was handed out.
    pub started_at: Time,
    /// When it was settled.
    pub ended_at: Time,
    /// Who held it.
    pub worker: String,
    /// How it ended.
    pub end: AttemptEnd,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
    /// What failures of this kind have in common.
    pub signature: Option<Signature>,
    /// How long the handler ran, if it did.
    pub ran: Option<Span>,
    /// The end of what the handler printed.
    pub output: Option<String>,
}

impl From<quarantine::Attempt> for Attempt {
    fn from(attempt: quarantine::Attempt) -> Self {
        Self {
            number: attempt.number,
            started_at: attempt.started_at.into(),
            ended_at: attempt.ended_at.into(),
            worker: attempt.worker,
            end: attempt.end,
            failure: attempt.failure.map(Into::into),
            signature: attempt.signature,
            ran: attempt.ran.map(Into::into),
            output: attempt.output,
        }
    }
}

impl From<Attempt> for quarantine::Attempt {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: attempt.number,
            started_at: attempt.started_at.into(),
            ended_at: attempt.ended_at.into(),
            worker: attempt.worker,
            end: attempt.end,
            failure: attempt.failure.map(Into::into),
            signature: attempt.signature,
            ran: attempt.ran.map(Into::into),
            output: attempt.output,
        }
    }
}
