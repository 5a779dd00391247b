//! A program's life: messages go in, answers come out, until it ends.

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use sickbay_core::classify::RawError;
use sickbay_core::{Failure, MessageId, Reason, Timestamp, Verdict};
use tokio::sync::Notify;

use super::super::ended::{describe, with_status};
use super::super::process::{GRACE, Process, lock, write};
use super::super::tail::tail_text;
use super::Shared;
use super::job::Job;
use super::outgoing::Outgoing;
use super::wire::{addressee, judge};
use crate::answer::Answer;

/// A longer line is no answer.
const LINE_BYTES_MAX: usize = 1 << 20;
/// A worker ends the overrun of a message that is alone by itself; the program is ended this much later.
const LATE: Duration = Duration::from_millis(50);

/// How a life ended.
pub(super) enum Ending {
    /// The pool is closed.
    Closed,
    /// The program ended.
    Died(ExitStatus),
    /// The program does not keep to the protocol.
    Broken(String),
    /// A message took too long.
    Overdue,
}

/// A message in the program's hands.
struct Held {
    job: Job,
    /// Where its line begins in what was sent.
    from: u64,
    /// How much had been written to standard error when it came.
    mark: u64,
    /// Another message was in the program's hands at the same time.
    shared: bool,
}

impl Held {
    /// When somebody must look whether it is answered.
    fn look_at(&self) -> Timestamp {
        if self.shared { self.job.early_at } else { self.job.ends_at.plus(LATE) }
    }
}

/// A program at work.
pub(super) struct Life<'a> {
    pool: &'a Arc<Shared>,
    seat: usize,
    wake: Arc<Notify>,
    process: Process,
    in_hand: HashMap<MessageId, Held>,
    out: Outgoing,
    /// What the program wrote and was not read as an answer yet.
    lines: Vec<u8>,
    look_at: Timestamp,
    /// It has closed a pipe and must end by then.
    ends_by: Option<Timestamp>,
    answered: bool,
    taken: Vec<Job>,
}

impl<'a> Life<'a> {
    pub(super) fn begin(pool: &'a Arc<Shared>, seat: usize, process: Process, wake: Arc<Notify>) -> Self {
        let mut desk = lock(&pool.desk);
        desk.stats.started += 1;
        desk.stats.running += 1;
        Self {
            pool,
            seat,
            wake,
            process,
            in_hand: HashMap::new(),
            out: Outgoing::default(),
            lines: Vec::new(),
            look_at: Timestamp::NEVER,
            ends_by: None,
            answered: false,
            taken: Vec::new(),
        }
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Works until the program or the pool ends.
    pub(super) async fn live(&mut self) -> Ending {
        let timer = Arc::clone(&self.pool.timer);
        let mut armed_for = self.look_at;
        let alarm = timer.sleep_until(armed_for);
        tokio::pin!(alarm);
        loop {
            self.take_jobs();
            if self.pool.is_closed() {
                return Ending::Closed;
            }
            if self.look_at != armed_for {
                armed_for = self.look_at;
                alarm.set(timer.sleep_until(armed_for));
            }
            let process = &mut self.process;
            tokio::select! {
                open = process.stdout.read_into(&mut self.lines), if process.stdout.is_open() => {
                    if let Err(problem) = self.read_answers() {
                        return Ending::Broken(problem);
                    }
                    if !open {
                        self.must_end();
                    }
                }
                () = process.stderr.read(), if process.stderr.is_open() => {}
                written = write(&mut process.stdin, self.out.next()), if !self.out.is_empty() => match written {
                    Ok(count) => self.out.wrote(count),
                    Err(_) => self.must_end(),
                },
                status = process.child.wait() => match status {
                    Ok(status) => return self.died(status),
                    Err(error) => return Ending::Broken(format!("its end was not seen: {error}")),
                },
                () = self.wake.notified() => {}
                () = &mut alarm => match self.look() {
                    Some(ending) => return ending,
                    None => armed_for = Timestamp::default(),
                },
            }
        }
    }

    /// Takes what the desk has for this program, and queues its lines.
    fn take_jobs(&mut self) {
        if self.ends_by.is_some() {
            return;
        }
        let (in_hand, seat) = (self.in_hand.len(), self.seat);
        let taken = &mut self.taken;
        self.pool.act(|desk| desk.take(seat, in_hand, taken));
        if self.taken.is_empty() {
            return;
        }
        let company = self.in_hand.len() + self.taken.len() > 1;
        if company && in_hand == 1 {
            self.in_hand.values_mut().for_each(|held| held.shared = true);
            self.look_at = self.next_look();
        }
        let mark = self.process.stderr.tail().total();
        for job in self.taken.drain(..) {
            let from = self.out.push(&job.ctx);
            job.begins(self.process.stderr.shared_tail(), mark);
            let held = Held { job, from, mark, shared: company };
            self.look_at = self.look_at.min(held.look_at());
            self.in_hand.insert(held.job.id(), held);
        }
    }

    /// Hands on the answers in what was read. The error says which line is none.
    fn read_answers(&mut self) -> Result<(), String> {
        let mut answered = Vec::new();
        let mut from = 0;
        let mut outcome = Ok(());
        while let Some(length) = self.lines[from..].iter().position(|byte| *byte == b'\n') {
            let line = self.lines[from..from + length].trim_ascii();
            from += length + 1;
            if line.is_empty() {
                continue;
            }
            let held = addressee(line).and_then(|id| {
                let held = self.in_hand.remove(&id);
                held.ok_or_else(|| format!("an answer for message {id}, which it does not have"))
            });
            match held {
                Ok(held) => {
                    let answer = judge(&held.job.ctx, line);
                    answered.push(held.job.id());
                    held.job.answer(answer);
                }
                Err(problem) => {
                    outcome = Err(format!("wrote a line that is no answer: {problem}"));
                    break;
                }
            }
        }
        self.lines.drain(..from);
        if outcome.is_ok() && self.lines.len() > LINE_BYTES_MAX {
            outcome = Err(format!("wrote a line longer than {LINE_BYTES_MAX} bytes"));
        }
        if !answered.is_empty() {
            self.answered = true;
            self.pool.act(|desk| desk.answered(self.seat, &answered));
        }
        outcome
    }

    /// It closed its input or its output: no more work for it, and a second to end by itself.
    fn must_end(&mut self) {
        self.process.stdin = None;
        self.out.clear();
        let by = *self.ends_by.get_or_insert_with(|| self.pool.timer.now().plus(GRACE));
        self.look_at = self.look_at.min(by);
    }

    fn died(&mut self, status: ExitStatus) -> Ending {
        // What it said before it died counts.
        self.process.stdout.drain_into(&mut self.lines);
        let _ = self.read_answers();
        self.process.collect();
        Ending::Died(status)
    }

    /// It is time to look whether something took too long.
    fn look(&mut self) -> Option<Ending> {
        let now = self.pool.timer.now();
        if self.ends_by.is_some_and(|by| by <= now) {
            return Some(Ending::Broken("closed its input or output and did not end".to_owned()));
        }
        if self.in_hand.values().any(|held| held.look_at() <= now) {
            return Some(Ending::Overdue);
        }
        self.look_at = self.next_look();
        None
    }

    fn next_look(&self) -> Timestamp {
        let looks = self.in_hand.values().map(Held::look_at);
        looks.chain(self.ends_by).min().unwrap_or(Timestamp::NEVER)
    }

    /// Sees to what the program had in hand. Only a message that was alone in it is charged.
    pub(super) fn bury(self, ending: &Ending) {
        let Self { pool, seat, process, out, in_hand, answered, .. } = self;
        let mut held: Vec<Held> = in_hand.into_values().collect();
        held.sort_unstable_by_key(|held| held.job.ticket);
        // A program that never answers may not even read. Its messages are told why, one at a time.
        let is_reached = |held: &Held| !answered || out.reached(held.from);
        let (reached, unseen): (Vec<Held>, Vec<Held>) = held.into_iter().partition(is_reached);
        let how = describe_ending(ending);
        let alone = match ending {
            Ending::Overdue => reached.len() == 1 && reached.iter().all(|held| !held.shared),
            Ending::Closed | Ending::Died(_) | Ending::Broken(_) => reached.len() == 1,
        };
        let (charged, suspects) = if alone { (reached, Vec::new()) } else { (Vec::new(), reached) };
        let failures: Vec<(Job, Answer)> = charged
            .into_iter()
            .map(|held| {
                let answer = charge(ending, &how, process.stderr.tail().since(held.mark));
                (held.job, answer)
            })
            .collect();
        // The desk is told before anyone else: a message may be back before this function ends.
        let given_back = bookkeeping(pool, seat, ending, how, &failures, suspects, unseen);
        failures.into_iter().for_each(|(job, answer)| job.answer(answer));
        given_back.into_iter().for_each(Job::give_back);
        let timer = Arc::clone(&pool.timer);
        match ending {
            Ending::Died(_) => {}
            Ending::Closed => process.end_in_background(timer, None),
            Ending::Broken(_) | Ending::Overdue => process.end_in_background(timer, Some(Signal::TERM)),
        }
    }
}

fn describe_ending(ending: &Ending) -> String {
    match ending {
        Ending::Closed => "the pool ended".to_owned(),
        Ending::Died(status) => {
            let was = if status.code().is_none() { "was " } else { "" };
            format!("the program {was}{} before it answered", describe(*status))
        }
        Ending::Broken(problem) => format!("the program {problem}"),
        Ending::Overdue => "the program ran longer than the message's time budget".to_owned(),
    }
}

/// What the message that was alone is told.
fn charge(ending: &Ending, how: &str, stderr: &[u8]) -> Answer {
    let said = tail_text(stderr);
    let text = if said.is_empty() { how.to_owned() } else { format!("{how}\n{said}") };
    match ending {
        Ending::Died(status) => Answer::Raw(with_status(RawError::new(text), *status)),
        Ending::Overdue => Answer::Raw(RawError::new(text).reason(Reason::TimeoutExceeded)),
        // The words of a line that nobody understands say nothing about the message.
        Ending::Broken(_) => Answer::Verdict(Verdict::retry(Failure::unknown(text).code("PROTOCOL"))),
        Ending::Closed => Answer::Verdict(Verdict::Defer(Duration::ZERO)),
    }
}

/// Tells the desk. Answers with the messages that are given back: their patience is at its end.
fn bookkeeping(
    pool: &Arc<Shared>,
    seat: usize,
    ending: &Ending,
    how: String,
    failures: &[(Job, Answer)],
    suspects: Vec<Held>,
    unseen: Vec<Held>,
) -> Vec<Job> {
    let now = pool.timer.now();
    let closed = matches!(ending, Ending::Closed);
    let is_patient = |held: &Held| !closed && now < held.job.patient_until;
    let (mut given_back, mut again) = (Vec::new(), Vec::new());
    pool.act(|desk| {
        desk.ended(seat);
        desk.stats.running -= 1;
        let suspicious = failures.iter().map(|(job, _)| job).chain(suspects.iter().map(|held| &held.job));
        if !closed {
            suspicious.for_each(|job| desk.suspect(job.id()));
            // A program may end by itself when it has nothing in hand.
            let idle = failures.is_empty() && suspects.is_empty() && unseen.is_empty();
            if !(idle && matches!(ending, Ending::Died(status) if status.success())) {
                desk.stats.deaths += 1;
                desk.stats.last_death = Some(how);
            }
        }
        let sort = |all: Vec<Held>, given_back: &mut Vec<Job>| {
            let (patient, rest): (Vec<Held>, Vec<Held>) = all.into_iter().partition(is_patient);
            given_back.extend(rest.into_iter().map(|held| held.job));
            patient.into_iter().map(|held| held.job).collect::<Vec<Job>>()
        };
        again.extend(sort(suspects, &mut given_back));
        desk.isolate(seat, again.drain(..));
        desk.put_back(sort(unseen, &mut given_back).into_iter());
        desk.stats.given_back += given_back.len() as u64;
        desk.distribute()
    });
    given_back
}
