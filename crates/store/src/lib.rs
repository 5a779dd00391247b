//! Stores of Sickbay: memory, SQLite and, with the feature `postgres`, PostgreSQL.
//!
//! All keep the same contract (`docs/store-contract.md`); the conformance suite in the testkit
//! holds them to it. [`memory`] is its short, readable form. [`door`] is what all check before they
//! let anything in.

pub mod copy;
pub mod door;
pub mod memory;
mod pack;
#[cfg(feature = "postgres")]
pub mod postgres;
mod present;
pub mod sqlite;
mod system_clock;

pub use copy::{Copied, CopyState, copy};
pub use memory::{MemoryEffect, MemoryStore};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresAtRest, PostgresEffect, PostgresOptions, PostgresStore};
pub use sqlite::{Lost, SqliteAtRest, SqliteEffect, SqliteOptions, SqliteStore};
pub use system_clock::SystemClock;
