//! From text to a table whose every key and value knows its place.

use toml::de::DeTable;

use super::problem::Finding;
use super::read::{Reader, Span, Table};

/// Parses the text. What is no TOML is reported; `None` if what is left would mislead.
pub(super) fn parse<'s>(reader: &Reader<'s>) -> Option<Table<'s>> {
    let text = reader.text();
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    let mut last_line = None;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // One slip often upsets the parser more than once on the same line.
        let line = text.get(..span.start).map(|before| before.matches('\n').count());
        if line.is_some() && line == last_line {
            continue;
        }
        last_line = line;
        usable &= error.message() == "duplicate key";
        reader.report(explain(text, span, error.message()));
    }
    usable.then(|| table.into_inner())
}

fn explain(text: &str, span: Span, message: &str) -> Finding {
    let meant = text.get(span.clone()).unwrap_or_default();
    let finding = |message: &str| Finding::new(span.clone(), message);
    if message == "duplicate key" {
        let first = first_before(text, meant, span.start);
        let finding = Finding::new(span, format!("`{meant}` is given twice"));
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
    Finding::new(span, format!("this is no TOML: {message}"))
}

/// Where a line or a heading with the same end stands before.
fn first_before(text: &str, key: &str, before: usize) -> Option<Span> {
    let line_start = text[..before].rfind('\n').map_or(0, |at| at + 1);
    let beginning = &text[line_start..before];
    let is_heading = beginning.trim_start().starts_with('[');
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
