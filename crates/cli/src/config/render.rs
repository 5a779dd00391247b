//! Problems as a person reads them: the file, the line, a caret, what to do.

use std::fmt::Write as _;
use std::path::Path;

use super::problem::{Place, Problem};

/// Whether colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// Text alone.
    #[default]
    Plain,
    /// With the escape sequences of a terminal.
    Colour,
}

/// Lines are shown up to this many characters around what is meant.
const LINE_CHARACTERS_MAX: usize = 120;

const RED: &str = "\x1b[1;31m";
const BLUE: &str = "\x1b[1;34m";
const GREEN: &str = "\x1b[1;32m";

impl Paint {
    fn dip(self, colour: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("{colour}{text}\x1b[0m"),
        }
    }
}

pub(super) fn render(file: &Path, text: &str, problems: &[Problem], paint: Paint) -> String {
    let mut out = String::new();
    for problem in problems {
        let error = paint.dip(RED, &format!("error[{}]", problem.sort.code()));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{error}: {}", clean(&problem.message));
        match &problem.place {
            Some(place) => snippet(&mut out, file, text, place, paint, RED),
            None => {
                let _ = writeln!(out, "  {} {}", paint.dip(BLUE, "-->"), clean(&file.display().to_string()));
            }
        }
        if let Some(related) = &problem.related {
            let _ = writeln!(out, "  {}: {}", paint.dip(BLUE, "see"), clean(&related.message));
            snippet(&mut out, file, text, &related.place, paint, BLUE);
        }
        if let Some(help) = &problem.help {
            let _ = writeln!(out, "  {}: {}", paint.dip(GREEN, "help"), clean(help));
        }
        out.push('\n');
    }
    let count = problems.len();
    let noun = if count == 1 { "error" } else { "errors" };
    let mut codes: Vec<&str> = problems.iter().map(|problem| problem.sort.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    let more = codes.iter().map(|code| format!("`sickbay explain {code}`")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, "{count} {noun} in {}; more: {more}", clean(&file.display().to_string()));
    out
}

fn snippet(out: &mut String, file: &Path, text: &str, place: &Place, paint: Paint, colour: &str) {
    let Place { line, column, span } = place;
    let number = line.to_string();
    let gap = " ".repeat(number.len());
    let bar = paint.dip(BLUE, "|");
    let shown = text.lines().nth(line - 1).unwrap_or_default().trim_start_matches('\u{feff}');
    let meant = text.get(span.clone()).unwrap_or_default();
    let meant = meant.lines().next().unwrap_or_default().chars().count().max(1);
    let shown = starred(shown);
    let (shown, before, meant) = cut(&shown, column - 1, meant);
    let file = clean(&file.display().to_string());
    let _ = writeln!(out, "{gap} {} {file}:{line}:{column}", paint.dip(BLUE, "-->"));
    let _ = writeln!(out, "{gap} {bar}");
    let _ = writeln!(out, "{} {bar} {}", paint.dip(BLUE, &number), shown.trim_end());
    let caret = paint.dip(colour, &"^".repeat(meant));
    let _ = writeln!(out, "{gap} {bar} {}{caret}", " ".repeat(before));
}

/// The part of a line around what is meant, with what stands before it and how long it is.
fn cut(line: &str, before: usize, meant: usize) -> (String, usize, usize) {
    let skip = (before + meant.min(LINE_CHARACTERS_MAX / 2)).saturating_sub(LINE_CHARACTERS_MAX);
    let part: String = line.chars().skip(skip).take(LINE_CHARACTERS_MAX + 1).collect();
    let cut_off = if skip > 0 { "…" } else { "" };
    let shown = format!("{cut_off}{}", clean(&part));
    let before = before - skip + cut_off.chars().count();
    let room = shown.chars().count().saturating_sub(before).max(1);
    (shown, before, meant.min(room))
}

/// A line with as many stars as the password of an address in it has characters.
fn starred(line: &str) -> String {
    let Some(start) = line.find("://").map(|at| at + 3) else { return line.to_owned() };
    let Some(end) = line[start..].rfind('@').map(|at| start + at) else { return line.to_owned() };
    let Some(colon) = line[start..end].find(':').map(|at| start + at + 1) else { return line.to_owned() };
    format!("{}{}{}", &line[..colon], "*".repeat(line[colon..end].chars().count()), &line[end..])
}

/// Nothing from a file reaches a terminal as an instruction; a tab is one column wide.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}
