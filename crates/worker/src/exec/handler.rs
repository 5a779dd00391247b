//! One process per message.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use sickbay_core::classify::RawError;
use sickbay_core::{Clock, Reason, Verdict};

use super::ended::{failure_of, not_started};
use super::process::Process;
use super::program::Program;
use crate::answer::Answer;
use crate::context::Context;
use crate::foreign::{Said, read_last_line, unreadable};
use crate::handler::{BoxFuture, Handler};
use crate::time::Timer;

/// A worker ends an overrun by itself. This is for who calls the handler without one.
const LATE: Duration = Duration::from_millis(50);
/// After sysexits: it did not work now, but may later.
const EXIT_TRY_AGAIN: i32 = 75;

/// Runs a program for each message: the payload on its standard input, the metadata in `SICKBAY_…`
/// variables of its environment. It answers with its exit code: 0 done, 75 failed and worth another try,
/// 65 poison, anything else (or a signal) failed. What it wrote to its standard error is the error.
///
/// ```
/// # use std::sync::Arc;
/// # use sickbay_core::Clock;
/// # use sickbay_worker::exec::{ExecHandler, Program};
/// # fn example(clock: Arc<dyn Clock>) {
/// let handler = ExecHandler::new(Program::new("./pay.sh").arg("--live"), clock);
/// # }
/// ```
pub struct ExecHandler {
    program: Program,
    timer: Arc<Timer>,
}

impl ExecHandler {
    /// A handler that runs this program.
    pub fn new(program: impl Into<Program>, clock: Arc<dyn Clock>) -> Self {
        Self { program: program.into(), timer: Arc::new(Timer::new(clock)) }
    }

    async fn run(&self, ctx: Context) -> Answer {
        // Starting a process takes its time: not where deliveries are handed out.
        tokio::task::yield_now().await;
        let process = match self.program.start_for(&ctx) {
            Ok(process) => process,
            Err(error) => return not_started(&self.program.shown(), &error),
        };
        let late_at = self.timer.now().plus(ctx.remaining()).plus(LATE);
        let mut run = Run { process: Some(process), ctx, timer: Arc::clone(&self.timer) };
        let cancelled = run.ctx.clone();
        tokio::select! {
            biased;
            answer = run.finish() => answer,
            () = cancelled.cancelled() => Answer::Verdict(Verdict::Defer(Duration::ZERO)),
            () = self.timer.sleep_until(late_at) => {
                let text = "the program ran longer than its time budget";
                Answer::Raw(RawError::new(text).reason(Reason::TimeoutExceeded))
            }
        }
    }
}

impl Handler for ExecHandler {
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        Box::pin(self.run(delivery))
    }
}

/// A process at work on a message. If it is dropped before its end, the process is ended.
struct Run {
    process: Option<Process>,
    ctx: Context,
    timer: Arc<Timer>,
}

impl Run {
    async fn finish(&mut self) -> Answer {
        let Some(process) = &mut self.process else { return Answer::done() };
        let status = process.run(self.ctx.payload().clone()).await;
        let answer = match status {
            Ok(status) => judge(&self.ctx, status, process),
            Err(error) => Answer::Raw(RawError::new(format!("the program's end was not seen: {error}"))),
        };
        self.process = None;
        answer
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        // An overrun says nothing about why; what the program was saying may.
        note_both(&self.ctx, process.stdout.tail().bytes(), process.stderr.tail().bytes());
        process.end_in_background(Arc::clone(&self.timer), Some(Signal::TERM));
    }
}

fn judge(ctx: &Context, status: std::process::ExitStatus, process: &Process) -> Answer {
    let (stdout, stderr) = (process.stdout.tail(), process.stderr.tail());
    let said = read_last_line(stdout.bytes());
    if stdout.total() > 0 {
        ctx.note_output(stdout.bytes());
    }
    let (said, problem) = match said.transpose() {
        Ok(said) => (said.unwrap_or_default(), None),
        Err(problem) if status.success() => return unreadable(&problem),
        Err(problem) => (Said::default(), Some(problem)),
    };
    ctx.finish_stage(said.stages.0);
    match (status.code(), said.defer) {
        (Some(0 | EXIT_TRY_AGAIN), Some(wait)) => Answer::Verdict(Verdict::Defer(wait.0)),
        (Some(0), None) => Answer::done(),
        _ => {
            let mut raw = failure_of(status, stderr.bytes());
            raw.retry_after = said.retry_after.map(|wait| wait.0);
            if let Some(problem) = problem {
                raw.text.push_str(&format!("\n(its verdict under \"sickbay\" cannot be read: {problem})"));
            }
            Answer::Raw(raw)
        }
    }
}

/// Keeps the ends of both outputs with the attempt.
fn note_both(ctx: &Context, stdout: &[u8], stderr: &[u8]) {
    match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => {}
        (false, true) => ctx.note_output(stdout),
        (true, false) => ctx.note_output(stderr),
        (false, false) => {
            // The output that is kept is shorter than either end.
            let half = &stdout[stdout.len().saturating_sub(sickbay_core::text::OUTPUT_BYTES_MAX / 2)..];
            let rest = &stderr[stderr.len().saturating_sub(sickbay_core::text::OUTPUT_BYTES_MAX / 2 - 1)..];
            ctx.note_output(&[half, b"\n", rest].concat());
        }
    }
}
