//! Settlements of workers in any language: classified and decided here, with the policy in force.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use sickbay_core::classify::Classifier;
use sickbay_core::decide::{Decision, Facts, Outcome, SetAside, decide};
use sickbay_core::failure::{Failure, Kind, Reason};
use sickbay_core::message::Status;
use sickbay_core::port::Exchange;
use sickbay_core::quarantine::MessageView;
use sickbay_core::settlement::Settled as Applied;
use sickbay_core::{LeaseToken, QueueName, QueuePolicy, Settlement};

use super::check_batch;
use crate::api::Api;
use crate::extract::{Answer, Json};
use crate::wire::Problem;
use crate::wire::settle::{self, Ended, Settle, SettleAnswer, Settled, Verdict};

pub(super) async fn settle(
    State(api): State<Api>,
    Json(settle): Json<Settle>,
) -> Result<Answer<SettleAnswer>, Problem> {
    check_batch(settle.settlements.len(), "settlements")?;
    let mut rules = Rules { api: &api, known: HashMap::new() };
    let (mut settlements, mut answers) = (Vec::new(), Vec::new());
    for (index, said) in settle.settlements.into_iter().enumerate() {
        if let Some(field) = said.misplaced() {
            let detail = format!("settlement {}: {field:?} means nothing for this verdict", index + 1);
            return Err(Problem::unreadable(detail));
        }
        let (answer, decision) = rules.judge(&said).await?;
        answers.push((answer, decision.is_some()));
        settlements.extend(decision.map(|decision| carried(&said, decision)));
    }
    let exchanged = api.exchange(Exchange::settle(settlements)).await?;
    let mut applied = exchanged.settled.into_iter();
    let settled = answers.into_iter().map(|(answer, sent)| match sent.then(|| applied.next()).flatten() {
        Some(Applied::Applied) => answer,
        _ => lost(answer.token.into()),
    });
    Ok(Answer(SettleAnswer { settled: settled.collect() }))
}

fn carried(said: &settle::Settlement, decision: Decision) -> Settlement {
    Settlement {
        stages: said.stages.0,
        ran: said.ran.map(Into::into),
        output: said.output.clone(),
        cascade: said.cascade.unwrap_or(false),
        ..Settlement::new(said.token.into(), decision)
    }
}

/// The policies that this request has met, so that one request is judged by one policy.
struct Rules<'a> {
    api: &'a Api,
    known: HashMap<QueueName, (Arc<QueuePolicy>, Arc<Classifier>)>,
}

impl Rules<'_> {
    /// What to answer if it takes effect, and what to do; nothing if the lease is lost for certain.
    async fn judge(&mut self, said: &settle::Settlement) -> Result<(Settled, Option<Decision>), Problem> {
        let token = said.token.into();
        match said.verdict {
            Verdict::Complete => Ok((answer(token, Ended::Completed), Some(Decision::Complete))),
            Verdict::Release => Ok(released(token, said.delay.map_or(Duration::ZERO, Into::into))),
            Verdict::DeadLetter => Ok(poisoned(token, said)),
            Verdict::Abandon => match self.held(token).await? {
                Some(view) => self.abandoned(said, &view).await,
                None => Ok((lost(token), None)),
            },
        }
    }

    /// The message, if somebody holds it. Whether it is this token's holder is the store's to say.
    async fn held(&self, token: LeaseToken) -> Result<Option<MessageView>, Problem> {
        let prefix = token.message.to_string().parse();
        let prefix = prefix.map_err(|error| Problem::unreadable(format!("{error}")))?;
        let view = self.api.store().find(prefix).await?;
        Ok(view.filter(|view| view.status == Status::Active))
    }

    /// A3: counted or not, poison at once or by the limit in force.
    async fn abandoned(
        &mut self,
        said: &settle::Settlement,
        view: &MessageView,
    ) -> Result<(Settled, Option<Decision>), Problem> {
        let (policy, classifier) = self.of(&view.message.queue).await?;
        let policy = said.limit.map_or(policy.clone(), |limit| Arc::new(limited(&policy, limit)));
        let message_type = view.message.message_type.as_ref();
        let mut failure = classifier.classify(message_type, said.raw());
        let limit = policy.retry_for(message_type, failure.reason).attempts_max();
        let counted = said.count.unwrap_or(true);
        let poison = said.poison.unwrap_or(false);
        let token = said.token.into();
        let count = view.counters.failures.saturating_add(u32::from(counted || poison));
        let (mut answer, decision) = if poison {
            failure.kind = Kind::Poison;
            set_aside(token, SetAside::NonRetryableError, failure)
        } else if counted {
            let facts = Facts { id: view.message.id, message_type, counters: view.counters };
            match decide(&policy, facts, Outcome::Failed(failure)) {
                Decision::Quarantine { set_aside: why, failure } => set_aside(token, why, failure),
                decision => retried(token, decision),
            }
        } else {
            released(token, said.delay.map_or(Duration::ZERO, Into::into))
        };
        (answer.count, answer.limit) = (Some(count), Some(limit));
        Ok((answer, decision))
    }

    async fn of(&mut self, queue: &QueueName) -> Result<(Arc<QueuePolicy>, Arc<Classifier>), Problem> {
        if let Some((policy, classifier)) = self.known.get(queue) {
            return Ok((policy.clone(), classifier.clone()));
        }
        let policy = self.api.store().policy(queue).await?;
        // Rules that do not compile are refused when a queue is defined.
        let classifier = Arc::new(Classifier::new(&policy.classification).unwrap_or_default());
        self.known.insert(queue.clone(), (policy.clone(), classifier.clone()));
        Ok((policy, classifier))
    }
}

/// The same policy with another number of failures that quarantines.
pub(super) fn limited(policy: &QueuePolicy, limit: u32) -> QueuePolicy {
    let mut policy = policy.clone();
    policy.retry.attempts = limit;
    for one in &mut policy.overrides {
        one.retry.attempts = limit;
    }
    policy
}

fn answer(token: LeaseToken, outcome: Ended) -> Settled {
    Settled {
        token: token.into(),
        outcome,
        count: None,
        limit: None,
        after: None,
        set_aside: None,
        kind: None,
        reason: None,
    }
}

fn lost(token: LeaseToken) -> Settled {
    answer(token, Ended::LeaseLost)
}

fn released(token: LeaseToken, after: Duration) -> (Settled, Option<Decision>) {
    let answer = Settled { after: Some(after.into()), ..answer(token, Ended::Released) };
    (answer, Some(Decision::Release { after }))
}

fn retried(token: LeaseToken, decision: Decision) -> (Settled, Option<Decision>) {
    let mut answer = answer(token, Ended::Released);
    if let Decision::Retry { after, failure } = &decision {
        answer.after = Some((*after).into());
        (answer.kind, answer.reason) = (Some(failure.kind), Some(failure.reason));
    }
    (answer, Some(decision))
}

fn set_aside(token: LeaseToken, why: SetAside, failure: Failure) -> (Settled, Option<Decision>) {
    let answer = Settled {
        set_aside: Some(why),
        kind: Some(failure.kind),
        reason: Some(failure.reason),
        ..answer(token, Ended::Poisoned)
    };
    (answer, Some(Decision::Quarantine { set_aside: why, failure }))
}

/// A worker says outright that it will never work.
fn poisoned(token: LeaseToken, said: &settle::Settlement) -> (Settled, Option<Decision>) {
    let reason = said.reason.unwrap_or(Reason::HandlerException);
    let mut failure = Failure::new(Kind::Poison, reason, said.error.clone().unwrap_or_default());
    failure.code = said.code.clone();
    set_aside(token, SetAside::NonRetryableError, failure)
}
