//! What people and programs see: text, tables and JSON on stdout, everything else on stderr.

mod failure;
mod table;
mod text;

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

pub(crate) use failure::{Exit, Failure, Result};
pub(crate) use table::Table;
pub(crate) use text::{ago, block, count, escape, excerpt, plural, shell_word, words};

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Whether anybody reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Where and how a command prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON document instead of text.
    pub(crate) json: bool,
    /// Only what was asked for, and errors.
    pub(crate) quiet: bool,
    /// Escape sequences are welcome on stdout.
    pub(crate) colour: bool,
    /// And on stderr.
    pub(crate) colour_errors: bool,
    /// How wide the terminal is; `None` if stdout is none.
    pub(crate) width: Option<usize>,
    /// How high it is.
    pub(crate) height: Option<usize>,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, color: Color) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let colour_on = |terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && wanted,
        };
        let (colour, colour_errors) = (colour_on(terminal), colour_on(std::io::stderr().is_terminal()));
        let size = terminal_size::terminal_size().filter(|_| terminal);
        let size = size.map_or((100, 30), |(width, height)| (usize::from(width.0), usize::from(height.0)));
        // A terminal that does not know its size says zero.
        let side = |size: usize, usual: usize| terminal.then_some(if size == 0 { usual } else { size });
        let (width, height) = (side(size.0, 100).map(|width| width.max(40)), side(size.1, 30));
        Self { json, quiet, colour, colour_errors, width, height }
    }

    /// Text without colours, on a terminal of this width or on none.
    #[cfg(test)]
    pub(crate) const fn plain(width: Option<usize>) -> Self {
        Self { json: false, quiet: false, colour: false, colour_errors: false, width, height: None }
    }

    /// Prints what was asked for: the value as JSON, or the text that it is made into.
    pub(crate) fn answer<T: Serialize>(&self, value: &T, text: impl FnOnce(&Self) -> String) -> Result<()> {
        if !self.json {
            return self.print(&text(self));
        }
        let json = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::new(Exit::Failed, format!("the answer is no JSON: {error}")))?;
        self.print(&format!("{json}\n"))
    }

    /// Prints on stdout. A reader that has gone away, such as `head`, is no failure.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        self.print_to_reader(text).map(drop)
    }

    /// Prints on stdout, and says whether anybody still reads.
    pub(crate) fn print_to_reader(&self, text: &str) -> Result<Reader> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(Reader::There),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => Err(Failure::new(Exit::Failed, format!("stdout cannot be written: {error}"))),
        }
    }

    /// Says something by the way, on stderr.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            // Nobody listens to stderr: nothing to be done about it.
            drop(writeln!(std::io::stderr(), "{text}"));
        }
    }

    /// Draws a line over the last one, on a terminal only. An empty one clears it.
    pub(crate) fn progress(&self, line: &str) {
        let mut err = std::io::stderr();
        if !self.quiet && !self.json && err.is_terminal() {
            drop(write!(err, "\r\x1b[2K{line}").and_then(|()| err.flush()));
        }
    }

    /// Bold, where that is welcome.
    pub(crate) fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}
