//! One line of a script.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sickbay_core::QueuePolicy;
use sickbay_core::policy::{Ordering, RetryPolicy, WhenHeadQuarantined};

/// A verb, what it is about, and options `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub verb: String,
    /// What with.
    pub words: Vec<String>,
    /// How.
    pub options: BTreeMap<String, String>,
}

impl Command {
    /// A command with one word.
    pub fn new(verb: impl Into<String>, word: impl Into<String>) -> Self {
        Self { verb: verb.into(), words: vec![word.into()], options: BTreeMap::new() }
    }

    /// A command of a verb alone.
    pub fn bare(verb: impl Into<String>) -> Self {
        Self { verb: verb.into(), words: Vec::new(), options: BTreeMap::new() }
    }

    /// Adds a word.
    #[must_use]
    pub fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.options.insert(name.to_owned(), value.to_string());
        self
    }

    /// An option's value.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// True if one of the words is this.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// A duration among the options.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.option(name).and_then(duration)
    }

    /// The policy that the options of a `queue` command describe.
    pub fn policy(&self) -> QueuePolicy {
        let number = |name| self.option(name).and_then(|text| text.parse::<u32>().ok());
        let mut policy = QueuePolicy::default();
        policy.retry.attempts = number("attempts").unwrap_or(0);
        if let Some(pause) = self.duration("cooldown") {
            policy.retry = RetryPolicy::cooldown(policy.retry.attempts, pause);
        }
        if let Some(base) = self.duration("exponential") {
            policy.retry = RetryPolicy::exponential(policy.retry.attempts, base);
        }
        if self.option("ordering") == Some("available") {
            policy.ordering = Ordering::Available;
        }
        if self.option("head") == Some("pass") {
            policy.when_head_quarantined = WhenHeadQuarantined::Pass;
        }
        policy.run_max = number("run_max").unwrap_or(policy.run_max);
        policy.crash_budget = number("crash_budget").unwrap_or(policy.crash_budget);
        policy.key_window = self.duration("key_window").unwrap_or(policy.key_window);
        policy
    }
}

/// `500ms`, `30s`, `5m`, `2h`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().ok()?;
    let millis = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(count * millis))
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut parts = line.split_whitespace();
        let mut command = Self::bare(parts.next().ok_or("an empty command")?);
        for part in parts {
            match part.split_once('=') {
                Some((name, value)) => command = command.with(name, value),
                None => command.words.push(part.to_owned()),
            }
        }
        Ok(command)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verb)?;
        self.words.iter().try_for_each(|word| write!(f, " {word}"))?;
        self.options.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}
