//! What handlers in other languages are told about a message, and how they say what became of it.
//! The programs and the HTTP endpoints share it.

mod metadata;
mod said;
mod wait;

pub(crate) use metadata::{Spelling, facts, header, headers, trace_context};
#[cfg(feature = "exec")]
pub(crate) use said::read_last_line;
pub(crate) use said::{Said, StageList, read_object, unreadable};
pub(crate) use wait::Wait;

use sickbay_core::Stages;

/// The names of finished stages, one by one.
pub(crate) fn stage_names(stages: Stages) -> Vec<String> {
    if stages == Stages::NONE {
        return Vec::new();
    }
    stages.to_string().split('|').map(str::to_owned).collect()
}
