//! All tests of the stores, in one program.

mod copying;
mod memory;
mod model;
mod postgres;
mod sqlite;
mod sqlite_clock;
mod sqlite_damage;
mod sqlite_file;
mod sqlite_model;
