//! A word, or the beginning of one with a `*` at its end.

/// What codes and message types are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    word: String,
    open: bool,
}

impl Pattern {
    /// Reads "OrderPaid" or "Order*". The error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("is empty");
        }
        let (word, open) = text.strip_suffix('*').map_or((text, false), |word| (word, true));
        if word.contains('*') {
            return Err("has a * before its end");
        }
        Ok(Self { word: word.to_owned(), open })
    }

    /// The word without its `*`.
    pub(super) fn word(&self) -> &str {
        &self.word
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        if self.open { text.starts_with(&self.word) } else { text == self.word }
    }

    /// The same without regard to the case of ASCII letters.
    pub(super) fn matches_any_case(&self, text: &str) -> bool {
        let beginning = if self.open { text.get(..self.word.len()) } else { Some(text) };
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(&self.word))
    }

    /// True if it matches whatever `other` matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        (self.open || !other.open) && self.matches(&other.word)
    }

    /// The same without regard to the case of ASCII letters.
    pub(super) fn covers_any_case(&self, other: &Self) -> bool {
        (self.open || !other.open) && self.matches_any_case(&other.word)
    }
}
