//! A message's metadata as names and values.

use std::collections::HashSet;

use sickbay_core::{Cause, Key, MessageType, StreamKey, Timestamp};

use super::stage_names;
use crate::context::Context;

/// At most so many bytes of a message's headers are handed on: environments and HTTP servers have limits.
const HEADER_BYTES_MAX: usize = 32 * 1024;

/// What is told, by the name that follows `SICKBAY_` or `X-Sickbay-`. `None` is not told at all.
pub(crate) fn facts(ctx: &Context) -> [(&'static str, Option<String>); 16] {
    let (message, counters) = (ctx.message(), ctx.counters());
    let flag = |flag: bool| Some(u8::from(flag).to_string());
    [
        ("MESSAGE_ID", Some(message.id.to_string())),
        ("QUEUE", Some(message.queue.to_string())),
        ("TYPE", message.message_type.as_ref().map(MessageType::to_string)),
        ("STREAM", message.stream.as_ref().map(StreamKey::to_string)),
        ("KEY", message.key.as_ref().map(Key::to_string)),
        ("PRIORITY", Some(message.priority.get().to_string())),
        ("PUSHED_AT", Some(message.pushed_at.to_string())),
        ("DEADLINE", message.deadline_at.as_ref().map(Timestamp::to_string)),
        ("ATTEMPT", Some(ctx.attempt().to_string())),
        ("FAILURES", Some(counters.failures.to_string())),
        ("LAST_ATTEMPT", flag(ctx.is_last_attempt())),
        ("STAGES", Some(stage_names(ctx.stages()).join("|"))),
        ("TOKEN", Some(ctx.token().to_string())),
        ("TIME_BUDGET_MS", Some(ctx.remaining().as_millis().to_string())),
        ("CAUSE", ctx.cause().map(cause_word)),
        ("SUSPECT", flag(ctx.is_suspect())),
    ]
}

/// One word for programs: `lease_expired`.
fn cause_word(cause: Cause) -> String {
    cause.as_str().replace(' ', "_")
}

/// The first header of this name, in upper or lower case.
pub(crate) fn header<'a>(ctx: &'a Context, name: &str) -> Option<&'a str> {
    let mut headers = ctx.message().headers.iter();
    headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// The trace context that came with the message: `traceparent` and `tracestate`. What does not look
/// like one is not passed on.
pub(crate) fn trace_context(ctx: &Context) -> (Option<&str>, Option<&str>) {
    let is_parent = |text: &&str| {
        (55..=200).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
    };
    let is_state = |text: &&str| text.len() <= 512 && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let parent = header(ctx, "traceparent").filter(is_parent);
    (parent, parent.and_then(|_| header(ctx, "tracestate")).filter(is_state))
}

/// How the names of headers are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `TENANT_ID`
    #[cfg(feature = "exec")]
    Environment,
    /// `tenant-id`
    #[cfg(feature = "http")]
    Http,
}

impl Spelling {
    fn spell(self, name: &str) -> String {
        let letter = |c: char| match self {
            #[cfg(feature = "exec")]
            Self::Environment => {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            }
            #[cfg(feature = "http")]
            Self::Http => {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '-'
                }
            }
        };
        name.chars().map(letter).collect()
    }
}

/// The message's headers under names that can do no harm, and how many had to be left out: those whose
/// name is taken or empty, whose value holds a NUL, and what is above 32 KiB in all.
pub(crate) fn headers(ctx: &Context, spelling: Spelling) -> (Vec<(String, &str)>, usize) {
    let all = &ctx.message().headers;
    let (mut kept, mut seen, mut bytes) = (Vec::with_capacity(all.len()), HashSet::new(), 0);
    for (name, value) in all {
        let size = name.len().saturating_add(value.len());
        let fits = size <= HEADER_BYTES_MAX - bytes && !name.is_empty() && !value.contains('\0');
        if !fits {
            continue;
        }
        let name = spelling.spell(name);
        if seen.insert(name.clone()) {
            bytes += size;
            kept.push((name, value.as_str()));
        }
    }
    let left_out = all.len() - kept.len();
    (kept, left_out)
}
