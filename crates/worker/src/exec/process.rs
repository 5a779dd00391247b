//! A running program: its pipes, its process group, and its end.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;

use super::tail::Tail;
use crate::time::Timer;

/// How long a program that was told to end may take before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(1);
const CHUNK: usize = 16 * 1024;
/// What a dead program left in a pipe; no pipe holds more unless somebody still writes.
const LEFT_MAX: usize = 1 << 20;

/// A program and everything that belongs to it. Dropping it kills the whole group.
pub(super) struct Process {
    pub(super) group: Group,
    pub(super) child: Child,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Output<ChildStdout>,
    pub(super) stderr: Output<ChildStderr>,
}

impl Process {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let group = Group::of(&child);
        let stdin = child.stdin.take();
        let (stdout, stderr) = (Output::new(child.stdout.take()), Output::new(child.stderr.take()));
        Ok(Self { group, child, stdin, stdout, stderr })
    }

    /// Feeds it its input, keeps the ends of its outputs, and returns once it has ended. What it left in
    /// its group ends with it.
    pub(super) async fn run(&mut self, mut input: Bytes) -> io::Result<ExitStatus> {
        let status = loop {
            if input.is_empty() {
                self.stdin = None;
            }
            tokio::select! {
                () = self.stdout.read(), if self.stdout.is_open() => {}
                () = self.stderr.read(), if self.stderr.is_open() => {}
                written = write(&mut self.stdin, &input), if self.stdin.is_some() => match written {
                    Ok(count) => input.advance(count),
                    // Whoever does not want its input need not read it.
                    Err(_) => self.stdin = None,
                },
                status = self.child.wait() => break status,
            }
        };
        self.collect();
        status
    }

    /// The leader has ended: ends the rest of its group and takes what is still in the pipes. Nothing
    /// waits for a stranger that has inherited one of them.
    pub(super) fn collect(&mut self) {
        self.group.signal(Signal::KILL);
        self.group.0 = None;
        self.stdout.drain();
        self.stderr.drain();
    }

    /// Ends it without keeping anyone waiting: the signal to the whole group, if any, then a second of
    /// grace, then the end of whatever is left. Until then its output is still read, so that it can say
    /// good-bye.
    pub(super) fn end_in_background(mut self, timer: Arc<Timer>, signal: Option<Signal>) {
        self.stdin = None;
        // Without a runtime there is no grace; dropping it kills the group.
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(signal) = signal {
            self.group.signal(signal);
        }
        runtime.spawn(async move {
            let killed_at = timer.now().plus(GRACE);
            tokio::select! {
                () = self.silence() => {}
                () = timer.sleep_until(killed_at) => {}
            }
            // The leader was not waited for yet, so its number cannot belong to anyone else.
            self.group.signal(Signal::KILL);
            self.group.0 = None;
            let _ = self.child.wait().await;
        });
    }

    /// Returns once nobody holds its outputs any more.
    async fn silence(&mut self) {
        while self.stdout.is_open() || self.stderr.is_open() {
            tokio::select! {
                () = self.stdout.read(), if self.stdout.is_open() => {}
                () = self.stderr.read(), if self.stderr.is_open() => {}
            }
        }
    }
}

/// Writes some of it; waits for ever if there is nowhere to write to.
pub(super) async fn write(stdin: &mut Option<ChildStdin>, bytes: &[u8]) -> io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(bytes).await,
        None => std::future::pending().await,
    }
}

/// The process group of a program. Dropping it kills what is in it.
pub(super) struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())))
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// One output of a program, of which the end is kept.
pub(super) struct Output<R> {
    pipe: Option<R>,
    chunk: Box<[u8]>,
    tail: Arc<Mutex<Tail>>,
}

impl<R: AsyncReadExt + AsFd + Unpin> Output<R> {
    fn new(pipe: Option<R>) -> Self {
        Self { pipe, chunk: vec![0; CHUNK].into(), tail: Arc::default() }
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads some and keeps its end.
    pub(super) async fn read(&mut self) {
        let read = self.read_chunk().await;
        lock(&self.tail).push(&self.chunk[..read]);
    }

    /// Reads some into the chunk and says how much; 0 at its end.
    async fn read_chunk(&mut self) -> usize {
        let Some(pipe) = &mut self.pipe else { return 0 };
        let count = pipe.read(&mut self.chunk).await.unwrap_or(0);
        if count == 0 {
            self.pipe = None;
        }
        count
    }

    /// Reads some and shows it to the caller instead of keeping it. False at its end.
    pub(super) async fn read_into(&mut self, buffer: &mut Vec<u8>) -> bool {
        let count = self.read_chunk().await;
        buffer.extend_from_slice(&self.chunk[..count]);
        count > 0
    }

    /// Takes what is in the pipe now, without waiting for more.
    fn drain(&mut self) {
        let mut left = Vec::new();
        self.drain_into(&mut left);
        lock(&self.tail).push(&left);
    }

    /// The same, for the caller.
    pub(super) fn drain_into(&mut self, buffer: &mut Vec<u8>) {
        let Some(pipe) = self.pipe.take() else { return };
        let before = buffer.len();
        while buffer.len() - before < LEFT_MAX {
            match rustix::io::read(&pipe, &mut *self.chunk) {
                Ok(count @ 1..) => buffer.extend_from_slice(&self.chunk[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The end of what was read.
    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        lock(&self.tail)
    }

    /// The same for someone else to look at.
    pub(super) fn shared_tail(&self) -> Arc<Mutex<Tail>> {
        Arc::clone(&self.tail)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
