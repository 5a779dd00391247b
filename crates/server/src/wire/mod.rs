//! What travels: the types that the server, the client and `--json` share, one file per noun.
//!
//! Times are RFC 3339 text, durations are text for people (`"30s"`, `"1h30m"`), ids are text with their
//! short form beside them, and payloads are text where they are text and base64 where they are not.
//! Requests refuse fields they do not know; answers may grow.

pub mod act;
pub mod delivery;
pub mod exchange;
pub mod failure;
pub mod headers;
pub mod message;
pub mod payload;
pub mod policy;
pub mod problem;
pub mod process;
pub mod quarantine;
pub mod queue;
pub mod settle;
pub mod span;
pub mod stage;
pub mod stats;
pub mod stream;
pub mod time;
pub mod token;

pub use problem::Problem;
pub use span::Span;
pub use time::Time;
pub use token::Token;
