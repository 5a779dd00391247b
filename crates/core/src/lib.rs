//! The heart of Sickbay's thinking: the words, the policies and the one function that decides what
//! becomes of a message. Everything here is pure. Time, randomness and storage are handed in, which
//! is what makes exact tests, the simulator and the backtest of a policy possible.
//!
//! Read it in this order:
//!
//! 1. [`message`] – what is pushed, and [`delivery`] – a message in a worker's hands under a lease.
//! 2. [`failure`] – what went wrong, [`classify`] – how raw errors become failures.
//! 3. [`policy`] – what a queue wants, [`gate`] – what happens before the handler, and
//!    [`decide()`](decide::decide) – what becomes of the message afterwards.
//! 4. [`port`] – the traits that stores and sources implement.

pub mod breaker;
pub mod classify;
pub mod clock;
pub mod decide;
pub mod delivery;
pub mod error;
pub mod failure;
pub mod gate;
pub mod id;
pub mod message;
pub mod name;
pub mod policy;
pub mod port;
pub mod quarantine;
pub mod record;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
pub mod settlement;
pub mod signature;
pub mod stage;
pub mod stats;
pub mod text;
pub mod verdict;

/// True if a known defect is switched on, for the tests of our tests; always false in a product build.
#[cfg(feature = "seeded-bugs")]
#[macro_export]
macro_rules! bug {
    ($name:ident) => {
        $crate::seeded::is_active($crate::seeded::Bug::$name)
    };
}

/// True if a known defect is switched on, for the tests of our tests; always false in a product build.
#[cfg(not(feature = "seeded-bugs"))]
#[macro_export]
macro_rules! bug {
    ($name:ident) => {
        false
    };
}

pub use clock::{Clock, Timestamp};
pub use decide::{Decision, Outcome, decide};
pub use delivery::{Cause, Counters, Delivery, Lease};
pub use error::{ErrorKind, StoreError};
pub use failure::{Failure, Kind, Reason};
pub use id::{LeaseToken, MessageId};
pub use message::{Message, NewMessage, Priority};
pub use name::{Key, MessageType, QueueName, StreamKey, WorkerName};
pub use policy::QueuePolicy;
pub use settlement::Settlement;
pub use stage::Stages;
pub use verdict::Verdict;
