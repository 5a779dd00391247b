//! The API, its client, and a store that lives in another process.

mod conformance;
mod owners;
mod travelling;
