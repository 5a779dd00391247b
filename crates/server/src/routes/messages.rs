//! Single messages, by their ids or unique beginnings of them.

use axum::extract::State;
use sickbay_core::MessageId;
use sickbay_core::id::IdPrefix;
use sickbay_core::port::Replayed;
use sickbay_core::quarantine::MessageView;

use crate::api::Api;
use crate::extract::{Answer, Json, PathId, wrong_address};
use crate::wire::act::{Acted, ReplayOne, Why};
use crate::wire::problem::Reaction;
use crate::wire::queue::Done;
use crate::wire::{Problem, message};

pub(super) async fn show(
    State(api): State<Api>,
    PathId(id): PathId,
) -> Result<Answer<message::MessageView>, Problem> {
    Ok(Answer(find(&api, &id).await?.into()))
}

pub(super) async fn dead_letter(
    State(api): State<Api>,
    PathId(id): PathId,
    Json(why): Json<Why>,
) -> Result<Answer<Acted>, Problem> {
    let id = resolve(&api, &id).await?;
    acted(id, api.store().dead_letter(vec![id], why.why).await?)
}

pub(super) async fn cancel(
    State(api): State<Api>,
    PathId(id): PathId,
    Json(_): Json<Done>,
) -> Result<Answer<Acted>, Problem> {
    let id = resolve(&api, &id).await?;
    acted(id, api.store().cancel(vec![id]).await?)
}

pub(super) async fn hasten(
    State(api): State<Api>,
    PathId(id): PathId,
    Json(_): Json<Done>,
) -> Result<Answer<Acted>, Problem> {
    let id = resolve(&api, &id).await?;
    acted(id, api.store().hasten(vec![id]).await?)
}

pub(super) async fn reset_attempts(
    State(api): State<Api>,
    PathId(id): PathId,
    Json(_): Json<Done>,
) -> Result<Answer<Acted>, Problem> {
    let id = resolve(&api, &id).await?;
    acted(id, api.store().reset_attempts(vec![id]).await?)
}

pub(super) async fn replay(
    State(api): State<Api>,
    PathId(id): PathId,
    Json(how): Json<ReplayOne>,
) -> Result<Answer<Acted>, Problem> {
    let id = resolve(&api, &id).await?;
    let replay = how.into_core(id).map_err(|error| Problem::unreadable(error.to_string()))?;
    acted(id, api.store().replay(vec![replay]).await?)
}

async fn find(api: &Api, id: &str) -> Result<MessageView, Problem> {
    let prefix: IdPrefix = id.parse().map_err(|error| wrong_address("the id", error))?;
    api.store().find(prefix).await?.ok_or_else(|| Problem::no_such_message(id))
}

/// The whole id that begins like this.
pub(super) async fn resolve(api: &Api, id: &str) -> Result<MessageId, Problem> {
    match id.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(find(api, id).await?.message.id),
    }
}

fn acted(id: MessageId, outcomes: Vec<Replayed>) -> Result<Answer<Acted>, Problem> {
    match outcomes.into_iter().next() {
        Some(Replayed::Done) => Ok(Answer(id.into())),
        Some(Replayed::Refused { why }) => {
            let detail = format!("message {} does not allow it: {why}", id.short());
            Err(Problem::new(Reaction::Conflict, "SB0029", detail))
        }
        Some(Replayed::NotFound) | None => Err(Problem::no_such_message(id)),
    }
}
