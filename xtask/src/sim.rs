//! `cargo xtask sim` and `cargo xtask soak`: the simulator, built with optimisation and called.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cargo::cargo;

/// `sim --bugs` looks for known defects, which are compiled in for that only; `sim --replay DIR` runs kept
/// scripts; anything else are schedules.
pub(crate) fn sim(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let (first, rest) = match arguments.split_first() {
        Some((first, rest)) => (first.as_str(), rest),
        None => ("", arguments),
    };
    match first {
        "--bugs" => call(root, &["--features", "seeded-bugs"], "bugs", rest),
        "--all" => call(root, &["--features", "seeded-bugs"], "all", rest),
        "--replay" => call(root, &[], "replay", rest),
        _ => call(root, &[], "schedules", arguments),
    }
}

pub(crate) fn soak(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    call(root, &[], "soak", arguments)
}

fn call(root: &Path, features: &[&str], command: &str, arguments: &[String]) -> Result<ExitCode> {
    let mut line = vec!["run", "--quiet", "--release", "-p", "sickbay-sim"];
    line.extend(features);
    line.extend(["--", command]);
    line.extend(arguments.iter().map(String::as_str));
    let status = cargo(root, &line).status().context("cargo cannot be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
