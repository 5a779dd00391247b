//! Queues.

use axum::extract::State;
use sickbay_core::QueueName;
use sickbay_core::stats::TypeGate;

use crate::api::Api;
use crate::extract::{Answer, Json, PathQueue};
use crate::wire::Problem;
use crate::wire::queue::{Done, Part, Queue, QueueView, Queues};

pub(super) async fn list(State(api): State<Api>) -> Result<Answer<Queues>, Problem> {
    let queues = api.store().queues().await?.into_iter();
    Ok(Answer(Queues {
        queues: queues.map(|(name, policy)| Queue { name, policy: policy.into() }).collect(),
    }))
}

pub(super) async fn define(
    State(api): State<Api>,
    Json(queue): Json<Queue>,
) -> Result<Answer<Done>, Problem> {
    api.store().define_queue(&queue.name, queue.policy.into()).await?;
    Ok(Answer(Done {}))
}

pub(super) async fn show(
    State(api): State<Api>,
    PathQueue(name): PathQueue,
) -> Result<Answer<QueueView>, Problem> {
    let policy = api.store().policy(&name).await?;
    let stats = api.store().stats(&name).await?;
    Ok(Answer(QueueView { name, policy: (*policy).clone().into(), stats: stats.into() }))
}

pub(super) async fn pause(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    Json(part): Json<Part>,
) -> Result<Answer<Done>, Problem> {
    set_paused(&api, &queue, part, true).await
}

pub(super) async fn resume(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    Json(part): Json<Part>,
) -> Result<Answer<Done>, Problem> {
    set_paused(&api, &queue, part, false).await
}

async fn set_paused(api: &Api, queue: &QueueName, part: Part, paused: bool) -> Result<Answer<Done>, Problem> {
    match part.message_type {
        None => api.store().set_paused(queue, paused).await?,
        Some(message_type) => {
            let gate = if paused { TypeGate::Paused } else { TypeGate::Open };
            api.store().set_type_gate(queue, &message_type, gate).await?;
        }
    }
    Ok(Answer(Done {}))
}
