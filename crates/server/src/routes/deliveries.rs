//! Deliveries for workers in any language.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::extract::State;
use sickbay_core::decide::{Facts, Outcome, decide};
use sickbay_core::gate::gate;
use sickbay_core::port::{Claim, Exchange, ProcessId, Renewal};
use sickbay_core::{Delivery, QueuePolicy, Settlement, WorkerName};

use super::check_batch;
use super::settle::limited;
use crate::BATCH_MAX;
use crate::api::Api;
use crate::extract::{Answer, Json, PathQueue};
use crate::wire::Problem;
use crate::wire::delivery::{Extend, Extended, Receive, Received};

/// Hands out deliveries that have passed the gate; those that have not are settled here.
pub(super) async fn receive(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    Json(receive): Json<Receive>,
) -> Result<Answer<Received>, Problem> {
    let mut policy = api.store().policy(&queue).await?;
    if let Some(limit) = receive.limit {
        policy = Arc::new(limited(&policy, limit));
    }
    let lease = receive.lease.map_or(policy.lease, Into::into);
    if lease.is_zero() {
        return Err(Problem::unreadable("a lease of 0s is over before it begins"));
    }
    let worker = match receive.worker {
        Some(worker) => worker,
        None => WorkerName::new("api").map_err(|error| Problem::unreadable(error.to_string()))?,
    };
    let max = receive.max.unwrap_or(1).min(BATCH_MAX as u32);
    let process = process_of(&worker);
    let claim = Claim { queue, worker, process, max, wait: receive.wait.into(), lease };
    let mut exchanged = api.exchange(Exchange::claim(claim.clone())).await?;
    loop {
        let (passed, refused) = sort(&policy, exchanged.deliveries);
        if refused.is_empty() {
            return Ok(Answer(Received { deliveries: passed.into_iter().map(Into::into).collect() }));
        }
        // Whoever asked for work gets some, if there is any; it does not wait a second time.
        let claim = passed.is_empty().then(|| claim.clone());
        exchanged = api.exchange(Exchange { settlements: refused, claim }).await?;
        if !passed.is_empty() {
            exchanged.deliveries = passed;
        }
    }
}

/// Those that passed the gate, and settlements for those that did not.
fn sort(policy: &QueuePolicy, deliveries: Vec<Delivery>) -> (Vec<Delivery>, Vec<Settlement>) {
    let (mut passed, mut refused) = (Vec::new(), Vec::new());
    for delivery in deliveries {
        match gate(policy, &delivery, delivery.lease.granted_at, &[]) {
            Ok(()) => passed.push(delivery),
            Err(refusal) => {
                let message = &delivery.message;
                let message_type = message.message_type.as_ref();
                let facts = Facts { id: message.id, message_type, counters: delivery.counters };
                let decision = decide(policy, facts, Outcome::Refused(refusal));
                refused.push(Settlement::new(delivery.token(), decision));
            }
        }
    }
    (passed, refused)
}

/// Workers of one name are thought to be one process: what it holds dies together.
fn process_of(worker: &WorkerName) -> ProcessId {
    let mut hasher = DefaultHasher::new();
    worker.hash(&mut hasher);
    ProcessId(hasher.finish() >> 1)
}

pub(super) async fn extend(
    State(api): State<Api>,
    Json(extend): Json<Extend>,
) -> Result<Answer<Extended>, Problem> {
    check_batch(extend.tokens.len(), "tokens")?;
    let tokens = extend.tokens.into_iter().map(Into::into).collect();
    let lost = api.store().renew(Renewal { tokens, lease: extend.lease.into() }).await?;
    Ok(Answer(Extended { lost: lost.into_iter().map(Into::into).collect() }))
}
