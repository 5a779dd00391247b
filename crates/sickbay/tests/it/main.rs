//! Tests of the whole library, in one program.

mod examples;
mod kill;
