//! The gate before the handler (A4): too many deliveries, a passed deadline, a body the queue does
//! not accept. What it refuses never reaches a handler.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::delivery::Delivery;
use crate::failure::{Failure, Kind, Reason};
use crate::message::Message;
use crate::policy::QueuePolicy;

/// Why a delivery did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was handed out more often than allowed.
    TooManyDeliveries {
        /// The deliveries that count, this one included.
        count: u32,
        /// The limit in force.
        limit: u32,
    },
    /// Its deadline has passed.
    Expired {
        /// By how much.
        late_by: Duration,
    },
    /// A validator refused it.
    Invalid(Failure),
}

/// Checks a message before it reaches its handler: a JSON Schema, or any function.
pub trait Validator: Send + Sync {
    /// `Err` if the message can never be handled.
    fn validate(&self, message: &Message) -> Result<(), Invalid>;
}

/// What a validator found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong, in words.
    pub error: String,
    /// Where, as a path into the body, if the validator knows.
    pub path: Option<String>,
    /// The body could not even be read.
    pub unreadable: bool,
}

impl Invalid {
    /// The message breaks a rule.
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), path: None, unreadable: false }
    }

    /// Says where.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The body could not be read at all.
    pub fn unreadable(error: impl Into<String>) -> Self {
        Self { error: error.into(), path: None, unreadable: true }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let reason = if invalid.unreadable { Reason::SerializationError } else { Reason::ValidationFailure };
        let mut failure = Failure::new(Kind::Poison, reason, invalid.error);
        failure.schema_path = invalid.path;
        failure
    }
}

impl<F> Validator for F
where
    F: Fn(&Message) -> Result<(), Invalid> + Send + Sync,
{
    fn validate(&self, message: &Message) -> Result<(), Invalid> {
        self(message)
    }
}

/// Lets a delivery through, or says why not.
pub fn gate(
    policy: &QueuePolicy,
    delivery: &Delivery,
    now: Timestamp,
    validators: &[&dyn Validator],
) -> Result<(), Refusal> {
    let limit = policy.deliveries_max(delivery.message.message_type.as_ref());
    let count = delivery.counters.counted();
    if count > limit {
        return Err(Refusal::TooManyDeliveries { count, limit });
    }
    if let Some(deadline) = delivery.message.deadline_at
        && now > deadline
        && !crate::bug!(DeadlineIgnored)
    {
        return Err(Refusal::Expired { late_by: now.since(deadline) });
    }
    for validator in validators {
        validator.validate(&delivery.message).map_err(|invalid| Refusal::Invalid(invalid.into()))?;
    }
    Ok(())
}
