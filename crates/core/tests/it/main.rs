//! What the core promises, as tables and properties.

mod breaker;
mod classify;
mod decide;
mod errors;
mod gate;
mod records;
mod retry;
mod signature;
mod words;
