//! What workers of another process exchange with the owner of the store, without any loss.

use serde::{Deserialize, Serialize};
use sickbay_core::decide::{self, SetAside};
use sickbay_core::delivery::Counters;
use sickbay_core::port;
use sickbay_core::settlement;
use sickbay_core::signature::Signature;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Key, MessageId, MessageType, QueueName, WorkerName};

use super::delivery::Delivery;
use super::failure::Failure;
use super::message::{InvalidMessage, NewMessage};
use super::payload::InvalidPayload;
use super::policy::Policy;
use super::stage::Stages;
use super::{Span, Time, Token};

/// What the queue makes of an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    /// It is done.
    Complete,
    /// It failed and is delivered again.
    Retry {
        /// After this long.
        after: Span,
        /// The failure to record.
        failure: Failure,
    },
    /// It is given back uncounted.
    Release {
        /// Delivered again after this long.
        after: Span,
    },
    /// It is delivered again at once, counted.
    Redeliver,
    /// It is set aside.
    Quarantine {
        /// Why.
        set_aside: SetAside,
        /// The failure to record.
        failure: Failure,
    },
}

impl From<decide::Decision> for Decision {
    fn from(decision: decide::Decision) -> Self {
        use decide::Decision as Core;
        match decision {
            Core::Complete => Self::Complete,
            Core::Retry { after, failure } => Self::Retry { after: after.into(), failure: failure.into() },
            Core::Release { after } => Self::Release { after: after.into() },
            Core::Redeliver => Self::Redeliver,
            Core::Quarantine { set_aside, failure } => {
                Self::Quarantine { set_aside, failure: failure.into() }
            }
        }
    }
}

impl From<Decision> for decide::Decision {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Complete => Self::Complete,
            Decision::Retry { after, failure } => {
                Self::Retry { after: after.into(), failure: failure.into() }
            }
            Decision::Release { after } => Self::Release { after: after.into() },
            Decision::Redeliver => Self::Redeliver,
            Decision::Quarantine { set_aside, failure } => {
                Self::Quarantine { set_aside, failure: failure.into() }
            }
        }
    }
}

/// An attempt and its decision. The handler's own writes cannot travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    /// The delivery's token.
    pub token: Token,
    /// What becomes of the message.
    pub decision: Decision,
    /// The stages this attempt finished.
    #[serde(default, skip_serializing_if = "Stages::is_none")]
    pub stages: Stages,
    /// What failures of this kind have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// How long the handler ran, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Span>,
    /// The end of what the handler printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Let the followers in its stream go on without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cascade: bool,
}

impl From<settlement::Settlement> for Decided {
    /// Leaves the effect behind; whoever sends it has made sure that there is none.
    fn from(settlement: settlement::Settlement) -> Self {
        Self {
            token: settlement.token.into(),
            decision: settlement.decision.into(),
            stages: Stages(settlement.stages),
            signature: settlement.signature,
            ran: settlement.ran.map(Into::into),
            output: settlement.output,
            cascade: settlement.cascade,
        }
    }
}

impl From<Decided> for settlement::Settlement {
    fn from(decided: Decided) -> Self {
        Self {
            token: decided.token.into(),
            decision: decided.decision.into(),
            stages: decided.stages.0,
            signature: decided.signature,
            ran: decided.ran.map(Into::into),
            output: decided.output,
            effect: None,
            cascade: decided.cascade,
        }
    }
}

/// A wish for deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The queue.
    pub queue: QueueName,
    /// Who asks.
    pub worker: WorkerName,
    /// The process that would die with it.
    pub process: u64,
    /// At most so many.
    pub max: u32,
    /// How long to wait for the first one.
    pub wait: Span,
    /// How long the leases last.
    pub lease: Span,
}

impl From<port::Claim> for Claim {
    fn from(claim: port::Claim) -> Self {
        Self {
            queue: claim.queue,
            worker: claim.worker,
            process: claim.process.0,
            max: claim.max,
            wait: claim.wait.into(),
            lease: claim.lease.into(),
        }
    }
}

impl From<Claim> for port::Claim {
    fn from(claim: Claim) -> Self {
        Self {
            queue: claim.queue,
            worker: claim.worker,
            process: port::ProcessId(claim.process),
            max: claim.max,
            wait: claim.wait.into(),
            lease: claim.lease.into(),
        }
    }
}

/// Settlements and a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// What became of earlier deliveries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settlements: Vec<Decided>,
    /// The wish for more, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

/// What the store made of one settlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// It took effect.
    Applied,
    /// The lease was lost; nothing changed.
    LeaseLost,
    /// The handler's own writes failed.
    EffectFailed {
        /// What the writes said.
        error: String,
    },
}

impl From<settlement::Settled> for Settled {
    fn from(settled: settlement::Settled) -> Self {
        match settled {
            settlement::Settled::Applied => Self::Applied,
            settlement::Settled::LeaseLost => Self::LeaseLost,
            settlement::Settled::EffectFailed { error } => Self::EffectFailed { error },
        }
    }
}

impl From<Settled> for settlement::Settled {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Applied => Self::Applied,
            Settled::LeaseLost => Self::LeaseLost,
            Settled::EffectFailed { error } => Self::EffectFailed { error },
        }
    }
}

/// What came of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanged {
    /// One answer per settlement, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Settled>,
    /// The deliveries claimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<Delivery>,
}

impl From<port::Exchanged> for Exchanged {
    fn from(exchanged: port::Exchanged) -> Self {
        Self {
            settled: exchanged.settled.into_iter().map(Into::into).collect(),
            deliveries: exchanged.deliveries.into_iter().map(Into::into).collect(),
        }
    }
}

impl Exchanged {
    /// The answer as workers know it.
    pub fn into_core(self) -> Result<port::Exchanged, InvalidPayload> {
        let deliveries = self.deliveries.into_iter().map(Delivery::into_core).collect::<Result<_, _>>()?;
        Ok(port::Exchanged { settled: self.settled.into_iter().map(Into::into).collect(), deliveries })
    }
}

/// A broker's message that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adoption {
    /// The message.
    pub message: NewMessage,
    /// Where it came from.
    pub origin: String,
    /// What was counted on the way here.
    pub counters: Counters,
    /// When the failed delivery began.
    pub started_at: Time,
    /// Who held it.
    pub worker: String,
    /// What becomes of it.
    pub decision: Decision,
    /// What failures of this kind have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Stages it finished.
    #[serde(default, skip_serializing_if = "Stages::is_none")]
    pub stages: Stages,
}

impl From<port::Adoption> for Adoption {
    fn from(adoption: port::Adoption) -> Self {
        Self {
            message: adoption.message.into(),
            origin: adoption.origin,
            counters: adoption.counters,
            started_at: adoption.started_at.into(),
            worker: adoption.worker,
            decision: adoption.decision.into(),
            signature: adoption.signature,
            stages: Stages(adoption.stages),
        }
    }
}

impl Adoption {
    /// The adoption as the store takes it.
    pub fn into_core(self) -> Result<port::Adoption, InvalidMessage> {
        Ok(port::Adoption {
            message: self.message.into_core(None)?,
            origin: self.origin,
            counters: self.counters,
            started_at: self.started_at.into(),
            worker: self.worker,
            decision: self.decision.into(),
            signature: self.signature,
            stages: self.stages.0,
        })
    }
}

/// What became of a push, as short as it can be said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// The number of each message, in order; negative if it was known already.
    pub numbers: Vec<i64>,
}

impl From<Vec<port::Pushed>> for Numbers {
    fn from(pushed: Vec<port::Pushed>) -> Self {
        let number = |pushed: port::Pushed| match pushed {
            port::Pushed::New(id) => id.number() as i64,
            port::Pushed::Duplicate(id) => -(id.number() as i64),
        };
        Self { numbers: pushed.into_iter().map(number).collect() }
    }
}

impl Numbers {
    /// The answer as pushers know it; `None` if a number is none of a message.
    pub fn into_core(self) -> Option<Vec<port::Pushed>> {
        let pushed = |number: i64| {
            let id = MessageId::from_number(number.unsigned_abs())?;
            Some(if number > 0 { port::Pushed::New(id) } else { port::Pushed::Duplicate(id) })
        };
        self.numbers.into_iter().map(pushed).collect()
    }
}

/// Adoptions, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    /// At most 10,000.
    pub adoptions: Vec<Adoption>,
}

/// Says that a worker process is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Died {
    /// Which one.
    pub process: u64,
    /// What is known of its death.
    pub evidence: String,
}

/// How many messages something concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// So many.
    pub count: u64,
}

/// Asks for the policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskPolicy {
    /// Of this queue.
    pub queue: QueueName,
    /// The tag of the one that the asker has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// What tells it from others.
    pub tag: String,
    /// The policy; left out if the asker has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// Opens or closes deliveries of a message type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetGate {
    /// The queue.
    pub queue: QueueName,
    /// The type.
    #[serde(rename = "type")]
    pub message_type: MessageType,
    /// What holds from now on.
    pub gate: TypeGate,
}

/// Asks whether the message with a key is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskDone {
    /// The queue.
    pub queue: QueueName,
    /// The key.
    pub key: Key,
}

/// Whether it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsDone {
    /// True within the key's window.
    pub done: bool,
}

/// Removes discarded dead letters for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purge {
    /// Of this queue.
    pub queue: QueueName,
    /// Discarded at least so long ago.
    pub age: Span,
    /// At most so many, the longest discarded first.
    pub rows_max: u32,
}

/// A visit: one connection by which a process says that it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// The process.
    pub process: u64,
    /// The number of its visit.
    pub visit: u64,
}
