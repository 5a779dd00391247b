//! Finds in a text of many lines those that tell the cause: the message, the root of a chain of
//! exceptions, and the functions at the top of the trace.

use std::borrow::Cow;

use super::frame::{self, Line};

/// Lines of a message that count, when frames or a cause follow.
const MESSAGE_LINES_MAX: usize = 3;

/// Lines of a document in a message that count.
const DOCUMENT_LINES_MAX: usize = 64;

/// Calls that count.
const CALLS_MAX: usize = 2;

/// Lines that are looked at.
const LINES_MAX: usize = 2_000;

/// The part of a text that makes its signature.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gist<'t> {
    /// What the error says.
    pub(super) message: Vec<Cow<'t, str>>,
    /// What lies at the root of it.
    pub(super) cause: Option<&'t str>,
    /// The functions it happened in, innermost first.
    pub(super) calls: Vec<String>,
}

impl Gist<'_> {
    /// `A ---> B ---> C` in one line, as .NET writes it.
    fn split_inline_cause(&mut self) {
        if let Some(Cow::Borrowed(first)) = self.message.first_mut()
            && let Some((message, chain)) = first.split_once(" ---> ")
        {
            *first = message;
            let root = chain.rsplit(" ---> ").next();
            self.cause = self.cause.or(root);
        }
    }
}

/// One error of a chain.
#[derive(Debug, Default)]
struct Section<'t> {
    message: Vec<&'t str>,
    calls: Vec<(&'t str, bool)>,
    python: bool,
    /// Whether the section before it belongs to the same chain.
    chained: bool,
}

/// How the lines that come next are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Message,
    /// Behind frames: what follows is not the message.
    Frames,
    /// Behind `stack backtrace:` of Rust.
    Backtrace,
    /// Behind a bare `Caused by:`: each line is a cause, the last one the root.
    Causes,
    /// Behind the end of an inner trace.
    Ignored,
}

/// Reads the lines of `parts`, which are the beginning and perhaps the end of one text.
pub(super) fn gist<'t>(parts: &[&'t str]) -> Gist<'t> {
    let mut reader = Reader { sections: vec![Section::default()], mode: Mode::Message, link: false };
    let mut lines = parts.iter().flat_map(|part| part.split('\n')).take(LINES_MAX).peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_end_matches('\r');
        reader.line(line, lines.peek().copied());
    }
    reader.finish()
}

struct Reader<'t> {
    sections: Vec<Section<'t>>,
    mode: Mode,
    /// Python said that the next trace belongs to the one before.
    link: bool,
}

impl<'t> Reader<'t> {
    fn line(&mut self, line: &'t str, next: Option<&str>) {
        let text = line.trim();
        if text.is_empty() || self.chain(line, text) {
            return;
        }
        if self.mode == Mode::Backtrace
            && let Some(Line::Call { name, own }) = frame::rust_call(line)
        {
            return self.section().calls.push((name, own));
        }
        match frame::read(line, next) {
            Line::Call { name, own } => self.call(name, own),
            Line::Noise if text.starts_with("--- End of inner") => self.mode = Mode::Ignored,
            // The source line that Node prints above its carets is not the message.
            Line::Noise if text.starts_with('^') && self.mode == Mode::Message => {
                self.section().message.clear();
            }
            Line::Noise => {}
            Line::Text => self.text(line, text),
        }
    }

    /// Lines that begin another error of the chain.
    fn chain(&mut self, line: &'t str, text: &'t str) -> bool {
        if text == "Traceback (most recent call last):" {
            let chained = std::mem::take(&mut self.link);
            self.sections.push(Section { python: true, chained, ..Section::default() });
            self.mode = Mode::Frames;
        } else if text.starts_with("During handling of the above exception")
            || text.starts_with("The above exception was the direct cause")
        {
            self.link = true;
        } else if text == "Caused by:" || text == "caused by:" {
            self.mode = Mode::Causes;
        } else if text.eq_ignore_ascii_case("stack backtrace:") || text.eq_ignore_ascii_case("backtrace:") {
            self.mode = Mode::Backtrace;
        } else if let Some(message) = cause_behind_marker(text) {
            self.sections.push(Section { message: vec![message], ..Section::default() });
            self.mode = Mode::Message;
        } else if self.mode == Mode::Causes && line.starts_with([' ', '\t']) {
            let message = without_number(text);
            self.sections.push(Section { message: vec![message], ..Section::default() });
        } else {
            return false;
        }
        true
    }

    fn call(&mut self, name: &'t str, own: bool) {
        if self.mode != Mode::Ignored {
            self.mode = Mode::Frames;
            self.section().calls.push((name, own));
        }
    }

    fn text(&mut self, line: &'t str, text: &'t str) {
        let indented = line.starts_with([' ', '\t']);
        let mode = self.mode;
        let section = self.section();
        // The line behind a Python trace is the exception; behind other traces there is nothing to learn.
        let exception = section.python && section.message.is_empty() && !indented && mode == Mode::Frames;
        if exception || mode == Mode::Message {
            section.message.push(text);
        }
    }

    fn section(&mut self) -> &mut Section<'t> {
        if self.sections.is_empty() {
            self.sections.push(Section::default());
        }
        let last = self.sections.len() - 1;
        &mut self.sections[last]
    }

    fn finish(mut self) -> Gist<'t> {
        let traced = self.sections.len() > 1 || self.sections.iter().any(|section| !section.calls.is_empty());
        if let Some(last) = self.sections.iter().rposition(|s| s.python && !s.message.is_empty()) {
            return python_gist(&mut self.sections, last);
        }
        let sections = self.sections;
        let Some(first) = sections.first() else { return Gist::default() };
        let message = match first.message.first() {
            // A document over many lines is read as one.
            Some(line) if line.ends_with(['{', '[', '(']) => {
                let lines: Vec<&str> = first.message.iter().take(DOCUMENT_LINES_MAX).copied().collect();
                vec![Cow::Owned(lines.join(" "))]
            }
            _ if traced => {
                let lines = first.message.iter().take(MESSAGE_LINES_MAX);
                lines.map(|line| Cow::Borrowed(without_thread(line))).collect()
            }
            _ => telling_lines(&first.message).into_iter().map(Cow::Borrowed).collect(),
        };
        let root = sections.last().filter(|_| sections.len() > 1);
        let with_calls = sections.iter().rev().find(|section| !section.calls.is_empty());
        let mut gist = Gist {
            message,
            cause: root.and_then(|section| section.message.first().copied()),
            calls: with_calls.map(|section| top_calls(section.calls.iter())).unwrap_or_default(),
        };
        gist.split_inline_cause();
        gist
    }
}

/// The message is that of the last exception, the cause that of the first in its chain. The innermost
/// call comes last.
fn python_gist<'t>(sections: &mut [Section<'t>], last: usize) -> Gist<'t> {
    let mut root = last;
    while root > 0 && sections[root].chained && sections[root - 1].python {
        root -= 1;
    }
    let message = std::mem::take(&mut sections[last].message);
    let cause = if root == last { None } else { sections[root].message.first().copied() };
    Gist {
        message: message.into_iter().take(1).map(Cow::Borrowed).collect(),
        cause,
        calls: top_calls(sections[root].calls.iter().rev()),
    }
}

/// `Caused by: X`, `---> X`, `[cause]: X`.
fn cause_behind_marker(text: &str) -> Option<&str> {
    ["Caused by: ", "caused by: ", "---> ", "[cause]: ", "Wrapped by: "]
        .iter()
        .find_map(|marker| text.strip_prefix(marker))
        .map(|message| message.trim_end_matches(['{', ' ']))
        .filter(|message| !message.is_empty())
}

/// `2: no such file` of a numbered chain.
fn without_number(text: &str) -> &str {
    match text.split_once(": ") {
        Some((number, message)) if number.bytes().all(|b| b.is_ascii_digit()) => message,
        _ => text,
    }
}

/// `Exception in thread "pool-1" X`: the thread says nothing.
fn without_thread(text: &str) -> &str {
    let rest = text.strip_prefix("Exception in thread \"").and_then(|rest| rest.split_once("\" "));
    rest.map_or(text, |(_, message)| message)
}

/// The program's own calls from the top; those of libraries where there are no others.
fn top_calls<'s, 't: 's>(calls: impl Iterator<Item = &'s (&'t str, bool)> + Clone) -> Vec<String> {
    let own: Vec<String> = calls
        .clone()
        .filter(|(_, own)| *own)
        .take(CALLS_MAX)
        .map(|(name, _)| frame::stable_name(name))
        .collect();
    if own.is_empty() {
        calls.take(CALLS_MAX).map(|(name, _)| frame::stable_name(name)).collect()
    } else {
        own
    }
}

/// Of many lines without a trace, such as the tail of a program's output, those that speak of an error.
fn telling_lines<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    if lines.len() <= MESSAGE_LINES_MAX + 1 {
        return lines.to_vec();
    }
    let telling: Vec<&str> =
        lines.iter().copied().filter(|line| speaks_of_error(line)).take(MESSAGE_LINES_MAX).collect();
    if telling.is_empty() { lines.iter().take(MESSAGE_LINES_MAX).copied().collect() } else { telling }
}

fn speaks_of_error(line: &str) -> bool {
    let start = line.char_indices().nth(512).map_or(line, |(at, _)| &line[..at]).to_ascii_lowercase();
    ["error", "fatal", "panic", "exception", "failed", "failure", "critical", "cannot", "unable to", "denied"]
        .iter()
        .any(|word| start.contains(word))
}
