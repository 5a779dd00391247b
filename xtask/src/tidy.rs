//! `cargo xtask tidy`: the house rules that are checks, one small module each.

mod arrows;
mod banned;
mod docs;
mod error_pages;
mod machine;
mod modules;
mod names;
mod reach;
mod root;
mod seeded;
mod size;
mod source;
mod tree;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::steps::Ending;
use tree::Tree;

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    /// Counted from 1; 0 is the file as a whole.
    line: usize,
    message: String,
}

impl Violation {
    fn of_file(path: &str, message: impl Into<String>) -> Violation {
        Violation::at(path, 0, message)
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The rules that look at files only. The arrows between crates are asked of cargo.
const CHECKS: &[fn(&Tree) -> Vec<Violation>] = &[
    size::check,
    banned::check,
    reach::check,
    names::check,
    root::check,
    machine::check,
    error_pages::check,
    docs::check,
];

/// The command: lists every violation, fails if there is one.
pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        bail!("takes no arguments");
    }
    Ok(match step(root)? {
        Ending::Failed(_) => ExitCode::FAILURE,
        Ending::Passed | Ending::Skipped(_) => ExitCode::SUCCESS,
    })
}

/// The same as a step of a longer chore.
pub(crate) fn step(root: &Path) -> Result<Ending> {
    let tree = Tree::read(root)?;
    let mut violations: Vec<Violation> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    let metadata = arrows::metadata(root)?;
    violations.extend(arrows::check(&metadata)?);
    violations.extend(seeded::check(&metadata));
    violations.sort();
    violations.dedup();
    for violation in &violations {
        println!("{violation}");
    }
    let count = match violations.len() {
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    };
    println!("tidy: {} files, {count}", tree.paths().count());
    Ok(if violations.is_empty() { Ending::Passed } else { Ending::Failed(count) })
}
