//! A handler's answer.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::failure::Failure;
use crate::stage::Stages;

/// What a handler says about a delivery. "Stop retrying" is a value, never hidden in an error's type.
#[derive(Debug)]
pub enum Verdict {
    /// It is done.
    Done(Done),
    /// It failed; the failure's kind says whether trying again can help.
    Retry(Failed),
    /// It failed and will never work.
    Poison(Failed),
    /// Not now: give it back and deliver it again after this long, without counting a failure.
    Defer(Duration),
}

impl Verdict {
    /// Done, with nothing to add.
    pub fn done() -> Self {
        Self::Done(Done::default())
    }

    /// Failed; may work next time.
    pub fn retry(failure: Failure) -> Self {
        Self::Retry(Failed::from(failure))
    }

    /// Failed for good.
    pub fn poison(failure: Failure) -> Self {
        Self::Poison(Failed::from(failure))
    }
}

/// What comes with a success.
#[derive(Debug, Default)]
pub struct Done {
    /// Writes of the handler's own that commit together with the acknowledgement and the key.
    pub effect: Option<Effect>,
}

/// What comes with a failure.
#[derive(Debug)]
pub struct Failed {
    /// What went wrong.
    pub failure: Failure,
    /// The stages that this attempt did finish.
    pub stages: Stages,
    /// Let the followers in its stream go on without it.
    pub cascade: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, stages: Stages::NONE, cascade: false }
    }
}

/// Writes that a particular store carries out inside the transaction that settles the delivery.
/// The store that receives it knows its inner type; another store refuses it.
pub struct Effect(Box<dyn Any + Send>);

impl Effect {
    /// Wraps what a store's own constructor made.
    pub fn new(inner: impl Any + Send) -> Self {
        Self(Box::new(inner))
    }

    /// True if it is of this store's own type.
    pub fn is<T: Any>(&self) -> bool {
        self.0.is::<T>()
    }

    /// The store's own type, or the effect back if it belongs to another store.
    pub fn take<T: Any>(self) -> Result<T, Self> {
        self.0.downcast().map(|inner| *inner).map_err(Self)
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Effect")
    }
}
