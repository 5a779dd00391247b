//! One delivery from the gate to its settlement.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::decide::{Decision, Outcome, decide};
use sickbay_core::gate::gate;
use sickbay_core::signature::{Signature, Subject};
use sickbay_core::text::clean_error;
use sickbay_core::verdict::{Effect, Failed};
use sickbay_core::{Failure, Kind, MessageType, Settlement, Stages, Timestamp, Verdict};

use crate::answer::Answer;
use crate::execute::{Ended, execute};
use crate::guarded::caught;
use crate::held::Held;
use crate::rules::Rules;
use crate::shared::Shared;

/// What an attempt came to.
pub(crate) struct Concluded {
    /// What to hand in; `None` if the lease was lost on the way.
    pub(crate) settlement: Option<Settlement>,
    /// Later deliveries of the same stream may go on.
    pub(crate) goes_on: bool,
    /// When it ended.
    pub(crate) at: Timestamp,
}

/// The pipeline: gate, handler, classification, signature, decision. Nothing takes another road.
pub(crate) async fn attend(shared: Arc<Shared>, rules: Arc<Rules>, held: Arc<Held>) -> Concluded {
    let started = shared.timer.now();
    if let Err(outcome) = pass_gate(&shared, &rules, &held, started) {
        return conclude(&shared, &held, Attempt::unrun(outcome, started)).await;
    }
    if is_done_already(&shared, &held).await {
        return conclude(&shared, &held, Attempt::unrun(Outcome::Done, started)).await;
    }
    let answer = match execute(&shared, &rules.policy, &held, started).await {
        Ended::Answered(answer) => answer,
        Ended::Dropped => {
            return Concluded { settlement: None, goes_on: false, at: shared.timer.now() };
        }
    };
    // The rules may have changed while the handler ran; those in force now decide.
    let rules = if matches!(answer, Answer::Raw(_)) { shared.rules().await } else { rules };
    let attempt = Attempt::answered(&rules, &held, answer, started, shared.timer.now());
    conclude(&shared, &held, attempt).await
}

/// How a delivery ended, with all that comes with it.
struct Attempt {
    outcome: Outcome,
    ended: Timestamp,
    ran: Option<Duration>,
    stages: Stages,
    cascade: bool,
    effect: Option<Effect>,
}

impl Attempt {
    /// The handler never ran.
    fn unrun(outcome: Outcome, ended: Timestamp) -> Self {
        Self { outcome, ended, ran: None, stages: Stages::NONE, cascade: false, effect: None }
    }

    fn answered(rules: &Rules, held: &Held, answer: Answer, started: Timestamp, ended: Timestamp) -> Self {
        let mut attempt = Self::unrun(Outcome::Done, ended);
        attempt.ran = Some(ended.since(started));
        attempt.stages = held.finished_stages();
        match answer {
            Answer::Verdict(Verdict::Done(done)) => attempt.effect = done.effect,
            Answer::Verdict(Verdict::Defer(after)) => attempt.outcome = Outcome::Deferred(after),
            Answer::Verdict(Verdict::Retry(failed)) => attempt.failed(failed),
            Answer::Verdict(Verdict::Poison(mut failed)) => {
                failed.failure.kind = Kind::Poison;
                attempt.failed(failed);
            }
            Answer::Raw(raw) => {
                let message_type = held.delivery.message.message_type.as_ref();
                attempt.failed(rules.classifier.classify(message_type, raw).into());
            }
        }
        attempt
    }

    fn failed(&mut self, failed: Failed) {
        self.stages = self.stages.with(failed.stages);
        self.cascade = failed.cascade;
        self.outcome = Outcome::Failed(failed.failure);
    }
}

/// Settles a delivery whose own writes failed when it was handed in as done: the acknowledgement did
/// not happen either.
pub(crate) async fn effect_failed(shared: &Shared, held: &Held, error: String) -> Concluded {
    let failure = Failure::unknown(format!("the handler's own writes failed: {error}"));
    let mut attempt = Attempt::unrun(Outcome::Failed(failure), shared.timer.now());
    attempt.stages = held.finished_stages();
    conclude(shared, held, attempt).await
}

fn pass_gate(shared: &Shared, rules: &Rules, held: &Held, now: Timestamp) -> Result<(), Outcome> {
    let now = held.store_time(now);
    match caught(|| gate(&rules.policy, &held.delivery, now, &[&shared.validators])) {
        Ok(passed) => passed.map_err(Outcome::Refused),
        Err(words) => Err(Outcome::Failed(Failure::unknown(format!("the validator panicked: {words}")))),
    }
}

/// A source that cannot be asked is no reason not to run: it is delivered at least once anyway.
async fn is_done_already(shared: &Shared, held: &Held) -> bool {
    match &held.delivery.message.key {
        Some(key) => shared.source.is_done(key).await.unwrap_or(false),
        None => false,
    }
}

/// Decides under the policy in force now, and writes the settlement.
async fn conclude(shared: &Shared, held: &Held, mut attempt: Attempt) -> Concluded {
    let done = matches!(attempt.outcome, Outcome::Done);
    let rules = if done { shared.rules.last() } else { shared.rules().await };
    if let Outcome::Failed(failure) = &mut attempt.outcome {
        failure.error = clean_error(&failure.error);
    }
    let decision = decide(&rules.policy, held.facts(), attempt.outcome);
    let signature = failure_of(&decision).map(|failure| sign(&rules, held, failure));
    shared.tell_breaker(&rules, held, done, signature, attempt.ended).await;
    let settlement = Settlement {
        token: held.token(),
        decision,
        stages: attempt.stages,
        signature,
        ran: attempt.ran,
        output: held.take_output(),
        effect: attempt.effect,
        cascade: attempt.cascade,
    };
    Concluded { settlement: Some(settlement), goes_on: done || attempt.cascade, at: attempt.ended }
}

fn failure_of(decision: &Decision) -> Option<&Failure> {
    match decision {
        Decision::Retry { failure, .. } | Decision::Quarantine { failure, .. } => Some(failure),
        Decision::Complete | Decision::Release { .. } | Decision::Redeliver => None,
    }
}

fn sign(rules: &Rules, held: &Held, failure: &Failure) -> Signature {
    let message = &held.delivery.message;
    rules.sign(&Subject {
        queue: message.queue.as_str(),
        message_type: message.message_type.as_ref().map(MessageType::as_str),
        reason: failure.reason.as_str(),
        text: &failure.error,
        schema_path: failure.schema_path.as_deref(),
    })
}
