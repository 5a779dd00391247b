//! Tests of the binary, in one program.

mod demo;
