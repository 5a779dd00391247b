//! A settlement: an attempt and its decision, written together under the delivery's token.

use std::time::Duration;

use crate::decide::Decision;
use crate::id::LeaseToken;
use crate::signature::Signature;
use crate::stage::Stages;
use crate::verdict::Effect;

/// What a worker hands in for one delivery.
#[derive(Debug)]
pub struct Settlement {
    /// The delivery's token. Without the current one nothing happens.
    pub token: LeaseToken,
    /// What becomes of the message.
    pub decision: Decision,
    /// The stages this attempt finished; they are added to the message's.
    pub stages: Stages,
    /// What failures of this kind have in common; for retries and quarantine.
    pub signature: Option<Signature>,
    /// How long the handler ran; `None` if it never did.
    pub ran: Option<Duration>,
    /// The end of what the handler printed.
    pub output: Option<String>,
    /// The handler's own writes, committed together with the acknowledgement.
    pub effect: Option<Effect>,
    /// Let the followers in its stream go on without it, although it is scheduled again.
    pub cascade: bool,
}

impl Settlement {
    /// A settlement with nothing but its decision.
    pub fn new(token: LeaseToken, decision: Decision) -> Self {
        Self {
            token,
            decision,
            stages: Stages::NONE,
            signature: None,
            ran: None,
            output: None,
            effect: None,
            cascade: false,
        }
    }

    /// The message is done.
    pub fn complete(token: LeaseToken) -> Self {
        Self::new(token, Decision::Complete)
    }

    /// The message is given back untried.
    pub fn release(token: LeaseToken) -> Self {
        Self::new(token, Decision::Release { after: Duration::ZERO })
    }
}

/// What the store made of one settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It took effect.
    Applied,
    /// The lease was lost; nothing changed.
    LeaseLost,
    /// The handler's own writes failed; the delivery is still leased and must be settled as failed.
    EffectFailed {
        /// What the writes said.
        error: String,
    },
}
