//! Every command on a store in PostgreSQL. `cargo xtask test` starts the server and says where it is.

mod copy;
mod doctor;
mod everything;
mod migrate;
mod scene;
