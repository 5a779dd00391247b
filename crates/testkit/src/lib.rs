//! For tests only: the conformance suite of stores, message-life scripts, random scripts that compare
//! two stores, a manual clock, and a stand-in broker.
//!
//! A store plugs in with a [`Fixture`](fixture::Fixture) and one line:
//!
//! ```ignore
//! sickbay_testkit::conformance!(MemoryFixture::new());
//! ```

pub mod broker;
pub mod clock;
#[cfg(unix)]
pub mod cluster;
pub mod conformance;
pub mod fixture;
pub mod model;
pub mod script;

pub use clock::ManualClock;
pub use fixture::Fixture;
