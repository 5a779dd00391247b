//! The configuration file: what is right is read, what is wrong is said.

mod broken;
mod documented;
mod good;
mod watch;
