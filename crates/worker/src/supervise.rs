//! A supervisor: runs a worker as a child process and starts it again when it dies.
//!
//! A message that kills its worker kills only the child. The next child is told how the last one
//! died, so that its store can keep the evidence with the suspects.

use std::fmt;
use std::future::Future;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sickbay_core::text::{OUTPUT_BYTES_MAX, clean_output, first_line};
use sickbay_core::{Clock, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;

use crate::time::Timer;

/// The environment variable that tells a child how the last one died.
pub const LAST_DEATH: &str = "SICKBAY_LAST_DEATH";

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A child that lived this long was healthy: the next one starts at once.
const HEALTHY: Duration = Duration::from_secs(60);
/// How long the last output of a dead child may take.
const OUTPUT_WAIT: Duration = Duration::from_millis(500);

/// How the supervisor of this process says its last child died, if it has one and it did.
pub fn last_death() -> Option<String> {
    std::env::var(LAST_DEATH).ok()
}

/// How a child died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Its process id.
    pub pid: u32,
    /// What it exited with.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it lived.
    pub lived: Duration,
    /// The end of what it wrote to its standard error, at most 8 KiB.
    pub stderr_tail: String,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.signal, self.exit_code) {
            (Some(signal), _) => write!(f, "signal {signal}")?,
            (None, Some(code)) => write!(f, "exit {code}")?,
            (None, None) => f.write_str("unknown end")?,
        }
        write!(f, " (pid {}, after {:?})", self.pid, self.lived)?;
        if !self.stderr_tail.is_empty() {
            write!(f, "; last output:\n{}", self.stderr_tail)?;
        }
        Ok(())
    }
}

/// How supervision ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Supervised {
    /// The child ended by itself with exit code 0.
    Finished,
    /// The supervisor was stopped, and the child with it.
    Stopped,
}

/// Runs a child process and starts it again when it dies: after 100 ms, then twice as long each time
/// up to 30 s, and after 100 ms again once a child has lived for a minute.
pub struct Supervisor {
    command: Box<dyn FnMut() -> Command + Send>,
    on_death: Box<dyn FnMut(&Death) + Send>,
    timer: Timer,
    kill_after: Duration,
}

impl Supervisor {
    /// Supervises what this command starts. It is asked for a new one each time.
    pub fn new(command: impl FnMut() -> Command + Send + 'static, clock: Arc<dyn Clock>) -> Self {
        Self {
            command: Box::new(command),
            on_death: Box::new(|death| eprintln!("worker died: {}", first_line(&death.to_string(), 200))),
            timer: Timer::new(clock),
            kill_after: Duration::from_secs(60),
        }
    }

    /// Called with each death. Defaults to a line on standard error.
    #[must_use]
    pub fn on_death(mut self, on_death: impl FnMut(&Death) + Send + 'static) -> Self {
        self.on_death = Box::new(on_death);
        self
    }

    /// How long a child that was told to stop may take before it is killed. Defaults to 60 s.
    #[must_use]
    pub fn kill_after(mut self, limit: Duration) -> Self {
        self.kill_after = limit;
        self
    }

    /// Runs until the child ends by itself, or this process is told to stop by SIGTERM or Ctrl-C,
    /// which is passed on to the child as SIGTERM.
    pub async fn run(self) -> io::Result<Supervised> {
        let stop = stop_signal()?;
        self.run_until(stop).await
    }

    /// The same with another way to be told to stop.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> io::Result<Supervised> {
        tokio::pin!(stop);
        let (mut backoff, mut last) = (BACKOFF_MIN, None);
        loop {
            let (mut child, tail) = self.start(last.as_ref())?;
            let (started, pid) = (self.timer.now(), child.id().unwrap_or_default());
            let status = tokio::select! {
                status = child.wait() => status?,
                () = &mut stop => {
                    end(&self.timer, &mut child, self.kill_after).await?;
                    return Ok(Supervised::Stopped);
                }
            };
            if status.success() {
                return Ok(Supervised::Finished);
            }
            let death = autopsy(&self.timer, pid, status, started, tail).await;
            (self.on_death)(&death);
            if death.lived >= HEALTHY {
                backoff = BACKOFF_MIN;
            }
            last = Some(death);
            tokio::select! {
                () = self.timer.sleep_until(self.timer.now().plus(backoff)) => {}
                () = &mut stop => return Ok(Supervised::Stopped),
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn start(&mut self, last: Option<&Death>) -> io::Result<(Child, Tail)> {
        let mut command = (self.command)();
        match last {
            Some(death) => command.env(LAST_DEATH, death.to_string()),
            None => command.env_remove(LAST_DEATH),
        };
        command.stderr(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let tail = Tail::of(child.stderr.take());
        Ok((child, tail))
    }
}

/// Tells the child to stop, and kills it if it does not.
async fn end(timer: &Timer, child: &mut Child, kill_after: Duration) -> io::Result<()> {
    terminate(child)?;
    let limit = timer.now().plus(kill_after);
    tokio::select! {
        status = child.wait() => status.map(drop),
        () = timer.sleep_until(limit) => child.kill().await,
    }
}

async fn autopsy(timer: &Timer, pid: u32, status: ExitStatus, started: Timestamp, tail: Tail) -> Death {
    let now = timer.now();
    let stderr_tail = tokio::select! {
        text = tail.ended() => text,
        () = timer.sleep_until(now.plus(OUTPUT_WAIT)) => tail.so_far(),
    };
    let (exit_code, signal) = (status.code(), signal_of(status));
    Death { pid, exit_code, signal, lived: now.since(started), stderr_tail }
}

/// The end of what a child writes to its standard error, which is passed on to ours.
struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Tail {
    fn of(stderr: Option<ChildStderr>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reader = stderr.map(|stderr| tokio::spawn(pass_on(stderr, Arc::clone(&kept))));
        Self { kept, reader: Mutex::new(reader) }
    }

    async fn ended(&self) -> String {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            let _ = reader.await;
        }
        self.so_far()
    }

    fn so_far(&self) -> String {
        clean_output(&self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn pass_on(mut stderr: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..length]);
            let excess = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
            kept.drain(..excess);
        }
        let _ = tokio::io::stderr().write_all(&buffer[..length]).await;
    }
}

#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

#[cfg(unix)]
fn terminate(child: &Child) -> io::Result<()> {
    let pid = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    match pid {
        Some(pid) => Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?),
        None => Ok(()),
    }
}

#[cfg(not(unix))]
fn terminate(child: &mut Child) -> io::Result<()> {
    child.start_kill()
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}
