//! One rule: conditions, and what meets all of them.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use super::raw::{Seen, lower};
use super::status::StatusMatch;
use crate::failure::{Kind, Reason};
use crate::name::MessageType;

/// The most rules a queue may have of its own.
pub const RULES_MAX: usize = 1000;
/// The longest pattern a rule may have, and how large it may become when compiled.
const PATTERN_BYTES_MAX: usize = 4096;
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Says what an error means. All conditions that are given must be met; at least one must be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What people call it. Defaults to its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The error contains this text, in upper or lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The error matches this regular expression, in upper or lower case unless it says `(?-i)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The process exited with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The answer had this status: `503`, `"5xx"`, `"500..504"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<StatusMatch>,
    /// The error has this code, in upper or lower case; a `*` at the end stands for any rest. Without
    /// a code of its own, an error has the code "HTTP 503", "exit 75" or "signal 9".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The message is of this type; a `*` at the end stands for any rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// The caller already knows this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What such an error is.
    pub kind: Kind,
    /// The reason to record. Defaults to what the caller knows, or else to what the presets say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_reason: Option<Reason>,
}

impl Rule {
    /// A rule for errors of this kind, still without the condition it needs.
    pub const fn new(kind: Kind) -> Self {
        Self {
            name: None,
            text: None,
            regex: None,
            exit_code: None,
            http_status: None,
            code: None,
            message_type: None,
            reason: None,
            kind,
            set_reason: None,
        }
    }

    /// Gives it a name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Asks for a part of the error's text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Asks for a match of a regular expression.
    #[must_use]
    pub fn regex(mut self, regex: impl Into<String>) -> Self {
        self.regex = Some(regex.into());
        self
    }

    /// Asks for an exit code.
    #[must_use]
    pub fn exit_code(mut self, exit_code: i32) -> Self {
        self.exit_code = Some(exit_code);
        self
    }

    /// Asks for HTTP statuses.
    #[must_use]
    pub fn http_status(mut self, http_status: StatusMatch) -> Self {
        self.http_status = Some(http_status);
        self
    }

    /// Asks for a code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Asks for a message type.
    #[must_use]
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.message_type = Some(message_type.into());
        self
    }

    /// Asks for a reason the caller knows.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Sets the reason to record.
    #[must_use]
    pub fn set_reason(mut self, reason: Reason) -> Self {
        self.set_reason = Some(reason);
        self
    }

    fn has_condition(&self) -> bool {
        let words = [&self.text, &self.regex, &self.code, &self.message_type];
        words.iter().any(|word| word.is_some())
            || self.exit_code.is_some()
            || self.http_status.is_some()
            || self.reason.is_some()
    }
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("classification {rule}: {problem}")]
pub struct InvalidRule {
    index: usize,
    rule: String,
    problem: String,
}

impl InvalidRule {
    /// The rule's place, from 0.
    pub const fn index(&self) -> usize {
        self.index
    }

    /// What is wrong, without saying where.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

pub(super) fn check_count(rules: &[Rule]) -> Result<(), InvalidRule> {
    if rules.len() <= RULES_MAX {
        return Ok(());
    }
    let problem = format!("there are {} rules; at most {RULES_MAX} are allowed", rules.len());
    Err(InvalidRule { index: RULES_MAX, rule: shown_name(RULES_MAX, None), problem })
}

fn shown_name(index: usize, name: Option<&str>) -> String {
    let number = index.saturating_add(1);
    name.map_or_else(|| format!("rule {number}"), |name| format!("rule {number} ({name:?})"))
}

/// A rule made ready to be asked.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) set_reason: Option<Reason>,
    text: Option<String>,
    regex: Option<Regex>,
    exit_code: Option<i32>,
    http_status: Option<StatusMatch>,
    code: Option<Pattern>,
    message_type: Option<Pattern>,
    reason: Option<Reason>,
}

impl Compiled {
    /// A rule of a queue's own.
    pub(super) fn new(index: usize, rule: &Rule) -> Result<Self, InvalidRule> {
        let unicode = true;
        Self::build(index, rule, unicode).map_err(|problem| InvalidRule {
            index,
            rule: shown_name(index, rule.name.as_deref()),
            problem,
        })
    }

    /// A preset: its expressions know ASCII only, and so are quick on any text.
    pub(super) fn preset(index: usize, rule: &Rule) -> Result<Self, String> {
        let unicode = false;
        Self::build(index, rule, unicode)
    }

    fn build(index: usize, rule: &Rule, unicode: bool) -> Result<Self, String> {
        if !rule.has_condition() {
            return Err("it has no condition, so it would match every error".to_owned());
        }
        if rule.text.as_ref().is_some_and(String::is_empty) {
            return Err("text is empty".to_owned());
        }
        let pattern = |field: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(Pattern::parse).transpose();
            parsed.map_err(|problem| format!("{field} {:?} {problem}", text.as_deref().unwrap_or_default()))
        };
        let message_type = pattern("message_type", &rule.message_type)?;
        if let Some(word) = message_type.as_ref().map(Pattern::word).filter(|word| !word.is_empty()) {
            MessageType::new(word).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            name: rule.name.clone().unwrap_or_else(|| shown_name(index, None)),
            kind: rule.kind,
            set_reason: rule.set_reason,
            text: rule.text.as_deref().map(|text| lower(text).into_owned()),
            regex: rule.regex.as_deref().map(|pattern| expression(pattern, unicode)).transpose()?,
            exit_code: rule.exit_code,
            http_status: rule.http_status,
            code: pattern("code", &rule.code)?,
            message_type,
            reason: rule.reason,
        })
    }

    /// True if the error meets every condition. What is cheap to ask is asked first.
    pub(super) fn matches(&self, seen: &Seen<'_>) -> bool {
        let raw = seen.raw;
        self.reason.is_none_or(|wanted| raw.reason == Some(wanted))
            && self.exit_code.is_none_or(|wanted| raw.exit_code == Some(wanted))
            && self
                .http_status
                .is_none_or(|wanted| raw.http_status.is_some_and(|status| wanted.matches(status)))
            && self
                .code
                .as_ref()
                .is_none_or(|wanted| seen.code.as_deref().is_some_and(|code| wanted.matches_any_case(code)))
            && self.message_type.as_ref().is_none_or(|wanted| {
                seen.message_type.is_some_and(|message_type| wanted.matches(message_type.as_str()))
            })
            && self.text.as_deref().is_none_or(|wanted| seen.lower().contains(wanted))
            && self.regex.as_ref().is_none_or(|wanted| wanted.is_match(seen.text))
    }
}

fn expression(pattern: &str, unicode: bool) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err("regex is empty".to_owned());
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "regex is {} bytes long; at most {PATTERN_BYTES_MAX} are allowed",
            pattern.len()
        ));
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(true).unicode(unicode).size_limit(COMPILED_BYTES_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("regex {pattern:?} becomes larger than {COMPILED_BYTES_MAX} bytes; repeat less")
        }
        other => where_it_breaks(pattern).unwrap_or_else(|| other.to_string()),
    })
}

/// The place and the problem in one line.
fn where_it_breaks(pattern: &str) -> Option<String> {
    let (offset, problem) = match regex_syntax::parse(pattern).err()? {
        regex_syntax::Error::Parse(error) => (error.span().start.offset, error.kind().to_string()),
        regex_syntax::Error::Translate(error) => (error.span().start.offset, error.kind().to_string()),
        _ => return None,
    };
    let character = pattern.get(..offset)?.chars().count() + 1;
    Some(format!("regex {pattern:?} is wrong at character {character}: {problem}"))
}
