//! The consumer runtime: takes deliveries from a source, runs a handler on each, and hands in what
//! became of them.
//!
//! Read it in this order:
//!
//! 1. [`Handler`] – any async function of a [`Context`]; [`typed`] and [`blocking`] for other shapes.
//! 2. `attend` – one delivery from the gate to its settlement, in one function.
//! 3. `lane` and `runner` – who runs it: two lanes take turns with the source and run what answers
//!    at once; what does not goes to runners. `hands` – what the worker holds. `keeper` – keeps its leases.
//! 4. [`Worker`] and [`Running`] – how it is started and stopped.
//! 5. [`StoreSource`] – our own queues as a source, [`Supervisor`] – a worker as a child process.
//! 6. `exec` and `http`, behind features of the same names – handlers without Rust: programs and endpoints.
//!    [`Relay`] – a queue as an outbox.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use sickbay_core::Clock;
//! # use sickbay_core::port::Source;
//! # use sickbay_worker::{Context, Worker};
//! # async fn example(source: Arc<dyn Source>, clock: Arc<dyn Clock>) {
//! let handler = async |ctx: Context| -> Result<(), std::num::ParseIntError> {
//!     let text = String::from_utf8_lossy(ctx.payload());
//!     let order: u64 = text.trim().parse()?;
//!     println!("order {order} is paid");
//!     Ok(())
//! };
//! let running = Worker::new(source, handler, clock).concurrency(16).start();
//! // …
//! let stopped = running.stop().await;
//! println!("{} were given back untried", stopped.given_back);
//! # }
//! ```

mod answer;
mod attend;
mod context;
#[cfg(all(feature = "exec", unix))]
pub mod exec;
mod execute;
mod flag;
#[cfg(any(all(feature = "exec", unix), feature = "http"))]
mod foreign;
mod guarded;
mod handler;
mod hands;
mod held;
#[cfg(feature = "http")]
pub mod http;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings;
mod keeper;
mod lane;
mod outbox;
mod relay;
mod rules;
mod runner;
mod running;
#[cfg(feature = "schema")]
mod schema;
mod shared;
mod store_source;
mod supervise;
mod sweep;
mod sync;
mod time;
mod turn;
mod worker;

pub use answer::{Answer, IntoAnswer};
pub use context::Context;
pub use handler::{BoxFuture, Handler, blocking, typed};
pub use relay::Relay;
pub use running::{Running, Stats, Stopped};
#[cfg(feature = "schema")]
pub use schema::{InvalidSchema, SchemaValidator};
pub use store_source::StoreSource;
pub use supervise::{Death, LAST_DEATH, Supervised, Supervisor, last_death};
pub use sweep::Sweeper;
pub use worker::Worker;
