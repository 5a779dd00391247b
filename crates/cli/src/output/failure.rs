//! Why a command did not do what it was asked, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;
use sickbay::StoreError;
use sickbay_cli::config::{ConfigErrors, Paint};
use sickbay_server::Problem;
use sickbay_server::wire::problem::Reaction;

use super::{Output, escape};

/// What a command answers.
pub(crate) type Result<T = Exit> = std::result::Result<T, Failure>;

/// The exit codes; `sickbay help exit-codes` describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Done = 0,
    /// It was tried and failed.
    Failed = 1,
    /// The command, or what it was given, is wrong.
    Usage = 2,
    /// It ran and found problems.
    Problems = 3,
    /// There is no such thing.
    NotFound = 4,
    /// The state of things does not allow it.
    Refused = 5,
    /// The store cannot be reached.
    Unreachable = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed, and what to do about it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
    code: Option<String>,
    hint: Option<String>,
    /// The message is laid out already, and its control characters are escaped.
    is_laid_out: bool,
}

#[derive(Serialize)]
struct Document<'f> {
    error: Fields<'f>,
}

#[derive(Serialize)]
struct Fields<'f> {
    message: &'f str,
    code: Option<&'f str>,
    hint: Option<&'f str>,
    exit: u8,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), code: None, hint: None, is_laid_out: false }
    }

    /// The command, or what it was given, is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Where it happened.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Ends with this code.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failed };
        Self::new(exit, format!("{}: {error}", path.display()))
    }

    /// Configuration that is wrong.
    pub(crate) fn config(errors: &ConfigErrors, out: &Output, exit: Exit) -> Self {
        let paint = if out.colour_errors { Paint::Colour } else { Paint::Plain };
        let failure = Self::new(exit, errors.render(paint).trim_end());
        let code = errors.problems.first().map(|problem| problem.sort.code().to_owned());
        Self { is_laid_out: true, code, ..failure }
    }

    /// Says it on stderr, and on stdout as JSON if that was asked for.
    pub(crate) fn report(&self, out: &Output) {
        let text = if self.is_laid_out {
            self.message.clone()
        } else {
            let error = if out.colour_errors { "\x1b[1;31merror\x1b[0m" } else { "error" };
            let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
            format!("{error}: {}{code}", escape(&self.message))
        };
        eprintln!("{text}");
        if let Some(hint) = &self.hint {
            eprintln!("  {}", escape(hint));
        }
        if let Some(code) = self.code.as_ref().filter(|_| !self.is_laid_out) {
            eprintln!("  more: sickbay explain {}", escape(code));
        }
        if out.json {
            let (code, hint) = (self.code.as_deref(), self.hint.as_deref());
            let fields = Fields { message: &self.message, code, hint, exit: self.exit as u8 };
            // A reader that has gone away does not need it.
            drop(out.answer(&Document { error: fields }, |_| String::new()));
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        write!(f, "{}{code}", escape(&self.message))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit = match (problem.code.as_str(), problem.reaction) {
            (
                "SB0006" | "SB0007" | "SB0008" | "SB0009" | "SB0020" | "SB0031" | "SB0032" | "SB0061"
                | "SB0062" | "SB0063" | "SB0064" | "SB0066",
                _,
            ) => Exit::Unreachable,
            ("SB0026", _) => Exit::Failed,
            (_, Reaction::Invalid) => Exit::Usage,
            (_, Reaction::NotFound) => Exit::NotFound,
            (_, Reaction::Conflict) => Exit::Refused,
            _ => Exit::Failed,
        };
        // That there is a page for each code is said anyway.
        let hint = Some(problem.hint.clone()).filter(|hint| !hint.starts_with("sickbay explain "));
        let hint = hint.or_else(|| advice(&problem.code).map(str::to_owned));
        Self {
            exit,
            message: problem.detail.clone(),
            code: Some(problem.code.clone()),
            hint,
            is_laid_out: false,
        }
    }
}

/// What to do, where the problem itself does not say it.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "SB0001" => "see the queues with `sickbay queue list`, or make one with `sickbay queue define NAME`",
        "SB0005" => "make room on the disk, or discard what is not needed",
        "SB0007" | "SB0008" => "name another file with --store",
        "SB0061" => "is it running, and are host and port right?",
        "SB0062" => "look at user, password and database of the address; PGPASSWORD can hold the password",
        "SB0063" => "run `sickbay migrate` with a role that may create things",
        "SB0064" => "close what holds connections, or ask for fewer with ?connections=N",
        "SB0065" => "look whether it was done before you do it again",
        "SB0066" => "name the file of its root certificate with ?sslrootcert=PATH",
        "SB0067" => "write postgres://USER@HOST/DATABASE",
        "SB0070" => "name another store with --to, or remove what is there",
        "SB0072" => "stop `sickbay serve`, `sickbay work` and every other program that has the store open",
        "SB0073" => "drop the target and copy again; if it happens again, run `sickbay doctor` on both",
        "SB0074" => "name another store with --to",
        "SB0028" => "look for it with `sickbay quarantine list`; finished messages are not kept unless asked",
        "SB0029" => "see its state with `sickbay message show ID`",
        _ => return None,
    })
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failed, format!("{error:#}"))
    }
}
