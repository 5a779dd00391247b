//! The consumer runtime on the memory store and the stand-in broker, by a clock that tests move.

mod breaker;
mod broker;
mod handlers;
mod kata;
mod leases;
mod load;
mod pipeline;
mod scene;
mod schema;
mod stop;
mod streams;
#[cfg(unix)]
mod supervise;
