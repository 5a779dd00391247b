//! Handlers that are HTTP endpoints.
//!
//! [`HttpHandler`] posts each message's bytes to a URL, with the metadata in `X-Sickbay-…` headers. The
//! status is the answer: 2xx done; 408, 425, 429 and 5xx failed and worth another try, at `Retry-After` if
//! the endpoint says so; other 4xx poison. `docs/handlers.md` is the protocol.

mod client;
mod handler;
mod request;
mod response;

pub use client::InvalidEndpoint;
pub use handler::HttpHandler;
