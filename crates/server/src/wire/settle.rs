//! Settlements as workers in other languages write them: they say what happened, and the policy in force
//! decides.

use serde::{Deserialize, Serialize};
use sickbay_core::classify::RawError;
use sickbay_core::decide::SetAside;
use sickbay_core::failure::{Kind, Reason};

use super::stage::Stages;
use super::{Span, Token};

/// Settlements, carried out in one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// At most 10,000.
    pub settlements: Vec<Settlement>,
}

/// What a worker says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is done.
    Complete,
    /// It failed: retried or quarantined, as the policy in force says.
    Abandon,
    /// It is given back without having been tried, or comes again after `delay`. Not counted.
    Release,
    /// It will never work: quarantined at once.
    DeadLetter,
}

/// What a worker says of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// The delivery's token.
    pub token: Token,
    /// What is to become of it.
    pub verdict: Verdict,
    /// The error in its own words. Of a dead letter, its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A code of the handler's own ("ECONNRESET").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the handler's process exited with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the handler's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The status the handler got from what it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// The reason, if the worker knows it. Of a dead letter, the one to record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Delivered again no sooner than this. Defaults to what the policy says; of a release, to at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Abandon: count the failure. Defaults to true; false gives it back uncounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<bool>,
    /// Abandon: quarantine it at once, whatever the count. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poison: Option<bool>,
    /// Abandon: the number of failures that quarantines. Defaults to what the policy in force says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Let the followers in its stream go on without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cascade: Option<bool>,
    /// The stages this attempt finished.
    #[serde(default, skip_serializing_if = "Stages::is_none")]
    pub stages: Stages,
    /// How long the handler ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Span>,
    /// The end of what the handler printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl Settlement {
    /// With nothing but its verdict.
    pub fn new(token: impl Into<Token>, verdict: Verdict) -> Self {
        Self {
            token: token.into(),
            verdict,
            error: None,
            code: None,
            exit_code: None,
            signal: None,
            http_status: None,
            reason: None,
            delay: None,
            count: None,
            poison: None,
            limit: None,
            cascade: None,
            stages: Stages::default(),
            ran: None,
            output: None,
        }
    }

    /// The field that is given although it means nothing for this verdict.
    pub(crate) fn misplaced(&self) -> Option<&'static str> {
        let (abandons, dead) = (self.verdict == Verdict::Abandon, self.verdict == Verdict::DeadLetter);
        let fields = [
            ("error", self.error.is_some(), abandons || dead),
            ("code", self.code.is_some(), abandons || dead),
            ("reason", self.reason.is_some(), abandons || dead),
            ("exit_code", self.exit_code.is_some(), abandons),
            ("signal", self.signal.is_some(), abandons),
            ("http_status", self.http_status.is_some(), abandons),
            ("delay", self.delay.is_some(), abandons || self.verdict == Verdict::Release),
            ("count", self.count.is_some(), abandons),
            ("poison", self.poison.is_some(), abandons),
            ("limit", self.limit.is_some(), abandons),
            ("cascade", self.cascade.is_some(), abandons),
        ];
        fields.into_iter().find(|(_, given, fits)| *given && !fits).map(|(name, _, _)| name)
    }

    /// The error as the classifier reads it.
    pub(crate) fn raw(&self) -> RawError {
        RawError {
            text: self.error.clone().unwrap_or_default(),
            exit_code: self.exit_code,
            signal: self.signal,
            http_status: self.http_status,
            code: self.code.clone(),
            reason: self.reason,
            retry_after: self.delay.map(Into::into),
        }
    }
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It is done.
    Completed,
    /// It is delivered again.
    Released,
    /// It is in quarantine.
    Poisoned,
    /// The lease was lost; nothing changed.
    LeaseLost,
}

/// What became of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The delivery's token.
    pub token: Token,
    /// How it ended.
    pub outcome: Ended,
    /// Failures counted so far, this one included; of what was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The number of failures that quarantines; of what was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long until it is delivered again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// Why it was set aside, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<SetAside>,
    /// What the classifier made of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The reason that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// What became of the settlements, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleAnswer {
    /// One for each.
    pub settled: Vec<Settled>,
}
