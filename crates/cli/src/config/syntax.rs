//! From text to a table whose every key and value knows its place.

use toml::de::DeTable;

use super::problem::{Finding, Sort};
use super::read::{Reader, Span, Table};

/// Parses the text. What is no TOML is reported; `None` if what is left would mislead.
pub(super) fn parse<'s>(reader: &Reader<'s>) -> Option<Table<'s>> {
    let text = reader.text();
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    let mut last_line = None;
    let mut repeated_heading = None;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // One slip often upsets the parser more than once on the same line.
        let line = text.get(..span.start).map(|before| before.matches('\n').count());
        if line.is_some() && line == last_line {
            continue;
        }
        last_line = line;
        let is_duplicate = error.message() == "duplicate key";
        if is_duplicate && follows(text, repeated_heading, span.start) {
            continue;
        }
        repeated_heading = Some(span.start).filter(|at| is_duplicate && is_heading(text, *at));
        usable &= is_duplicate;
        reader.report(explain(text, span, error.message()));
    }
    usable.then(|| table.into_inner())
}

/// True if nothing but settings stands between a heading and this place: when a heading is given twice,
/// so are its settings, and saying so once is enough.
fn follows(text: &str, heading: Option<usize>, at: usize) -> bool {
    let between = heading.and_then(|heading| text.get(heading..at));
    between.is_some_and(|between| !between.contains("\n["))
}

fn is_heading(text: &str, at: usize) -> bool {
    line_before(text, at).trim_start().starts_with('[')
}

/// What stands before this place on its line.
fn line_before(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    before.rsplit('\n').next().unwrap_or_default()
}

fn explain(text: &str, span: Span, message: &str) -> Finding {
    let meant = text.get(span.clone()).unwrap_or_default();
    let finding = |message: &str| Finding::new(span.clone(), message).sort(Sort::Syntax);
    if message == "duplicate key" {
        let first = first_before(text, meant, span.start);
        let finding = Finding::new(span, format!("`{meant}` is given twice")).sort(Sort::Syntax);
        return match first {
            Some(first) => finding.related(first, "it was given here before"),
            None => finding,
        };
    }
    if message.starts_with("string values must be quoted") {
        return if meant.is_empty() {
            finding("a value is missing")
        } else {
            finding("this is no value").help(format!("text is written in quotes: \"{meant}\""))
        };
    }
    if message.starts_with("invalid basic string") && meant.is_empty() {
        return finding("the text is not closed").help("put a `\"` at its end");
    }
    if message.starts_with("key with no value") {
        return finding("a key without a value").help("a setting is written `key = value`");
    }
    if message.starts_with("unclosed table") {
        return finding("the heading is not closed").help("put a `]` at its end");
    }
    if message.starts_with("unexpected key or value, expected newline") {
        return finding("nothing else may stand on this line").help("each setting has a line of its own");
    }
    Finding::new(span, format!("this is no TOML: {message}")).sort(Sort::Syntax)
}

/// Where a line or a heading with the same end stands before.
fn first_before(text: &str, key: &str, before: usize) -> Option<Span> {
    let beginning = line_before(text, before);
    let line_start = before - beginning.len();
    let is_heading = is_heading(text, before);
    let same = |line: &str| line.starts_with(beginning) && line[beginning.len()..].starts_with(key);
    let mut found = None;
    let mut start = 0;
    for line in text[..line_start].split_inclusive('\n') {
        if same(line) && !line[beginning.len() + key.len()..].starts_with(|c: char| c.is_alphanumeric()) {
            found = Some(start + beginning.len()..start + beginning.len() + key.len());
            if is_heading {
                break;
            }
        } else if !is_heading && line.trim_start().starts_with('[') {
            found = None;
        }
        start += line.len();
    }
    found
}
