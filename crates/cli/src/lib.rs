//! What the binary `sickbay` is made of, as far as tests and other programs can use it.

pub mod config;
