//! What lanes, runners, the keeper and a stop share. The tests of interleavings swap it for primitives that let any of
//! them go on at any of these.

#[cfg(feature = "interleavings")]
pub(crate) use shuttle::{
    future::{JoinHandle, spawn},
    sync::{Mutex, MutexGuard, atomic},
};
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(feature = "interleavings"))]
pub(crate) use tokio::{spawn, task::JoinHandle};
