//! Signatures: what failures have in common.
//!
//! A signature is a fingerprint of queue, message type, reason and the error with its volatile parts
//! taken out, or of the failing schema path. It looks at one failure alone and keeps no memory, so the
//! same failure has the same signature always and everywhere.
//!
//! In reading order: `trace` finds the lines that tell the cause, `scan` and `chunk` read such a
//! line into words and placeholders, `piece` writes them down, and `batch` looks at many failures
//! together where a reader wants fewer groups than single failures give.
//!
//! ```
//! use sickbay_core::signature::{Subject, normalise, signature};
//!
//! let subject = |text| Subject { queue: "orders", message_type: None, reason: "Unknown", text, schema_path: None };
//! let first = signature(&subject("order 17 not found at 10.0.0.7:5432"));
//! let second = signature(&subject("order 4711 not found at 10.0.0.8:5432"));
//! assert_eq!(first, second);
//! assert_eq!(normalise("order 17 not found at 10.0.0.7:5432"), "order <num> not found at <ip>");
//! ```

mod batch;
mod chunk;
mod frame;
mod id;
mod piece;
mod rule;
mod scan;
mod token;
mod trace;
mod words;

#[cfg(test)]
mod tests;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use id::{NotASignature, Signature};
pub use rule::{Grouping, GroupingRule, GroupingRuleError};

/// Bytes of a text that are looked at, from its beginning and from its end.
const EXCERPT_BYTES: usize = 16 * 1024;

/// Fixed for ever: another seed would make all signatures in all stores new ones.
const SEED: u64 = 0x5163_6b62_6179_0001;

/// What a signature is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The queue the message failed in.
    pub queue: &'a str,
    /// The message's type, if it has one.
    pub message_type: Option<&'a str>,
    /// The reason of the failure.
    pub reason: &'a str,
    /// The error's text, of any length and with any characters.
    pub text: &'a str,
    /// Where the message breaks its schema; taken instead of the text.
    pub schema_path: Option<&'a str>,
}

/// The signature of one failure.
pub fn signature(subject: &Subject<'_>) -> Signature {
    fingerprint(subject, &essence(subject))
}

/// The signatures of many failures, in their order, each with its normalised text.
///
/// What [`signature`] tells apart only by a word that keeps changing is put together here: this needs
/// the whole batch and depends on it. Meant for looking at texts, not for keeping.
pub fn signatures(subjects: &[Subject<'_>]) -> Vec<(Signature, String)> {
    batch::signatures(subjects, |subject| essence(subject))
}

/// The error's text with its volatile parts replaced by placeholders such as `<num>`, `<id>` and `<path>`.
///
/// Of many lines only those are kept that tell the cause: the message, `caused by …`, `at …`.
pub fn normalise(text: &str) -> String {
    write(text, piece::render)
}

/// What of a failure goes into its signature, besides queue, type and reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Essence {
    /// The words of the error in order, `*` for what is volatile between them.
    Outline(String),
    /// The failing schema path without places in lists.
    SchemaPath(String),
    /// The name of the user's rule.
    Rule(String),
}

fn essence(subject: &Subject<'_>) -> Essence {
    match subject.schema_path {
        Some(path) => Essence::SchemaPath(without_indexes(path)),
        None => Essence::Outline(write(subject.text, piece::outline)),
    }
}

fn fingerprint(subject: &Subject<'_>, essence: &Essence) -> Signature {
    let (kind, text) = match essence {
        Essence::Outline(text) => ("text", text),
        Essence::SchemaPath(text) => ("path", text),
        Essence::Rule(text) => ("rule", text),
    };
    let message_type = subject.message_type.unwrap_or_default();
    let mut input = Vec::with_capacity(text.len() + 64);
    for field in [subject.queue, message_type, subject.reason, kind, text] {
        // The length before each field keeps `a` + `bc` apart from `ab` + `c`.
        input.extend_from_slice(&(field.len() as u64).to_le_bytes());
        input.extend_from_slice(field.as_bytes());
    }
    Signature::from_bits(xxh3_64_with_seed(&input, SEED))
}

fn write(text: &str, line_into: impl Fn(&[piece::Piece<'_>], &mut String)) -> String {
    let (parts, cut) = excerpt(text);
    let gist = trace::gist(&parts);
    let mut out = String::new();
    let mut line = |prefix: &str, line: &str| {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(prefix);
        line_into(&scan::scan(line, cut), &mut out);
    };
    for message in &gist.message {
        line("", message);
    }
    if let Some(cause) = gist.cause {
        line("caused by: ", cause);
    }
    for call in &gist.calls {
        out.push_str("\nat ");
        out.push_str(call);
    }
    out
}

/// The beginning and, where something is left out between, the end of a long text, in whole lines.
/// Says whether the beginning was cut inside a line.
fn excerpt(text: &str) -> (Vec<&str>, bool) {
    if text.len() <= 2 * EXCERPT_BYTES {
        return (vec![text], false);
    }
    let mut end = EXCERPT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let start = text.len() - EXCERPT_BYTES;
    let line_end = text.as_bytes()[start..].iter().position(|byte| *byte == b'\n');
    let tail = line_end.map(|at| &text[start + at + 1..]);
    match (text[..end].rsplit_once('\n'), tail) {
        (Some((head, _)), Some(tail)) => (vec![head, tail], false),
        (Some((head, _)), None) => (vec![head], false),
        (None, Some(tail)) => (vec![&text[..end], tail], true),
        (None, None) => (vec![&text[..end]], true),
    }
}

/// A JSON pointer or path with `*` for every place in a list: `/items/3/price` and `$.items[3].price`.
fn without_indexes(path: &str) -> String {
    let mut stable = String::with_capacity(path.len().min(1024));
    let mut rest = &path[..path.char_indices().nth(1024).map_or(path.len(), |(at, _)| at)];
    while let Some(c) = rest.chars().next() {
        stable.push(c);
        rest = &rest[c.len_utf8()..];
        if matches!(c, '/' | '[' | '.') {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let ends = rest[digits..].chars().next().is_none_or(|next| matches!(next, '/' | ']' | '.' | '['));
            if digits > 0 && ends {
                stable.push('*');
                rest = &rest[digits..];
            }
        }
    }
    stable
}
