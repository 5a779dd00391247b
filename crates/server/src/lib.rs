//! The local API of a store.
//!
//! One process owns a store. It serves this API on a socket beside the file, and every other process on
//! the machine uses it: operators' commands through a [`Client`], workers through a [`RemoteStore`], which
//! is a whole store. Commands of the owner itself call the same routes without any socket.
//!
//! Read it in this order:
//!
//! 1. [`wire`] – what travels.
//! 2. [`Api`] and its routes – all of them stand in one table, each with its [`Permission`].
//! 3. [`serve`], [`Listener`] – how the owner answers.
//! 4. [`Client`], [`RemoteStore`] – how others ask. [`connect`] finds the owner of a store.

mod api;
mod client;
mod extract;
mod presence;
mod remote;
mod routes;
mod serve;
mod socket;
pub mod wire;

pub use api::Api;
pub use client::{Client, connect};
pub use remote::RemoteStore;
pub use routes::{Permission, RouteInfo, routes};
pub use serve::{Listener, Serving, serve};
pub use socket::socket_path;
pub use wire::Problem;

/// The most messages, settlements or ids in one request.
pub const BATCH_MAX: usize = 10_000;
/// The most bytes of a request that carries messages.
pub const LARGE_BODY_BYTES_MAX: usize = 64 << 20;
/// The most bytes of any other request.
pub const BODY_BYTES_MAX: usize = 1 << 20;
