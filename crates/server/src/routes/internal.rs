//! What workers and commands in other processes need beyond the routes for everybody: core's own ports,
//! without any loss.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use sickbay_core::port::{self, ProcessId, Renewal};

use super::check_batch;
use crate::api::Api;
use crate::extract::{Answer, Json, Query};
use crate::presence::Visiting;
use crate::wire::Problem;
use crate::wire::act::{Act, Outcomes};
use crate::wire::delivery::{Extend, Extended};
use crate::wire::exchange::{
    Adopt, Adoption, AskDone, AskPolicy, Count, Died, Exchange, Exchanged, IsDone, Numbers, PolicyInForce,
    Purge, SetGate, Visit,
};
use crate::wire::message::{Push, PushAnswer};
use crate::wire::queue::Done;

/// The same as the push for everybody, with a short answer.
pub(super) async fn push(State(api): State<Api>, Json(push): Json<Push>) -> Result<Answer<Numbers>, Problem> {
    let pushed = api.store().push(super::push::messages(push)?).await?;
    Ok(Answer(pushed.into()))
}

pub(super) async fn exchange(
    State(api): State<Api>,
    Json(exchange): Json<Exchange>,
) -> Result<Answer<Exchanged>, Problem> {
    check_batch(exchange.settlements.len(), "settlements")?;
    let settlements = exchange.settlements.into_iter().map(Into::into).collect();
    let exchange = port::Exchange { settlements, claim: exchange.claim.map(Into::into) };
    Ok(Answer(api.exchange(exchange).await?.into()))
}

pub(super) async fn renew(
    State(api): State<Api>,
    Json(extend): Json<Extend>,
) -> Result<Answer<Extended>, Problem> {
    let tokens = extend.tokens.into_iter().map(Into::into).collect();
    let lost = api.store().renew(Renewal { tokens, lease: extend.lease.into() }).await?;
    Ok(Answer(Extended { lost: lost.into_iter().map(Into::into).collect() }))
}

pub(super) async fn process_died(
    State(api): State<Api>,
    Json(died): Json<Died>,
) -> Result<Answer<Count>, Problem> {
    let count = api.store().process_died(ProcessId(died.process), died.evidence).await?;
    Ok(Answer(Count { count }))
}

pub(super) async fn sweep(State(api): State<Api>) -> Result<Answer<Done>, Problem> {
    api.store().sweep().await?;
    Ok(Answer(Done {}))
}

pub(super) async fn policy(
    State(api): State<Api>,
    Json(ask): Json<AskPolicy>,
) -> Result<Answer<PolicyInForce>, Problem> {
    let policy = api.store().policy(&ask.queue).await?;
    let tag = api.tags().of(&ask.queue, &policy);
    let policy = if ask.known.as_ref() == Some(&tag) { None } else { Some((*policy).clone().into()) };
    Ok(Answer(PolicyInForce { tag, policy }))
}

pub(super) async fn adopt(
    State(api): State<Api>,
    Json(adopt): Json<Adopt>,
) -> Result<Answer<PushAnswer>, Problem> {
    check_batch(adopt.adoptions.len(), "adoptions")?;
    let adoptions = adopt.adoptions.into_iter().map(Adoption::into_core).collect::<Result<_, _>>();
    let adoptions = adoptions.map_err(|error| Problem::unreadable(error.to_string()))?;
    let pushed = api.store().adopt(adoptions).await?;
    Ok(Answer(PushAnswer { pushed: pushed.into_iter().map(Into::into).collect() }))
}

pub(super) async fn set_gate(
    State(api): State<Api>,
    Json(set): Json<SetGate>,
) -> Result<Answer<Done>, Problem> {
    api.store().set_type_gate(&set.queue, &set.message_type, set.gate).await?;
    Ok(Answer(Done {}))
}

pub(super) async fn is_done(
    State(api): State<Api>,
    Json(ask): Json<AskDone>,
) -> Result<Answer<IsDone>, Problem> {
    Ok(Answer(IsDone { done: api.store().is_done(&ask.queue, &ask.key).await? }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhoIsHere {
    process: u64,
}

/// An answer that lasts as long as the process lives.
pub(super) async fn presence(State(api): State<Api>, Query(who): Query<WhoIsHere>) -> Response {
    Body::new(Visiting::begin(&api, ProcessId(who.process))).into_response()
}

pub(super) async fn goodbye(
    State(api): State<Api>,
    Json(visit): Json<Visit>,
) -> Result<Answer<Done>, Problem> {
    api.presence().leave(visit);
    Ok(Answer(Done {}))
}

pub(super) async fn act(State(api): State<Api>, Json(act): Json<Act>) -> Result<Answer<Outcomes>, Problem> {
    let store = api.store();
    let outcomes = match act {
        Act::Replay { replays } => {
            check_batch(replays.len(), "replays")?;
            let replays =
                replays.into_iter().map(|replay| replay.how.into_core(replay.id)).collect::<Result<_, _>>();
            store.replay(replays.map_err(|error| Problem::unreadable(error.to_string()))?).await?
        }
        Act::DeadLetter { ids, why } => store.dead_letter(ids, why).await?,
        Act::Discard { ids, why } => store.discard(ids, why).await?,
        Act::Restore { ids } => store.restore(ids).await?,
        Act::Cancel { ids } => store.cancel(ids).await?,
        Act::Hasten { ids } => store.hasten(ids).await?,
        Act::ResetAttempts { ids } => store.reset_attempts(ids).await?,
    };
    Ok(Answer(Outcomes { outcomes: outcomes.into_iter().map(Into::into).collect() }))
}

pub(super) async fn purge(
    State(api): State<Api>,
    Json(purge): Json<Purge>,
) -> Result<Answer<Count>, Problem> {
    let count = api.store().purge(&purge.queue, purge.age.into(), purge.rows_max).await?;
    Ok(Answer(Count { count }))
}
