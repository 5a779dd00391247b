//! Tests of the binary, in one program.

mod config;
mod demo;
