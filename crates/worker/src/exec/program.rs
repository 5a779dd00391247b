//! Which program to start, and with what.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use super::process::Process;
use crate::context::Context;
use crate::foreign::{Spelling, facts, headers, trace_context};

const PREFIX: &str = "SICKBAY_";
const HEADER_PREFIX: &str = "SICKBAY_HEADER_";
const HEADERS_LEFT_OUT: &str = "SICKBAY_HEADERS_LEFT_OUT";

/// A program, its arguments, its environment and its working directory. It inherits the environment and the
/// directory of this process unless told otherwise.
///
/// ```
/// # use sickbay_worker::exec::Program;
/// let program = Program::new("./resize.py").arg("--width=800").env("LANG", "C.UTF-8").current_dir("handlers");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a program does nothing until a handler starts it"]
pub struct Program {
    program: OsString,
    args: Vec<OsString>,
    inherits: bool,
    vars: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Program {
    /// A program without arguments. A name without a slash is looked up in `PATH`; a relative path is
    /// taken from the working directory of the program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            inherits: true,
            vars: Vec::new(),
            directory: None,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment. The message's own variables take precedence.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.vars.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Inherits nothing: the program sees the variables that were set with [`env`](Self::env) and those
    /// of the message. Defaults to inheriting the environment of this process.
    pub fn env_clear(mut self) -> Self {
        self.inherits = false;
        self
    }

    /// Runs it in this directory. Defaults to the directory of this process.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The program as people know it.
    pub(super) fn shown(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// Starts it for many messages, in a process group of its own.
    pub(super) fn start(&self) -> io::Result<Process> {
        Process::start(self.command())
    }

    /// Starts it for one message.
    pub(super) fn start_for(&self, ctx: &Context) -> io::Result<Process> {
        let mut command = self.command();
        for (name, value) in facts(ctx) {
            let name = format!("{PREFIX}{name}");
            // What an outer program left behind must not be taken for this message's own.
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let (parent, state) = trace_context(ctx);
        for (name, value) in [("TRACEPARENT", parent), ("TRACESTATE", state)] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let (headers, left_out) = headers(ctx, Spelling::Environment);
        for (name, value) in headers {
            command.env(format!("{HEADER_PREFIX}{name}"), value);
        }
        if left_out > 0 {
            command.env(HEADERS_LEFT_OUT, left_out.to_string());
        }
        Process::start(command)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if self.inherits {
            for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_message(name)) {
                command.env_remove(name);
            }
        } else {
            command.env_clear();
        }
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
}

fn is_of_a_message(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(HEADER_PREFIX.as_bytes()) || name == HEADERS_LEFT_OUT.as_bytes()
}

impl<S: AsRef<OsStr> + ?Sized> From<&S> for Program {
    fn from(program: &S) -> Self {
        Self::new(program)
    }
}

impl From<PathBuf> for Program {
    fn from(program: PathBuf) -> Self {
        Self::new(program)
    }
}
