//! Deterministic simulation: the real core, the real worker and the real stores in virtual time, driven
//! by one seed and watched by an oracle.
//!
//! Read it in this order:
//!
//! 1. [`oracle`] – what must be true, known only from calls and answers. [`watch`] – where it stands.
//! 2. [`world`] and `act` – one script carried out; `crew` – real workers as processes that can be killed;
//!    `drain` – faults stop, and everything that is ready must get through.
//!    `panics` – a panic is a finding.
//! 3. [`generate`] – scripts from seeds. [`run`] – many seeds, and the shortest script of one that fails.
//! 4. [`bugs`] – known defects, and that each of them is found. [`soak`] – hours instead of steps.

mod act;
pub mod bugs;
mod crew;
mod dice;
mod drain;
pub mod generate;
pub mod oracle;
mod panics;
pub mod run;
pub mod soak;
pub mod stores;
mod wait;
pub mod watch;
pub mod world;
