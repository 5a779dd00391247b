//! What handlers in other languages are told about a message, and how they say what became of it.
//! The programs and the HTTP endpoints share it.

mod metadata;
mod said;
mod wait;

#[cfg(feature = "http")]
pub(crate) use metadata::header;
pub(crate) use metadata::{Spelling, facts, headers, trace_context};
#[cfg(feature = "http")]
pub(crate) use said::read_object;
pub(crate) use said::{Said, unreadable};
#[cfg(feature = "exec")]
pub(crate) use said::{StageList, read_last_line};
#[cfg(feature = "exec")]
pub(crate) use wait::Wait;

use sickbay_core::Stages;

/// The names of finished stages, one by one.
pub(crate) fn stage_names(stages: Stages) -> Vec<String> {
    if stages == Stages::NONE {
        return Vec::new();
    }
    stages.to_string().split('|').map(str::to_owned).collect()
}
