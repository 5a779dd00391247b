//! What `sickbay init` writes.

/// A file to begin with: one queue that works as it stands, and every other setting as a comment.
pub const STARTER: &str = include_str!("starter.toml");
