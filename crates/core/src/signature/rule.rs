//! Grouping rules that a user writes: what the signature cannot know, the user can say.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::{EXCERPT_BYTES, Essence, Signature, Subject, batch, essence, fingerprint};

/// The most memory a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Failures whose error text matches the pattern share one signature, made of the rule's name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "RuleText", into = "RuleText")]
pub struct GroupingRule {
    name: String,
    pattern: Regex,
}

/// A rule as configuration has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: String,
    pattern: String,
}

/// Why a grouping rule is refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GroupingRuleError {
    /// A rule needs a name, as the signature is made of it.
    #[error("a grouping rule needs a name")]
    NoName,
    /// The pattern is no regular expression, or too large a one.
    #[error("the pattern of grouping rule {name:?} is refused: {cause}")]
    Pattern {
        /// The rule's name.
        name: String,
        /// What is wrong with the pattern.
        cause: regex::Error,
    },
}

impl GroupingRule {
    /// A rule that puts texts matching `pattern` under `name`. In the name `$1` or `${word}` stands for
    /// what a group of the pattern matched, so that one rule can make several signatures.
    pub fn new(name: impl Into<String>, pattern: &str) -> Result<Self, GroupingRuleError> {
        let name = name.into();
        if name.trim().is_empty() {
            return Err(GroupingRuleError::NoName);
        }
        match RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build() {
            Ok(pattern) => Ok(Self { name, pattern }),
            Err(cause) => Err(GroupingRuleError::Pattern { name, cause }),
        }
    }

    /// The rule's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule's pattern as it was written.
    pub fn pattern(&self) -> &str {
        self.pattern.as_str()
    }

    /// The name that the text gets, or none if the rule does not match its first 16 KiB.
    fn apply(&self, text: &str) -> Option<String> {
        let mut end = text.len().min(EXCERPT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let captures = self.pattern.captures(&text[..end])?;
        let mut name = String::new();
        captures.expand(&self.name, &mut name);
        Some(name)
    }
}

impl PartialEq for GroupingRule {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.pattern() == other.pattern()
    }
}

impl Eq for GroupingRule {}

impl TryFrom<RuleText> for GroupingRule {
    type Error = GroupingRuleError;

    fn try_from(text: RuleText) -> Result<Self, Self::Error> {
        Self::new(text.name, &text.pattern)
    }
}

impl From<GroupingRule> for RuleText {
    fn from(rule: GroupingRule) -> Self {
        Self { pattern: rule.pattern().to_owned(), name: rule.name }
    }
}

/// The user's grouping rules in their order, and the ordinary signature behind them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Grouping<'r> {
    rules: &'r [GroupingRule],
}

impl<'r> Grouping<'r> {
    /// Grouping by these rules; the first that matches wins.
    pub const fn new(rules: &'r [GroupingRule]) -> Self {
        Self { rules }
    }

    /// The signature of one failure.
    pub fn signature(&self, subject: &Subject<'_>) -> Signature {
        fingerprint(subject, &self.essence(subject))
    }

    /// The signatures of many failures; see [`signatures`](super::signatures).
    pub fn signatures(&self, subjects: &[Subject<'_>]) -> Vec<(Signature, String)> {
        batch::signatures(subjects, |subject| self.essence(subject))
    }

    /// The name of the rule's group that the text falls into, if any does.
    pub fn rule_for(&self, text: &str) -> Option<String> {
        self.rules.iter().find_map(|rule| rule.apply(text))
    }

    fn essence(&self, subject: &Subject<'_>) -> Essence {
        self.rule_for(subject.text).map_or_else(|| essence(subject), Essence::Rule)
    }
}
