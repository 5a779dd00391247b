//! `cargo xtask sim` and `cargo xtask soak`: the simulator, built with optimisation and called.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::servers::Postgres;

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
    let mut command = cargo(root, &line);
    let server = on_postgres(arguments).then(Postgres::start_fast).transpose()?;
    if let Some(server) = &server {
        command.env("SICKBAY_TEST_POSTGRES", &server.url);
    }
    let status = command.status().context("cargo cannot be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the arguments ask for schedules on PostgreSQL, which needs a server.
fn on_postgres(arguments: &[String]) -> bool {
    arguments.windows(2).any(|pair| pair[0] == "--store" && pair[1] == "postgres")
}

#[cfg(test)]
mod tests {
    use super::on_postgres;

    #[test]
    fn a_server_is_started_for_schedules_on_it_only() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(on_postgres(&words("--seeds 5 --store postgres --json")));
        assert!(!on_postgres(&words("--seeds 5 --store sqlite")) && !on_postgres(&words("--store")));
    }
}
