//! What may differ from run to run, and what may not.

use std::sync::LazyLock;

use regex::Regex;

use super::written::Step;

/// What is replaced when an answer is written down.
static WRITTEN: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    rules(&[
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[TIME]"),
        (r"process \d+", "process [PID]"),
        (r#""pid": \d+"#, r#""pid": [PID]"#),
        (r"\b\d+/([a-z]\w*)", "[PID]/$1"),
    ])
});

/// What besides is taken for the same.
static TOLERATED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    rules(&[
        (r"(after|since|in|for) (\d+(ms|us|µs|s|m|h|d))+", "$1 [SPAN]"),
        (r"\b(\d+(ms|s|m|h|d))+ ago", "[SPAN] ago"),
        // The age in a list stands between two columns.
        (r"  (\d+s|\d+m\d+s)  ", "  [SPAN]  "),
        (r#""(ran|age)": "[^"]+""#, r#""$1": [SPAN]"#),
        (r"  +", "  "),
        (r"-{3,}", "---"),
    ])
});

fn rules(rules: &[(&str, &'static str)]) -> Vec<(Regex, &'static str)> {
    rules.iter().map(|(pattern, with)| (Regex::new(pattern).unwrap(), *with)).collect()
}

fn apply(rules: &[(Regex, &str)], text: &str) -> String {
    rules.iter().fold(text.to_owned(), |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
}

pub(super) fn masked(said: &str) -> String {
    apply(&WRITTEN, said)
}

fn normal(text: &str) -> Vec<String> {
    let text = apply(&TOLERATED, &masked(text));
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// True if what was said is what was expected.
pub(super) fn is_same(expected: &str, said: &str) -> bool {
    let (expected, said) = (normal(expected), normal(said));
    // An answer may be followed by an empty line, for the eye.
    let expected = match expected.split_last() {
        Some((last, rest)) if last.is_empty() && said.last().is_none_or(|said| !said.is_empty()) => rest,
        _ => &expected[..],
    };
    matches_lines(expected, &said)
}

fn matches_lines(expected: &[String], said: &[String]) -> bool {
    match expected.split_first() {
        None => said.is_empty(),
        Some((any, rest)) if any == "..." => (0..=said.len()).any(|skip| matches_lines(rest, &said[skip..])),
        Some((line, rest)) => said
            .split_first()
            .is_some_and(|(first, more)| matches_line(line, first) && matches_lines(rest, more)),
    }
}

fn matches_line(expected: &str, said: &str) -> bool {
    if !expected.contains("[..]") && !expected.contains("[FOLDER]") {
        return expected == said;
    }
    let parts = regex::escape(expected).replace(r"\[\.\.\]", ".*").replace(r"\[FOLDER\]", "[^ ]*");
    Regex::new(&format!("^{parts}$")).unwrap().is_match(said)
}

pub(super) fn difference(step: &Step, said: &str) -> String {
    format!("$ {}\n--- expected\n{}--- said\n{}\n", step.command, step.expected, masked(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ages_may_differ_and_nothing_else() {
        assert!(is_same("a  n0z  3s  x\n", "a  n0z  1m10s  x\n"));
        assert!(is_same("at 2026-01-01T00:00:00Z\n", "at 2027-05-01T10:00:00.123Z\n"));
        assert!(is_same("a\n...\nz\n", "a\nb\nc\nz\n") && is_same("a [..] c\n", "a b c\n"));
        assert!(!is_same("a\n", "b\n") && !is_same("a\n...\nz\n", "a\nb\n") && !is_same("", "a\n"));
        assert!(!is_same("3 messages\n", "4 messages\n") && !is_same("a\n", "? 1\na\n"));
        assert!(is_same("a\n\n", "a\n") && !is_same("a\n", "a\nb\n"));
    }
}
