//! Taking tables and values apart. Every question that is answered wrongly is reported with its place
//! and answered with `None`, so that the reading goes on and finds the rest.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration::{parse_duration, show_duration};
use super::nearest::{list, nearest, suggestion};
use super::problem::{Finding, Sort};
use super::shape::Shape;

/// Bytes of the text.
pub(super) type Span = std::ops::Range<usize>;
/// A table whose every key and value knows its place.
pub(super) type Table<'s> = DeTable<'s>;

/// What is common to the whole file.
pub(super) struct Reader<'s> {
    folder: PathBuf,
    text: &'s str,
    variable: fn(&str) -> Option<String>,
    findings: RefCell<Vec<Finding>>,
    files: RefCell<Vec<PathBuf>>,
}

impl<'s> Reader<'s> {
    pub(super) fn new(folder: PathBuf, text: &'s str, variable: fn(&str) -> Option<String>) -> Self {
        Self { folder, text, variable, findings: RefCell::default(), files: RefCell::default() }
    }

    pub(super) fn text(&self) -> &'s str {
        self.text
    }

    pub(super) fn report(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// What a variable of the environment holds.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// A path of the file, from the file's folder on and in full.
    pub(super) fn path(&self, written: &str) -> PathBuf {
        let joined = self.folder.join(written);
        std::path::absolute(&joined).unwrap_or(joined)
    }

    /// Remembers that the configuration depends on this file.
    pub(super) fn depends_on(&self, file: &Path) {
        self.files.borrow_mut().push(file.to_owned());
    }

    pub(super) fn finish(self) -> (Vec<Finding>, Vec<PathBuf>) {
        (self.findings.into_inner(), self.files.into_inner())
    }
}

/// One block of the file.
pub(super) struct Section<'s> {
    reader: &'s Reader<'s>,
    table: &'s Table<'s>,
    shape: &'static Shape,
    span: Span,
}

impl<'s> Section<'s> {
    /// The file itself.
    pub(super) fn document(reader: &'s Reader<'s>, table: &'s Table<'s>, shape: &'static Shape) -> Self {
        let section = Self { reader, table, shape, span: 0..0 };
        section.refuse_strangers();
        section
    }

    /// True if it is a block of this shape.
    pub(super) fn is(&self, shape: &Shape) -> bool {
        self.shape == shape
    }

    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn reader(&self) -> &'s Reader<'s> {
        self.reader
    }

    pub(super) fn report(&self, finding: Finding) {
        self.reader.report(finding);
    }

    /// The value of a key, if it is given.
    pub(super) fn get(&self, key: &'static str) -> Option<Field<'s>> {
        debug_assert!(self.shape.keys.contains(&key), "{key} is missing in {}", self.shape.path);
        let (key, value) = self.table.get_key_value(key)?;
        Some(Field { reader: self.reader, key: key.get_ref(), key_span: key.span(), value })
    }

    /// The value of a key that must be given.
    pub(super) fn demand(&self, key: &'static str, example: &str) -> Option<Field<'s>> {
        let field = self.get(key);
        if field.is_none() {
            let message = format!("{} needs `{key}`", self.shape.title);
            let finding = Finding::new(self.span(), message).sort(Sort::Clash);
            self.report(finding.help(format!("for example {example}")));
        }
        field
    }

    /// Where the first of these keys and its value stand; the heading if none is given.
    pub(super) fn place_of(&self, keys: &[&'static str]) -> Span {
        let field = keys.iter().find_map(|key| self.get(key));
        field.map_or(self.span(), |field| field.key_span().start..field.span().end)
    }

    fn refuse_strangers(&self) {
        for (key, value) in self.table.iter() {
            if !self.shape.keys.contains(&key.get_ref().as_ref()) {
                self.report(self.stranger(key, value));
            }
        }
    }

    fn stranger(&self, key: &Spanned<toml::de::DeString<'_>>, value: &Spanned<DeValue<'_>>) -> Finding {
        let name = key.get_ref().as_ref();
        let Shape { title, keys, also_known, .. } = *self.shape;
        let finding =
            Finding::new(key.span(), format!("`{name}` is no key of {title}")).sort(Sort::UnknownKey);
        let known = also_known.iter().find(|(other, _)| *other == name).map(|(_, ours)| *ours);
        if let Some(meant) = known.or_else(|| nearest(name, keys.iter().copied())) {
            return finding.help(format!("did you mean `{meant}`?"));
        }
        if self.shape.path == "queues.NAME" && value.get_ref().is_table() {
            let first = self.reader.text.get(self.span()).filter(|text| !text.contains('['));
            let first = first.unwrap_or("…");
            return finding.help(format!("a name with a dot is quoted: [queues.\"{first}.{name}\"]"));
        }
        finding.help(format!("it has {}", list(keys.iter().copied()).replace(" or ", " and ")))
    }
}

/// A value and the key it stands under.
#[derive(Clone)]
pub(super) struct Field<'s> {
    reader: &'s Reader<'s>,
    key: &'s str,
    key_span: Span,
    value: &'s Spanned<DeValue<'s>>,
}

impl<'s> Field<'s> {
    pub(super) fn key(&self) -> &'s str {
        self.key
    }

    pub(super) fn key_span(&self) -> Span {
        self.key_span.clone()
    }

    pub(super) fn span(&self) -> Span {
        self.value.span()
    }

    pub(super) fn reader(&self) -> &'s Reader<'s> {
        self.reader
    }

    pub(super) fn value(&self) -> &'s DeValue<'s> {
        self.value.get_ref()
    }

    pub(super) fn report(&self, finding: Finding) {
        self.reader.report(finding);
    }

    /// Reports what is wrong with the value.
    pub(super) fn wrong(&self, message: impl Into<String>) {
        self.report(Finding::new(self.span(), message));
    }

    /// Reports what is wrong with the key.
    pub(super) fn wrong_key(&self, message: impl Into<String>) {
        self.report(Finding::new(self.key_span(), message));
    }

    /// Reports a value of another type.
    pub(super) fn expected(&self, what: &str) -> Finding {
        let found = match self.value() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        Finding::new(self.span(), format!("`{}` must be {what}, but this is {found}", self.key))
    }

    pub(super) fn text(&self) -> Option<&'s str> {
        let text = self.value().as_str();
        if text.is_none() {
            self.report(self.expected("text in quotes"));
        }
        text
    }

    pub(super) fn count(&self, allowed: RangeInclusive<u32>) -> Option<u32> {
        let (least, most) = (*allowed.start(), *allowed.end());
        let DeValue::Integer(number) = self.value() else {
            self.report(self.expected("a whole number"));
            return None;
        };
        let read = i128::from_str_radix(number.as_str(), number.radix()).ok();
        let fits = read.and_then(|number| u32::try_from(number).ok()).filter(|n| allowed.contains(n));
        if fits.is_none() {
            let bound = match read {
                Some(number) if number < least.into() => format!("at least {least}"),
                _ => format!("at most {most}"),
            };
            self.wrong(format!("`{}` must be {bound}", self.key));
        }
        fits
    }

    /// An exit code, which may be negative elsewhere than on Unix.
    pub(super) fn exit_code(&self) -> Option<i32> {
        let DeValue::Integer(number) = self.value() else {
            self.report(self.expected("a whole number"));
            return None;
        };
        let read = i32::from_str_radix(number.as_str(), number.radix()).ok();
        if read.is_none() {
            self.wrong(format!("`{}` is too large a number", self.key));
        }
        read
    }

    /// A share between 0 and 1.
    pub(super) fn share(&self) -> Option<f64> {
        let number = match self.value() {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => {
                self.report(self.expected("a number between 0 and 1"));
                return None;
            }
        };
        let share = number.filter(|number| (0.0..=1.0).contains(number));
        if share.is_none() {
            self.wrong(format!("`{}` must be between 0 and 1", self.key));
        }
        share
    }

    /// A duration, no shorter than this.
    pub(super) fn duration(&self, least: Duration) -> Option<Duration> {
        let DeValue::String(text) = self.value() else {
            let finding = self.expected("a duration such as \"30s\"");
            let help = match self.value() {
                DeValue::Integer(number) => format!("write \"{}s\" for seconds", number.as_str()),
                _ => "durations are written \"500ms\", \"30s\", \"5m\", \"1h30m\" or \"2d\"".to_owned(),
            };
            self.report(finding.help(help));
            return None;
        };
        match parse_duration(text) {
            Ok(duration) if duration >= least => return Some(duration),
            Ok(_) => self.wrong(format!("`{}` must be at least {}", self.key, show_duration(least))),
            Err(problem) => {
                let message = format!("`{}` is no duration: {problem}", self.key);
                let help = "durations are written \"500ms\", \"30s\", \"5m\", \"1h30m\" or \"2d\"";
                self.report(Finding::new(self.span(), message).help(help));
            }
        }
        None
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let known = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        if known.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let message = format!("`{}` must be {}", self.key, list(words.iter().copied()));
            let near = nearest(text, words.iter().copied());
            let help = near.map(|_| suggestion(text, &words));
            self.report(Finding::new(self.span(), message).maybe_help(help));
        }
        known.map(|(_, value)| *value)
    }

    /// The items of a list, all under this key.
    pub(super) fn items(&self, what: &str) -> Option<Vec<Field<'s>>> {
        let Some(array) = self.value().as_array() else {
            let help = "the heading of a list's item has two brackets: [[…]]";
            let help = self.value().is_table().then(|| help.to_owned());
            self.report(self.expected(what).maybe_help(help));
            return None;
        };
        let item = |value| Field { reader: self.reader, key: self.key, key_span: self.key_span(), value };
        Some(array.iter().map(item).collect())
    }

    /// The values of a table whose keys are names of the user's own.
    pub(super) fn entries(&self) -> Vec<Field<'s>> {
        let Some(table) = self.value().as_table() else {
            self.report(self.expected("a table"));
            return Vec::new();
        };
        let entry = |(key, value): (&'s Spanned<toml::de::DeString<'s>>, _)| Field {
            reader: self.reader,
            key: key.get_ref(),
            key_span: key.span(),
            value,
        };
        table.iter().map(entry).collect()
    }

    /// The block that this value is.
    pub(super) fn section(&self, shape: &'static Shape) -> Option<Section<'s>> {
        let Some(table) = self.value().as_table() else {
            let keys = list(shape.keys.iter().copied()).replace(" or ", " and ");
            self.report(self.expected("a table").help(format!("{} has {keys}", shape.title)));
            return None;
        };
        let section = Section { reader: self.reader, table, shape, span: self.span() };
        section.refuse_strangers();
        Some(section)
    }

    /// Where the bytes of the text stand in the file, if it is written without escapes.
    pub(super) fn inside(&self, offset: usize) -> Option<Span> {
        let text = self.value().as_str()?;
        let span = self.span();
        let written = self.reader.text.get(span.clone())?;
        let quoted = written.get(1..written.len().checked_sub(1)?)?;
        let at = span.start + 1 + offset;
        (quoted == text).then_some(at..at + 1)
    }
}
