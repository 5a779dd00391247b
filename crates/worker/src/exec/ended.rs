//! How a process ended, in words and as an error to classify.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;
use sickbay_core::classify::RawError;
use sickbay_core::{Failure, Kind, Reason, Verdict};

use super::tail::tail_text;
use crate::answer::Answer;

/// "killed by signal 9 (SIGKILL)", "exited with code 3".
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => {
            let core = if status.core_dumped() { ", core dumped" } else { "" };
            match name_of(signal) {
                Some(name) => format!("killed by signal {signal} ({name}{core})"),
                None => format!("killed by signal {signal}{core}"),
            }
        }
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// A process that failed. What it wrote to its standard error is the error; a signal is named first,
/// as the process can't say it.
pub(super) fn failure_of(status: ExitStatus, stderr: &[u8]) -> RawError {
    let (said, what) = (tail_text(stderr), describe(status));
    let text = match (status.code(), said.is_empty()) {
        (_, true) => format!("{what} and wrote nothing to its standard error"),
        (Some(_), false) => said,
        (None, false) => format!("{what}\n{said}"),
    };
    with_status(RawError::new(text), status)
}

/// Adds what the process exited with, or the signal that ended it.
pub(super) fn with_status(raw: RawError, status: ExitStatus) -> RawError {
    RawError { exit_code: status.code(), signal: status.signal(), ..raw }
}

/// The program could not even be started: that is nothing the message did.
pub(super) fn not_started(program: &str, error: &io::Error) -> Answer {
    let (hint, code) = match error.kind() {
        io::ErrorKind::NotFound => {
            ("; there is no such file, or no such interpreter on its first line", "ENOENT")
        }
        io::ErrorKind::PermissionDenied => ("; is it executable?", "EACCES"),
        io::ErrorKind::ArgumentListTooLong => ("; its arguments and environment are too long", "E2BIG"),
        _ => ("", "exec"),
    };
    let text = format!("the handler's program {program:?} cannot be started: {error}{hint}");
    let failure = Failure::new(Kind::Transient, Reason::DependencyFailure, text).code(code);
    Answer::Verdict(Verdict::retry(failure))
}

const NAMES: &[(Signal, &str)] = &[
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
    (Signal::SYS, "SIGSYS"),
];

fn name_of(number: i32) -> Option<&'static str> {
    NAMES.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_evidence_names_signals_and_keeps_what_was_said() {
        let (killed, failed) = (ExitStatus::from_raw(9), ExitStatus::from_raw(3 << 8));
        let raw = failure_of(killed, b"working\n");
        assert_eq!((raw.text.as_str(), raw.signal), ("killed by signal 9 (SIGKILL)\nworking", Some(9)));
        assert_eq!(raw.exit_code, None);
        let raw = failure_of(failed, b"no such order\n");
        assert_eq!((raw.text.as_str(), raw.exit_code), ("no such order", Some(3)));
        let raw = failure_of(failed, b"  \n");
        assert_eq!(raw.text, "exited with code 3 and wrote nothing to its standard error");
        assert_eq!(describe(ExitStatus::from_raw(64)), "killed by signal 64");
    }
}
