//! All tests of the stores, in one program.

mod memory;
mod model;
