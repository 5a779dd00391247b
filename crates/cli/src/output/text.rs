//! Words for people. What comes from payloads and errors is escaped before it reaches a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use sickbay_server::wire::Span;

/// The text on one line: whatever a terminal could take for an order is written out.
pub(crate) fn escape(text: &str) -> String {
    escape_but(text, |_| false)
}

/// The text on its own lines, each behind the indent.
pub(crate) fn block(text: &str, indent: &str) -> String {
    let text = escape_but(text, |c| matches!(c, '\n' | '\t'));
    text.lines().fold(String::new(), |all, line| all + indent + line + "\n")
}

fn escape_but(text: &str, is_fine: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_fine(c) => escaped.push(c),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c if c.is_control() || turns_text_around(c) => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Characters that show text in another order than it has, or are not seen at all.
fn turns_text_around(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A word as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", escape(word).replace('\'', "'\\''"))
}

/// At most so many characters of a text.
pub(crate) fn excerpt(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    text.chars().take(characters_max.saturating_sub(1)).chain(['…']).collect()
}

/// A number that people can read: 1,234,567.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 message", "2 messages".
pub(crate) fn plural(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// How long something is, to the two largest units.
pub(crate) fn ago(duration: Duration) -> String {
    let seconds = match duration.as_secs() {
        0..60 => duration.as_secs(),
        60..3_600 => duration.as_secs(),
        3_600..86_400 => duration.as_secs() / 60 * 60,
        _ => duration.as_secs() / 3_600 * 3_600,
    };
    Span(Duration::from_secs(seconds)).to_string()
}

/// A word of the wire as people read it: `lease_expired` becomes `lease expired`.
pub(crate) fn words<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        Ok(serde_json::Value::Object(object)) => {
            object.values().find_map(serde_json::Value::as_str).unwrap_or_default().replace('_', " ")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_the_cursor_is_left() {
        assert_eq!(escape("a\x1b]0;x\x07\u{9b}31m\r\n\tü✓"), "a\\u{1b}]0;x\\u{7}\\u{9b}31m\\r\\n\\tü✓");
        assert_eq!(block("a\r\nb\x08", "  "), "  a\\r\n  b\\u{8}\n");
    }

    #[test]
    fn numbers_and_ages_are_short() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let ages = [0, 59, 61, 3_661, 90_061].map(|seconds| ago(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0s", "59s", "1m1s", "1h1m", "1d1h"]);
        assert_eq!(excerpt("abcdef", 4), "abc…");
        assert_eq!(["a/b-1", "", "it's 1"].map(shell_word), ["a/b-1", "''", r"'it'\''s 1'"]);
    }
}
