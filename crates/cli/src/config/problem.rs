//! What is wrong with a file, and where.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::render::{Paint, render};

/// A place in the file, counted as people do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The bytes of the text that are meant.
    #[serde(skip)]
    pub span: Range<usize>,
}

impl Place {
    pub(super) fn of(text: &str, span: Range<usize>) -> Self {
        let start = boundary(text, span.start);
        let end = boundary(text, span.end).max(start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        // An editor does not count the mark at the very beginning of a file.
        let column = before[line_start..].chars().filter(|c| *c != '\u{feff}').count() + 1;
        Self { line: before.matches('\n').count() + 1, column, span: start..end }
    }
}

fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Another place that has to do with a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Related {
    /// What is to be seen there.
    pub message: String,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

/// What sort of thing is wrong; each has a page that `sickbay explain` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The text is no TOML.
    Syntax,
    /// A key that nobody knows.
    UnknownKey,
    /// A value that cannot be.
    #[default]
    Value,
    /// Settings that do not go together, that can never apply, or that need another one.
    Clash,
    /// Something that is named is not there: a file, a program, a variable.
    Missing,
    /// The file itself cannot be read.
    Unreadable,
}

impl Sort {
    /// Its code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Syntax => "SB0041",
            Self::UnknownKey => "SB0042",
            Self::Value => "SB0043",
            Self::Clash => "SB0044",
            Self::Missing => "SB0045",
            Self::Unreadable => "SB0046",
        }
    }
}

impl Serialize for Sort {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What sort of thing it is.
    #[serde(rename = "code")]
    pub sort: Sort,
    /// What is wrong and what was expected.
    pub message: String,
    /// Where; `None` if the file could not be read at all.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Another place that has to do with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<Related>,
}

/// Everything that is wrong with a file, in the order of the file.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ConfigErrors {
    /// The file, as it was named.
    pub file: PathBuf,
    /// What is wrong; never empty.
    pub problems: Vec<Problem>,
    #[serde(skip)]
    text: String,
    /// What was read or looked for, so that a watcher knows when to look again.
    #[serde(skip)]
    pub(super) files: Vec<PathBuf>,
}

impl ConfigErrors {
    pub(super) fn new(path: &Path, text: &str, mut findings: Vec<Finding>, files: Vec<PathBuf>) -> Self {
        findings.sort_by_key(|finding| (finding.span.start, finding.span.end));
        findings.dedup();
        let problems = findings.into_iter().map(|finding| finding.placed(text)).collect();
        Self { file: path.to_owned(), problems, text: text.to_owned(), files }
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let (message, help) = match error.kind() {
            io::ErrorKind::NotFound => (
                "there is no such file".to_owned(),
                Some("`sickbay init` writes one to begin with".to_owned()),
            ),
            io::ErrorKind::IsADirectory => ("this is a folder, not a file".to_owned(), None),
            _ => (format!("the file cannot be read: {error}"), None),
        };
        let problem = Problem { sort: Sort::Unreadable, message, place: None, help, related: None };
        let files = vec![path.to_owned()];
        Self { file: path.to_owned(), problems: vec![problem], text: String::new(), files }
    }

    /// One problem that only a running process has.
    pub(super) fn single(path: &Path, text: &str, place: Place, message: &str, help: &str) -> Self {
        let problem = Problem {
            sort: Sort::Clash,
            message: message.to_owned(),
            place: Some(place),
            help: Some(help.to_owned()),
            related: None,
        };
        let (file, files) = (path.to_owned(), vec![path.to_owned()]);
        Self { file, problems: vec![problem], text: text.to_owned(), files }
    }

    /// All of it for a person, with the lines in question and a caret under what is meant.
    pub fn render(&self, paint: Paint) -> String {
        render(&self.file, &self.text, &self.problems, paint)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(Paint::Plain).trim_end())
    }
}

impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigErrors {}

/// A problem while the file is still being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) span: Range<usize>,
    sort: Sort,
    message: String,
    help: Option<String>,
    related: Option<(Range<usize>, String)>,
}

impl Finding {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, sort: Sort::default(), message: message.into(), help: None, related: None }
    }

    pub(super) fn sort(mut self, sort: Sort) -> Self {
        self.sort = sort;
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    pub(super) fn related(mut self, span: Range<usize>, message: impl Into<String>) -> Self {
        self.related = Some((span, message.into()));
        if self.sort == Sort::Value {
            // Where two places have to do with it, they do not go together.
            self.sort = Sort::Clash;
        }
        self
    }

    fn placed(self, text: &str) -> Problem {
        let place = |span| Place::of(text, span);
        let related = self.related.map(|(span, message)| Related { message, place: place(span) });
        let Self { sort, message, help, .. } = self;
        Problem { sort, message, place: Some(place(self.span)), help, related }
    }
}
