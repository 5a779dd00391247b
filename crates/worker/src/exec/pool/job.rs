//! A message that wants a program.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sickbay_core::{MessageId, Timestamp, Verdict};
use tokio::sync::oneshot;

use super::super::process::lock;
use super::super::tail::Tail;
use crate::answer::Answer;
use crate::context::Context;

/// A message that has waited this part of its time budget without reaching a program is given back: what
/// others use up must not be held against it.
const PATIENCE: u32 = 4;
/// Messages that share a program are looked at this long before their budget ends, and at the latest
/// when nine tenths of it are gone, so that none is charged for the time of another.
const EARLY: Duration = Duration::from_millis(50);

/// A message that wants a program.
pub(super) struct Job {
    pub(super) ticket: u64,
    pub(super) ctx: Context,
    /// Until then it may still wait for a program.
    pub(super) patient_until: Timestamp,
    /// When its time budget ends.
    pub(super) ends_at: Timestamp,
    /// A little before that.
    pub(super) early_at: Timestamp,
    reply: oneshot::Sender<Answer>,
    evidence: Arc<Evidence>,
}

impl Job {
    pub(super) fn new(ticket: u64, ctx: &Context, now: Timestamp) -> (Self, Waiting) {
        let (reply, answer) = oneshot::channel();
        let (budget, evidence) = (ctx.remaining(), Arc::new(Evidence::default()));
        let job = Self {
            ticket,
            ctx: ctx.clone(),
            patient_until: now.plus(budget / PATIENCE),
            ends_at: now.plus(budget),
            early_at: now.plus(budget.saturating_sub(EARLY.min(budget / 10))),
            reply,
            evidence: Arc::clone(&evidence),
        };
        (job, Waiting { ctx: ctx.clone(), answer, evidence })
    }

    pub(super) fn id(&self) -> MessageId {
        self.ctx.id()
    }

    /// True if nobody waits for the answer: the lease is lost, or the time budget used up.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// It is in a program whose standard error ends here.
    pub(super) fn begins(&self, stderr: Arc<Mutex<Tail>>, mark: u64) {
        *lock(&self.evidence.0) = Some((stderr, mark));
    }

    pub(super) fn answer(self, answer: Answer) {
        *lock(&self.evidence.0) = None;
        // Whoever does not wait any more does not want it.
        let _ = self.reply.send(answer);
    }

    /// Uncounted, to be delivered again.
    pub(super) fn give_back(self) {
        self.answer(Answer::Verdict(Verdict::Defer(Duration::ZERO)));
    }
}

/// The standard error of the program that has the message in hand, from the byte where it got it.
#[derive(Default)]
struct Evidence(Mutex<Option<(Arc<Mutex<Tail>>, u64)>>);

/// Waits for the answer. When it is dropped without one, the program's last words are kept with the
/// attempt: they may say why it took so long.
pub(super) struct Waiting {
    ctx: Context,
    pub(super) answer: oneshot::Receiver<Answer>,
    evidence: Arc<Evidence>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((stderr, mark)) = lock(&self.evidence.0).take() {
            let stderr = lock(&stderr);
            let words = stderr.since(mark);
            if !words.is_empty() {
                self.ctx.note_output(words);
            }
        }
    }
}
