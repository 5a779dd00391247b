//! The steps of a long chore: all of them run, each is timed, and the end says which failed.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::counts::{Counts, Runner, run_counting};

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Passed,
    Failed(String),
    Skipped(String),
}

struct Step {
    name: &'static str,
    ending: Ending,
    took: Duration,
    counts: Counts,
}

/// The steps that ran so far.
#[derive(Default)]
pub(crate) struct Steps {
    steps: Vec<Step>,
}

impl Steps {
    /// Runs a step that counts no tests.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<Ending>) {
        self.run_tests(name, || Ok((step()?, Counts::default())));
    }

    /// Runs a step whose tests are counted. An error of the step itself is a failed step, not the end.
    pub(crate) fn run_tests(&mut self, name: &'static str, step: impl FnOnce() -> Result<(Ending, Counts)>) {
        eprintln!("\n── {name}");
        let start = now();
        let (ending, counts) =
            step().unwrap_or_else(|error| (Ending::Failed(format!("{error:#}")), Counts::default()));
        self.steps.push(Step { name, ending, took: now() - start, counts });
    }

    /// The tests counted so far.
    ///
    /// A step that failed without naming a failed test (it did not build, say) counts as one
    /// failure, so that the closing line never looks better than the exit code.
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for step in &self.steps {
            sum += step.counts;
            if matches!(step.ending, Ending::Failed(_)) && step.counts.failed == 0 {
                sum.failed += 1;
            }
        }
        sum
    }

    /// The table of steps and the closing line.
    fn summary(&self) -> String {
        let mut text = String::from("\n");
        for step in &self.steps {
            let (word, why) = match &step.ending {
                Ending::Passed => ("passed", ""),
                Ending::Failed(why) => ("FAILED", why.as_str()),
                Ending::Skipped(why) => ("skipped", why.as_str()),
            };
            let seconds = step.took.as_secs_f64();
            let row = format!("{:<10} {word:<8} {seconds:>7.1} s  {}", step.name, why);
            text.push_str(row.trim_end());
            text.push('\n');
        }
        let failed: Vec<&str> = self
            .steps
            .iter()
            .filter(|step| matches!(step.ending, Ending::Failed(_)))
            .map(|step| step.name)
            .collect();
        if !failed.is_empty() {
            text.push_str(&format!("\nfailed: {}\n", failed.join(", ")));
        }
        let Counts { passed, failed, skipped } = self.counts();
        text.push_str(&format!("\n{passed} passed, {failed} failed"));
        if skipped > 0 {
            text.push_str(&format!(", {skipped} skipped"));
        }
        text.push('\n');
        text
    }

    /// Prints the summary; failure if any step failed.
    pub(crate) fn finish(&self) -> ExitCode {
        print!("{}", self.summary());
        if self.counts().failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a command with its output shown; passed if it exits with 0.
pub(crate) fn exits_well(command: &mut Command) -> Result<Ending> {
    let status =
        command.status().with_context(|| format!("{:?} cannot be started", command.get_program()))?;
    Ok(if status.success() { Ending::Passed } else { Ending::Failed(status.to_string()) })
}

/// Runs a test command with its tests counted; passed if it exits with 0.
pub(crate) fn tests_pass(runner: Runner, command: Command) -> Result<(Ending, Counts)> {
    let (status, counts) = run_counting(runner, command)?;
    let ending = match (status.success(), counts.failed) {
        (true, 0) => Ending::Passed,
        (_, 0) => Ending::Failed(status.to_string()),
        (_, failed) => Ending::Failed(format!("{failed} of {} tests", failed + counts.passed)),
    };
    Ok((ending, counts))
}

#[expect(clippy::disallowed_methods, reason = "a chore is timed by the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::{Ending, Steps};
    use crate::counts::Counts;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn the_closing_line_stands_alone_and_adds_up_the_steps() {
        let mut steps = Steps::default();
        steps.run_tests("tests", || Ok((Ending::Passed, counts(40, 0, 0))));
        steps.run_tests("doc tests", || Ok((Ending::Passed, counts(2, 0, 0))));
        assert_eq!(steps.summary().lines().last(), Some("42 passed, 0 failed"));
        steps.run_tests("more", || Ok((Ending::Failed("1 of 1 tests".into()), counts(0, 1, 3))));
        assert_eq!(steps.summary().lines().last(), Some("42 passed, 1 failed, 3 skipped"));
    }

    #[test]
    fn a_step_that_failed_without_a_failed_test_still_shows_in_the_closing_line() {
        let mut steps = Steps::default();
        steps.run("format", || Ok(Ending::Failed("exit status: 1".into())));
        steps.run_tests("tests", || Ok((Ending::Passed, counts(5, 0, 0))));
        assert_eq!(steps.summary().lines().last(), Some("5 passed, 1 failed"));
    }

    #[test]
    fn all_steps_run_and_the_failed_ones_are_listed() {
        let mut steps = Steps::default();
        let mut ran = Vec::new();
        steps.run("format", || anyhow::bail!("no such file"));
        steps.run("clippy", || Ok(Ending::Skipped("cargo clippy is not installed".into())));
        steps.run("tidy", || {
            ran.push("tidy");
            Ok(Ending::Failed("2 violations".into()))
        });
        assert_eq!(ran, ["tidy"]);
        let summary = steps.summary();
        assert!(summary.contains("\nfailed: format, tidy\n"), "{summary}");
        assert!(summary.contains("no such file"), "{summary}");
        assert!(summary.contains("cargo clippy is not installed"), "{summary}");
    }

    #[test]
    fn a_skipped_step_is_not_a_failure() {
        let mut steps = Steps::default();
        steps.run("deny", || Ok(Ending::Skipped("cargo-deny is not installed".into())));
        assert_eq!(steps.counts(), counts(0, 0, 0));
    }
}
