//! The API, its client, and a store that lives in another process.

mod bad_input;
mod conformance;
mod desk;
mod owners;
mod presence;
mod push;
mod scene;
mod serve;
mod table;
mod travelling;
mod wire;
mod work;
mod worker;
