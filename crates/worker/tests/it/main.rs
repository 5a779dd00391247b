//! The consumer runtime on the memory store and the stand-in broker, by a clock that tests move.

mod breaker;
mod broker;
#[cfg(all(feature = "exec", unix))]
mod exec;
#[cfg(any(all(feature = "exec", unix), feature = "http"))]
mod foreign;
mod handlers;
#[cfg(feature = "http")]
mod http;
mod kata;
mod leases;
mod load;
mod pipeline;
#[cfg(all(feature = "exec", unix))]
mod pool;
mod relay;
mod scene;
mod schema;
mod stop;
mod streams;
#[cfg(unix)]
mod supervise;
