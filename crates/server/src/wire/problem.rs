//! Problems: what every error becomes on its way to the caller (RFC 9457).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sickbay_core::{ErrorKind, StoreError};

/// What a caller can do about a problem, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reaction {
    /// The same request will never work.
    Invalid,
    /// What it names does not exist.
    NotFound,
    /// What it names is not in a state that allows it.
    Conflict,
    /// The store has no room.
    Full,
    /// It may work later.
    TryAgain,
    /// Stored data is damaged.
    Corrupt,
    /// The store cannot go on.
    Stop,
}

impl From<ErrorKind> for Reaction {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Full => Self::Full,
            ErrorKind::TryAgain => Self::TryAgain,
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::Stop => Self::Stop,
        }
    }
}

impl From<Reaction> for ErrorKind {
    fn from(reaction: Reaction) -> Self {
        match reaction {
            Reaction::Invalid => Self::Invalid,
            Reaction::NotFound => Self::NotFound,
            Reaction::Conflict => Self::Conflict,
            Reaction::Full => Self::Full,
            Reaction::TryAgain => Self::TryAgain,
            Reaction::Corrupt => Self::Corrupt,
            Reaction::Stop => Self::Stop,
        }
    }
}

impl Reaction {
    /// The status of the answer, and a title for problems without one of their own.
    const fn status_and_title(self) -> (u16, &'static str) {
        match self {
            Self::Invalid => (400, "the request cannot work as it is"),
            Self::NotFound => (404, "there is no such thing"),
            Self::Conflict => (409, "its state does not allow it"),
            Self::Full => (507, "the store has no room"),
            Self::TryAgain => (503, "it may work later"),
            Self::Corrupt => (500, "stored data is damaged"),
            Self::Stop => (500, "the store cannot go on"),
        }
    }
}

/// Titles of problems that the API itself finds.
const TITLES: &[(&str, &str)] = &[
    ("SB0020", "the owner of the store is gone"),
    ("SB0021", "the request cannot be read"),
    ("SB0022", "the request is too large"),
    ("SB0023", "the address of the request is wrong"),
    ("SB0024", "there is no such route"),
    ("SB0025", "too many in one request"),
    ("SB0026", "a line cannot be stored"),
    ("SB0027", "it would concern everything"),
    ("SB0028", "there is no such message"),
    ("SB0029", "the message is in a state that does not allow it"),
    ("SB0030", "the address is not of this machine"),
    ("SB0031", "the socket cannot be opened"),
    ("SB0032", "the answer cannot be read"),
    ("SB0033", "the request comes from a web page"),
    ("SB0040", "there is no such stream"),
];

/// An error as callers see it. It is one pointer wide, so that results stay small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problem(Box<Details>);

/// What there is to say about a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// A name for problems of this code.
    #[serde(rename = "type")]
    pub kind_uri: String,
    /// The stable code.
    pub code: String,
    /// What problems of this code have in common.
    pub title: String,
    /// What happened this time.
    pub detail: String,
    /// The status of the answer.
    pub status: u16,
    /// What to do about it.
    pub hint: String,
    /// What a program should do about it.
    pub reaction: Reaction,
    /// The line that could not be stored, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The lines before it that are durably stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_stored: Option<u64>,
}

impl Problem {
    /// A problem with a stable code.
    pub fn new(reaction: impl Into<Reaction>, code: &str, detail: impl Into<String>) -> Self {
        let reaction = reaction.into();
        let (status, title) = reaction.status_and_title();
        let own = TITLES.iter().find(|(known, _)| *known == code).map(|(_, title)| *title);
        Self(Box::new(Details {
            kind_uri: format!("urn:sickbay:{code}"),
            code: code.to_owned(),
            title: own.unwrap_or(title).to_owned(),
            detail: detail.into(),
            status,
            hint: format!("sickbay explain {code}"),
            reaction,
            line: None,
            lines_stored: None,
        }))
    }

    /// Sets the status of the answer.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.0.status = status;
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// What to do about it, as a kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.reaction.into()
    }

    /// True if nobody answers where the store's owner should be.
    pub fn is_owner_gone(&self) -> bool {
        self.code == "SB0020"
    }

    pub(crate) fn gone(detail: impl fmt::Display) -> Self {
        let detail = format!("the owner of the store is gone: {detail}");
        Self::new(Reaction::TryAgain, "SB0020", detail)
            .hint("try again: the next command becomes the owner, or start `sickbay serve`")
    }

    pub(crate) fn unreadable(detail: impl Into<String>) -> Self {
        Self::new(Reaction::Invalid, "SB0021", detail)
    }

    pub(crate) fn no_such_message(id: impl fmt::Display) -> Self {
        Self::new(Reaction::NotFound, "SB0028", format!("there is no message {id}"))
    }
}

impl Deref for Problem {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        let detail = text.strip_suffix(&format!(" ({})", error.code())).unwrap_or(&text);
        Self::new(error.kind(), error.code(), detail)
    }
}

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Self::new(problem.kind(), known_code(&problem.code), problem.0.detail)
    }
}

/// The code as text that lives for ever. There are at most ten thousand, and each is kept once.
fn known_code(code: &str) -> &'static str {
    static CODES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let digits = code.strip_prefix("SB").unwrap_or_default();
    if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return "SB0032";
    }
    let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = codes.get(code) {
        return known;
    }
    let known: &'static str = Box::leak(code.to_owned().into_boxed_str());
    codes.insert(known);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_comes_back_as_it_was() {
        use ErrorKind::{Conflict, Corrupt, Full, Invalid, NotFound, Stop, TryAgain};
        for kind in [Invalid, NotFound, Conflict, Full, TryAgain, Corrupt, Stop] {
            let error = StoreError::new(kind, "SB9999", "what \"happened\" (SB0001)");
            let text = serde_json::to_string(&Problem::from(error.clone())).unwrap();
            let back: StoreError = serde_json::from_str::<Problem>(&text).unwrap().into();
            assert_eq!((back.kind(), back.code()), (error.kind(), error.code()));
            assert_eq!(back.to_string(), error.to_string());
        }
    }

    #[test]
    fn a_code_that_is_none_is_not_kept() {
        for code in ["", "SB", "SB12345", "SB12x4", "XX0001"] {
            assert_eq!(known_code(code), "SB0032");
        }
        assert!(std::ptr::eq(known_code("SB9999"), known_code("SB9999")));
    }

    #[test]
    fn every_problem_of_the_api_has_a_title_of_its_own() {
        let titles: BTreeSet<_> = TITLES.iter().map(|(_, title)| title).collect();
        assert_eq!(titles.len(), TITLES.len());
    }
}
