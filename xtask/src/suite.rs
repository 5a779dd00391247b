//! `cargo xtask test` and `cargo xtask ci`: the same steps, the second with more of them and stricter.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cargo::{cargo, has_subcommand};
use crate::counts::{Counts, Runner};
use crate::faults;
use crate::needs::{self, NEEDS};
use crate::servers::Postgres;
use crate::steps::{Ending, Steps, exits_well, tests_pass};
use crate::tidy;

/// What to do about a cargo subcommand that is not installed.
#[derive(Clone, Copy)]
enum Absent {
    Skip,
    Fail,
}

/// Everything a developer wants to know before a commit. Arguments go to the test runner; with
/// arguments only the tests run.
pub(crate) fn test(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let mut steps = Steps::default();
    if arguments.is_empty() {
        lints(&mut steps, root, Absent::Skip);
        tests(&mut steps, root, arguments);
        examples(&mut steps, root);
        proofs(&mut steps, root);
    } else {
        tests(&mut steps, root, arguments);
    }
    Ok(steps.finish())
}

/// What every commit must pass.
pub(crate) fn ci(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        bail!("takes no arguments");
    }
    let mut steps = Steps::default();
    lints(&mut steps, root, Absent::Fail);
    steps.run("docs", || {
        exits_well(cargo(root, &["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    });
    steps.run("deny", || {
        with_subcommand(root, "deny", Absent::Skip, &["deny", "check", "licenses", "bans", "sources"])
    });
    tests(&mut steps, root, &[]);
    examples(&mut steps, root);
    proofs(&mut steps, root);
    Ok(steps.finish())
}

/// Interleavings, power cuts, schedules, deaths, every known defect, and a minute of load.
fn proofs(steps: &mut Steps, root: &Path) {
    steps.run_tests("orders", || {
        let (ending, mut counts) = orders(root, "sickbay-store")?;
        let (later, more) = orders(root, "sickbay-worker")?;
        counts += more;
        Ok((if ending == Ending::Passed { later } else { ending }, counts))
    });
    steps.run("faults", || {
        let well = faults::quick(root)?;
        Ok(if well { Ending::Passed } else { Ending::Failed("a promise was broken".to_owned()) })
    });
    // The same steps on every machine: new ones are for the long runs.
    let soak = ["--seconds", "300", "--chunks", "150"];
    let soak = [&["run", "--quiet", "--release", "-p", "sickbay-sim", "--", "soak"], &soak[..]].concat();
    steps.run("soak", || exits_well(&mut cargo(root, &soak)));
}

/// Many orders of what the threads of a crate do.
fn orders(root: &Path, package: &str) -> Result<(Ending, Counts)> {
    let line = ["test", "-p", package, "--lib", "--features", "interleavings", "interleavings"];
    tests_pass(Runner::Cargo, cargo(root, &line))
}

fn lints(steps: &mut Steps, root: &Path, absent: Absent) {
    steps.run("format", || with_subcommand(root, "fmt", absent, &["fmt", "--all", "--check"]));
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.run("clippy", || with_subcommand(root, "clippy", absent, &clippy));
    steps.run("tidy", || tidy::step(root));
}

fn examples(steps: &mut Steps, root: &Path) {
    steps.run("examples", || exits_well(&mut cargo(root, &["build", "--workspace", "--examples"])));
}

fn with_subcommand(root: &Path, subcommand: &str, absent: Absent, arguments: &[&str]) -> Result<Ending> {
    if has_subcommand(root, subcommand) {
        return exits_well(&mut cargo(root, arguments));
    }
    let why = format!("cargo-{subcommand} is not installed");
    eprintln!("skipped: {why}");
    Ok(match absent {
        Absent::Skip => Ending::Skipped(why),
        Absent::Fail => Ending::Failed(why),
    })
}

fn tests(steps: &mut Steps, root: &Path, arguments: &[String]) {
    let mut left_out = Vec::new();
    steps.run("needs", || {
        left_out = needs::missing(NEEDS, needs::install);
        needs::report(&left_out, needs::in_ci())
    });
    let skip: Vec<&str> = left_out.iter().map(|need| need.tests).collect();
    let mut postgres = None;
    if !skip.contains(&"postgres::") {
        steps.run("postgres", || {
            postgres = Some(Postgres::start_fast()?);
            Ok(Ending::Passed)
        });
    }
    let runner = if has_subcommand(root, "nextest") { Runner::Nextest } else { Runner::Cargo };
    let mut none_found = false;
    steps.run_tests("tests", || {
        let mut command = cargo(root, &words(&runner.arguments(arguments, &skip)));
        if let Some(postgres) = &postgres {
            command.env("SICKBAY_TEST_POSTGRES", &postgres.url);
        }
        let (ending, mut counts) = tests_pass(runner, command)?;
        if !arguments.is_empty() {
            // What the filter leaves out is not skipped: nobody asked for it.
            counts.skipped = 0;
        }
        none_found = ending == Ending::Passed && counts == Counts::default();
        Ok((ending, counts))
    });
    if arguments.iter().any(|argument| argument.starts_with('-')) {
        return;
    }
    steps.run_tests("doc tests", || {
        let mut command = vec!["test", "--workspace", "--doc", "--no-fail-fast", "--"];
        command.extend(arguments.iter().map(String::as_str));
        let (ending, counts) = tests_pass(Runner::Cargo, cargo(root, &command))?;
        if none_found && ending == Ending::Passed && counts == Counts::default() && !arguments.is_empty() {
            return Ok((Ending::Failed(format!("no test matches {}", arguments.join(" "))), counts));
        }
        Ok((ending, counts))
    });
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

impl Runner {
    /// The whole command line after `cargo`, with the user's arguments as filter or options.
    fn arguments(self, given: &[String], skip: &[&str]) -> Vec<String> {
        let start: &[&str] = match self {
            Runner::Nextest => &["nextest", "run", "--no-fail-fast", "--no-tests=pass"],
            Runner::Cargo => &["test", "--tests", "--no-fail-fast"],
        };
        let mut line: Vec<String> = start.iter().map(|&word| word.to_owned()).collect();
        let chooses_package =
            given.iter().any(|word| word.starts_with("-p") || word.split('=').next() == Some("--package"));
        if !chooses_package {
            line.push("--workspace".to_owned());
        }
        // Only after `--` does cargo's own runner take more than one filter.
        let has_options = given.iter().any(|word| word.starts_with('-'));
        if matches!(self, Runner::Cargo) && !has_options {
            line.push("--".to_owned());
        }
        line.extend_from_slice(given);
        if !skip.is_empty() && !line.iter().any(|word| word == "--") {
            line.push("--".to_owned());
        }
        line.extend(skip.iter().flat_map(|name| ["--skip".to_owned(), (*name).to_owned()]));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::Runner;

    fn line(runner: Runner, given: &[&str], skip: &[&str]) -> String {
        let given: Vec<String> = given.iter().map(|&word| word.to_owned()).collect();
        runner.arguments(&given, skip).join(" ")
    }

    #[test]
    fn every_test_of_the_workspace_runs_without_a_filter() {
        assert_eq!(line(Runner::Nextest, &[], &[]), "nextest run --no-fail-fast --no-tests=pass --workspace");
        assert_eq!(line(Runner::Cargo, &[], &[]), "test --tests --no-fail-fast --workspace --");
    }

    #[test]
    fn filters_reach_the_runner() {
        let nextest = line(Runner::Nextest, &["lease", "crash"], &[]);
        assert_eq!(nextest, "nextest run --no-fail-fast --no-tests=pass --workspace lease crash");
        let cargo = line(Runner::Cargo, &["lease", "crash"], &[]);
        assert_eq!(cargo, "test --tests --no-fail-fast --workspace -- lease crash");
    }

    #[test]
    fn a_chosen_package_replaces_the_workspace() {
        let nextest = line(Runner::Nextest, &["-p", "sickbay-core", "lease"], &[]);
        assert_eq!(nextest, "nextest run --no-fail-fast --no-tests=pass -p sickbay-core lease");
        let cargo = line(Runner::Cargo, &["--package=sickbay-core"], &[]);
        assert_eq!(cargo, "test --tests --no-fail-fast --package=sickbay-core");
    }

    #[test]
    fn tests_whose_package_is_missing_are_left_out_by_name() {
        let nextest = line(Runner::Nextest, &["lease"], &["postgres::"]);
        assert!(nextest.ends_with("--workspace lease -- --skip postgres::"), "{nextest}");
        let cargo = line(Runner::Cargo, &[], &["postgres::", "amqp::"]);
        assert!(cargo.ends_with("--workspace -- --skip postgres:: --skip amqp::"), "{cargo}");
    }
}
