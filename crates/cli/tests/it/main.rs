//! Tests of the binary, in one program.

mod command;
mod config;
mod demo;
mod postgres;
mod session;
#[cfg(unix)]
mod terminal;
