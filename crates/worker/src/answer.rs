//! What a handler may return, and what becomes of it.

use std::error::Error;

use sickbay_core::classify::RawError;
use sickbay_core::{Failure, Kind, Reason, Verdict};

/// A handler's answer: a verdict, or an error that the queue's rules classify.
#[derive(Debug)]
pub enum Answer {
    /// The handler has judged.
    Verdict(Verdict),
    /// An ordinary error; the classifier judges.
    Raw(RawError),
}

impl Answer {
    /// Done, with nothing to add.
    pub fn done() -> Self {
        Self::Verdict(Verdict::done())
    }

    /// The body could not be read and never will be.
    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        let failure = Failure::new(Kind::Poison, Reason::SerializationError, error.to_string());
        Self::Verdict(Verdict::poison(failure))
    }

    /// The handler panicked with these words.
    pub(crate) fn panicked(words: &str) -> Self {
        Self::Verdict(Verdict::retry(Failure::unknown(format!("panicked: {words}"))))
    }
}

/// What handlers may return: nothing, a verdict, or a result of either, so that `?` works.
pub trait IntoAnswer {
    /// The answer.
    fn into_answer(self) -> Answer;
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Answer {
        self
    }
}

impl IntoAnswer for Verdict {
    fn into_answer(self) -> Answer {
        Answer::Verdict(self)
    }
}

impl IntoAnswer for RawError {
    fn into_answer(self) -> Answer {
        Answer::Raw(self)
    }
}

impl IntoAnswer for () {
    fn into_answer(self) -> Answer {
        Answer::done()
    }
}

impl<T: IntoAnswer, E: Into<Box<dyn Error + Send + Sync>>> IntoAnswer for Result<T, E> {
    fn into_answer(self) -> Answer {
        match self {
            Ok(answer) => answer.into_answer(),
            Err(error) => Answer::Raw(raw(error.into())),
        }
    }
}

/// An ordinary error becomes its text; one that was made for the classifier stays what it is.
fn raw(error: Box<dyn Error + Send + Sync>) -> RawError {
    match error.downcast::<RawError>() {
        Ok(raw) => *raw,
        Err(error) => RawError::new(chain(error.as_ref())),
    }
}

/// An error with its causes, each once: many errors print their cause themselves.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    for _ in 0..64 {
        let Some(cause) = next else { break };
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}
