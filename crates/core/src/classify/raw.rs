//! What a handler, a process or a server left behind when it failed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::Duration;

use crate::failure::Reason;
use crate::name::MessageType;
use crate::text::ERROR_BYTES_MAX;

/// An error nobody has classified yet. Everything but the text is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawError {
    /// The error in its own words. Rules see its first 64 KiB.
    pub text: String,
    /// What the process exited with.
    pub exit_code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// The status of the answer.
    pub http_status: Option<u16>,
    /// A code of the handler's own ("ECONNRESET", "DOWNSTREAM_PERMANENT").
    pub code: Option<String>,
    /// What the caller already knows: `TimeoutExceeded` for an overrun, `SerializationError`.
    pub reason: Option<Reason>,
    /// When the handler asked to be tried again.
    pub retry_after: Option<Duration>,
}

impl RawError {
    /// An error of which only the words are known.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Adds what the process exited with.
    #[must_use]
    pub fn exit_code(mut self, exit_code: i32) -> Self {
        self.exit_code = Some(exit_code);
        self
    }

    /// Adds the signal that ended the process.
    #[must_use]
    pub fn signal(mut self, signal: i32) -> Self {
        self.signal = Some(signal);
        self
    }

    /// Adds the status of the answer.
    #[must_use]
    pub fn http_status(mut self, http_status: u16) -> Self {
        self.http_status = Some(http_status);
        self
    }

    /// Adds a code of the handler's own.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds what the caller already knows.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Asks to be tried again no sooner than this.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The code that people see and rules match: the handler's own, or else "HTTP 503", "exit 75" or
    /// "signal 9".
    pub fn shown_code(&self) -> Option<String> {
        self.code
            .clone()
            .or_else(|| self.http_status.map(|status| format!("HTTP {status}")))
            .or_else(|| self.exit_code.map(|code| format!("exit {code}")))
            .or_else(|| self.signal.map(|signal| format!("signal {signal}")))
    }
}

impl From<&str> for RawError {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for RawError {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// An error as rules look at it: made ready once, asked by many.
pub(super) struct Seen<'a> {
    pub(super) raw: &'a RawError,
    pub(super) message_type: Option<&'a MessageType>,
    pub(super) code: Option<String>,
    pub(super) text: &'a str,
    lower: OnceCell<Cow<'a, str>>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(message_type: Option<&'a MessageType>, raw: &'a RawError) -> Self {
        let (code, text) = (raw.shown_code(), beginning(&raw.text));
        Self { raw, message_type, code, text, lower: OnceCell::new() }
    }

    /// The text in lower case.
    pub(super) fn lower(&self) -> &str {
        self.lower.get_or_init(|| lower(self.text))
    }
}

fn beginning(text: &str) -> &str {
    let mut end = text.len().min(ERROR_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Lower case, each character for itself, so that a part of a text stays a part of it.
pub(super) fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().flat_map(char::to_lowercase).collect())
}

impl std::fmt::Display for RawError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// So that a handler can return it with `?` like any other error; what it knows besides its text is kept.
impl std::error::Error for RawError {}
