//! Settlements as workers in other languages write them: the queue's policy does the deciding.

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

/// What a worker says of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// The delivery's token.
    pub token: Token,
    /// What is to become of it.
    #[serde(flatten_as_verdict)]
    pub verdict: Verdict,
}

/// What is to become of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is done.
    Complete,
}
