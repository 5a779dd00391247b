//! How raw errors become failures (A5).
//!
//! A rule names conditions and the kind, and perhaps the reason, of what meets all of them. A queue's
//! own rules come first, then the [`presets`]; the first that matches wins. What nothing matches is
//! unknown: it is tried again up to the limit and is poison after that.
//!
//! The presets are ordered by how plainly something was said: what the caller knows, an HTTP status,
//! an exit code, an error code, and only then the words of the error.

mod pattern;
mod presets;
mod raw;
mod rule;
mod status;
mod unreachable;

use crate::failure::{Failure, Kind, Reason};
use crate::name::MessageType;

pub use presets::presets;
pub use raw::RawError;
pub use rule::{InvalidRule, RULES_MAX, Rule};
pub use status::{InvalidStatus, StatusMatch};
pub use unreachable::unreachable_rules;

use raw::Seen;
use rule::Compiled;

/// Rules, compiled. Without rules of a queue's own it is the presets alone.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    own: Vec<Compiled>,
}

/// Which rule an error met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The rule's name, or its number if it has none ("rule 3").
    pub rule: String,
    /// It is one of the presets.
    pub preset: bool,
    /// Its place among the queue's own rules or among the presets, from 0.
    pub index: usize,
}

impl Classifier {
    /// These rules, and the presets after them. The error says which rule is wrong and how.
    pub fn new(rules: &[Rule]) -> Result<Self, InvalidRule> {
        rule::check_count(rules)?;
        let own = rules.iter().enumerate().map(|(index, rule)| Compiled::new(index, rule));
        Ok(Self { own: own.collect::<Result<_, _>>()? })
    }

    /// What the error means. The rule that matches says the kind; it says the reason too, or leaves
    /// that to the caller's own knowledge and then to the presets.
    pub fn classify(&self, message_type: Option<&MessageType>, raw: RawError) -> Failure {
        let seen = Seen::new(message_type, &raw);
        let own = self.own.iter().find(|rule| rule.matches(&seen));
        let settled = own.is_some_and(|rule| rule.set_reason.is_some());
        let preset = if settled { None } else { presets::first_match(&seen).map(|(_, rule)| rule) };
        let kind = own.map(|rule| rule.kind).or(preset.map(|rule| rule.kind));
        let reason = match own {
            Some(rule) => rule.set_reason.or(raw.reason).or(preset.and_then(|rule| rule.set_reason)),
            None => preset.and_then(|rule| rule.set_reason).or(raw.reason),
        };
        Failure {
            kind: kind.unwrap_or(Kind::Unknown),
            reason: reason.unwrap_or(Reason::HandlerException),
            code: raw.shown_code(),
            retry_after: raw.retry_after,
            schema_path: None,
            error: raw.text,
        }
    }

    /// Which rule decides about this error; `None` if nothing matches.
    pub fn explain(&self, message_type: Option<&MessageType>, raw: &RawError) -> Option<Matched> {
        let seen = Seen::new(message_type, raw);
        let own = self.own.iter().enumerate().find(|(_, rule)| rule.matches(&seen));
        if let Some((index, rule)) = own {
            return Some(Matched { rule: rule.name.clone(), preset: false, index });
        }
        let (index, rule) = presets::first_match(&seen)?;
        Some(Matched { rule: rule.name.clone().unwrap_or_default(), preset: true, index })
    }
}
