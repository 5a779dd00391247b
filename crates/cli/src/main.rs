//! The binary `sickbay`.
fn main() {}
