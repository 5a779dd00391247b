//! Programs that stay: each reads messages, one JSON object a line, and answers with one a line.
//!
//! `job` is a message that wants a program, `desk` says who gets which, `seat` keeps one program running,
//! `life` is a program's life from its start to its end, `wire` the lines.

mod desk;
mod job;
mod life;
mod outgoing;
mod seat;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sickbay_core::{Clock, Verdict};

use self::desk::Desk;
use self::job::{Job, Waiting};
use super::process::lock;
use super::program::Program;
use crate::answer::Answer;
use crate::context::Context;
use crate::handler::{BoxFuture, Handler};
use crate::time::Timer;

const PROGRAMS_MAX: usize = 1024;
const WINDOW_MAX: usize = 65_536;

/// Programs that stay, for speed. Each gets one line of JSON per message and answers with one line, in any
/// order; several messages may be in a program at the same time.
///
/// When a program dies with one message in hand, that message has failed, with the exit code or signal as
/// evidence. When there were several, nobody knows which one it was: each of them is run again, alone in
/// a fresh program, and only one that kills alone is charged. The same for programs that hang. A message that
/// gets no program within a quarter of its time budget is given back uncounted.
///
/// Programs are started when there is work, and started again when they die: at once if they had
/// answered, otherwise after 100 ms, then twice as long each time, up to 30 s. They end with the pool.
///
/// ```
/// # use std::sync::Arc;
/// # use sickbay_core::Clock;
/// # use sickbay_worker::exec::{ExecPool, Program};
/// # fn example(clock: Arc<dyn Clock>) {
/// let pool = ExecPool::new(Program::new("python3").arg("pay.py"), clock).programs(4).window(16);
/// # }
/// ```
#[must_use = "a pool does nothing until a worker uses it"]
pub struct ExecPool {
    program: Program,
    programs: usize,
    window: usize,
    timer: Arc<Timer>,
    shared: std::sync::OnceLock<Arc<Shared>>,
}

/// What a pool has done and holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Programs started.
    pub started: u64,
    /// Programs that died, hung or broke the protocol.
    pub deaths: u64,
    /// How the last of them ended.
    pub last_death: Option<String>,
    /// Messages answered by a program.
    pub answered: u64,
    /// Messages given back uncounted: they found no program in time, or shared one that ended.
    pub given_back: u64,
    /// Programs running now.
    pub running: u64,
    /// Messages waiting for a program now.
    pub waiting: u64,
}

impl ExecPool {
    /// A pool of this program.
    pub fn new(program: impl Into<Program>, clock: Arc<dyn Clock>) -> Self {
        Self {
            program: program.into(),
            programs: 2,
            window: 64,
            timer: Arc::new(Timer::new(clock)),
            shared: std::sync::OnceLock::new(),
        }
    }

    /// How many programs run at the same time. At least 1; defaults to 2.
    pub fn programs(mut self, programs: usize) -> Self {
        self.programs = programs.clamp(1, PROGRAMS_MAX);
        self
    }

    /// How many messages a program may have in hand. At least 1; defaults to 64. A program that handles
    /// one after the other must get through that many within the time budget. The worker needs as much
    /// concurrency as all programs together have room for.
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.clamp(1, WINDOW_MAX);
        self
    }

    /// What it has done and holds.
    pub fn stats(&self) -> PoolStats {
        self.shared.get().map(|shared| lock(&shared.desk).stats.clone()).unwrap_or_default()
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.get_or_init(|| {
            Arc::new(Shared {
                program: self.program.clone(),
                timer: Arc::clone(&self.timer),
                desk: Mutex::new(Desk::new(self.programs, self.window)),
                closed: AtomicBool::new(false),
                tickets: AtomicU64::new(0),
            })
        })
    }

    async fn attend(&self, ctx: Context) -> Answer {
        let shared = self.shared();
        let ticket = shared.tickets.fetch_add(1, Ordering::Relaxed);
        let (job, mut waiting) = Job::new(ticket, &ctx, shared.timer.now());
        let patient_until = job.patient_until;
        shared.act(|desk| desk.submit(job));
        let answer = tokio::select! {
            biased;
            answer = &mut waiting.answer => answer,
            () = shared.timer.sleep_until(patient_until) => {
                shared.give_back_if_waiting(ticket);
                let Waiting { answer, .. } = &mut waiting;
                answer.await
            }
        };
        // The pool has ended with the message in hand.
        answer.unwrap_or(Answer::Verdict(Verdict::Defer(Duration::ZERO)))
    }
}

impl Handler for ExecPool {
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        Box::pin(self.attend(delivery))
    }
}

impl Drop for ExecPool {
    fn drop(&mut self) {
        let Some(shared) = self.shared.get() else { return };
        shared.closed.store(true, Ordering::Release);
        let left = {
            let mut desk = lock(&shared.desk);
            desk.wake_all();
            desk.take_all()
        };
        left.into_iter().for_each(Job::give_back);
    }
}

/// What messages and programs share.
struct Shared {
    program: Program,
    timer: Arc<Timer>,
    desk: Mutex<Desk>,
    closed: AtomicBool,
    tickets: AtomicU64,
}

impl Shared {
    /// Does something at the desk, and sees to it that every seat with work has a keeper.
    fn act(self: &Arc<Self>, act: impl FnOnce(&mut Desk) -> Vec<usize>) {
        let unkept = act(&mut lock(&self.desk));
        for seat in unkept {
            tokio::spawn(seat::keep(Arc::clone(self), seat));
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn give_back_if_waiting(self: &Arc<Self>, ticket: u64) {
        let mut withdrawn = None;
        self.act(|desk| {
            withdrawn = desk.withdraw(ticket);
            desk.stats.given_back += u64::from(withdrawn.is_some());
            desk.distribute()
        });
        if let Some(job) = withdrawn {
            job.give_back();
        }
    }
}
