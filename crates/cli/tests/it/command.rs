//! Every command, as people run it: the real binary in a folder of its own.

mod copy;
mod quarantine;
mod relay;
pub(crate) mod scene;
mod serve;
mod store;
mod tools;
