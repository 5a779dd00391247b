//! Handlers that are programs, in any language.
//!
//! [`ExecHandler`] starts one process per message: the payload on its standard input, the metadata in
//! its environment, and its exit code is the answer. [`ExecPool`] keeps programs running that read one
//! JSON object a line and answer with one a line: for speed. `docs/handlers.md` is the protocol.
//!
//! A program gets a process group of its own, and whatever is left of that group when the answer is
//! known, or when the time budget is used up, is ended with it.

mod ended;
mod handler;
mod pool;
mod process;
mod program;
mod tail;

pub use handler::ExecHandler;
pub use pool::{ExecPool, PoolStats};
pub use program::Program;
