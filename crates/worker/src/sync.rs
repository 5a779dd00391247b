//! Primitives that the tests of interleavings swap for their own.

#[cfg(feature = "interleavings")]
pub(crate) use shuttle::sync::atomic;
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::atomic;
