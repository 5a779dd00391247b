//! What lies between SQLite and the disk: checksums of pages, files beside the store, and the one place
//! with `unsafe` in the product.
//!
//! [`sums`] and [`mark`](super::mark) are plain Rust; [`shim`] and [`side`] speak SQLite's C interface to files.

mod shim;
mod side;
mod sums;

pub(super) use shim::name_over;
pub(super) use side::{Purpose, SideFile};
