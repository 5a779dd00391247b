//! How many tests ran, read from the output of the test runners.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::AddAssign;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::Regex;

/// Tests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

static ESCAPE: LazyLock<Regex> = LazyLock::new(|| Regex::new("\u{1b}\\[[0-9;]*[A-Za-z]").unwrap());
static LIBTEST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^test result: (.*)$").unwrap());
static NEXTEST: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^ {0,5}Summary \[[^\]]*\] +(?:\d+/)?\d+ tests? run: (.*)$").unwrap());
static COUNT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(\d+) (passed|failed|exec failed|timed out|skipped|ignored)\b").unwrap());

/// Who runs the tests, and so what its summary looks like.
///
/// Nextest shows the whole output of a failed test, libtest's summary of that one test included: each
/// runner's output is read for its own summaries only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    Cargo,
    Nextest,
}

impl Runner {
    /// Reads one line: a summary counts, any other line is nothing.
    fn counts(self, line: &str) -> Counts {
        let summary = match self {
            Runner::Cargo => &LIBTEST,
            Runner::Nextest => &NEXTEST,
        };
        let plain = ESCAPE.replace_all(line, "");
        let mut counts = Counts::default();
        let Some(summary) = summary.captures(plain.trim_end()) else { return counts };
        for count in COUNT.captures_iter(&summary[1]) {
            let number = count[1].parse().unwrap_or(0);
            match &count[2] {
                "passed" => counts.passed += number,
                "skipped" | "ignored" => counts.skipped += number,
                _ => counts.failed += number,
            }
        }
        counts
    }
}

/// Runs a test command, shows its output as it comes and adds up the summaries in it.
pub(crate) fn run_counting(runner: Runner, mut command: Command) -> Result<(ExitStatus, Counts)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().with_context(|| format!("{:?} cannot be started", command.get_program()))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let counts = std::thread::scope(|scope| {
        let errors =
            scope.spawn(|| err.map(|pipe| pass_on(runner, pipe, std::io::stderr())).unwrap_or_default());
        let mut counts = out.map(|pipe| pass_on(runner, pipe, std::io::stdout())).unwrap_or_default();
        counts += errors.join().unwrap_or_default();
        counts
    });
    let status = child.wait().context("the test runner cannot be waited for")?;
    Ok((status, counts))
}

/// Copies line by line. Output that cannot be shown any more is still read, so that the child can end.
fn pass_on(runner: Runner, from: impl Read, mut to: impl Write) -> Counts {
    let mut from = BufReader::new(from);
    let mut counts = Counts::default();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let _ = to.write_all(&line).and_then(|()| to.flush());
        counts += runner.counts(&String::from_utf8_lossy(&line));
        line.clear();
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::{Counts, Runner, pass_on};

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn a_summary_of_libtest_is_counted() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.0s\n";
        assert_eq!(Runner::Cargo.counts(line), counts(12, 2, 1));
    }

    #[test]
    fn a_summary_of_nextest_is_counted_with_every_way_to_fail() {
        let line = "     Summary [   1.204s] 10/20 tests run: 6 passed (1 slow, 2 flaky), 2 failed, \
                    1 exec failed, 1 timed out, 3 skipped";
        assert_eq!(Runner::Nextest.counts(line), counts(6, 4, 3));
        let one = "     Summary [   0.002s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(Runner::Nextest.counts(one), counts(1, 0, 0));
    }

    #[test]
    fn colours_do_not_hide_a_summary() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m \
                    \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m skipped";
        assert_eq!(Runner::Nextest.counts(line), counts(3, 0, 0));
    }

    #[test]
    fn what_a_test_prints_is_not_a_summary() {
        for runner in [Runner::Cargo, Runner::Nextest] {
            assert_eq!(runner.counts("the replay ended: 5 passed, 3 failed"), counts(0, 0, 0));
            assert_eq!(runner.counts("log: test result: ok. 5 passed; 3 failed"), counts(0, 0, 0));
        }
    }

    #[test]
    fn a_failed_test_that_nextest_shows_in_full_is_not_counted_twice() {
        let text = "    test result: FAILED. 0 passed; 1 failed; 0 ignored;\ntest result: FAILED. 0 passed; 1 failed;\n\
                    \x20    Summary [   0.1s] 2 tests run: 1 passed, 1 failed, 0 skipped\n";
        assert_eq!(pass_on(Runner::Nextest, text.as_bytes(), Vec::new()), counts(1, 1, 0));
    }

    #[test]
    fn several_summaries_add_up_and_the_output_is_passed_on_unchanged() {
        let text = "x\ntest result: ok. 2 passed; 0 failed; 1 ignored;\n\u{fffd}\ntest result: ok. 3 passed; 0 failed;";
        let mut shown = Vec::new();
        assert_eq!(pass_on(Runner::Cargo, text.as_bytes(), &mut shown), counts(5, 0, 1));
        assert_eq!(shown, text.as_bytes());
    }
}
