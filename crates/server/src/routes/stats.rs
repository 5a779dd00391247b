//! Figures, and whether the owner is well.

use axum::extract::State;

use crate::api::Api;
use crate::extract::Answer;
use crate::wire::Problem;
use crate::wire::stats::{Health, NamedStats, Stats};

pub(super) async fn stats(State(api): State<Api>) -> Result<Answer<Stats>, Problem> {
    let mut queues = Vec::new();
    for (name, _) in api.store().queues().await? {
        let stats = api.store().stats(&name).await?.into();
        queues.push(NamedStats { name, stats });
    }
    Ok(Answer(Stats { queues }))
}

pub(super) async fn health(State(api): State<Api>) -> Result<Answer<Health>, Problem> {
    let queues = api.store().queues().await?.len() as u64;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Answer(Health { status: "ok".to_owned(), version, pid: std::process::id(), queues }))
}
