//! Streams.

use axum::extract::State;
use sickbay_core::port::Replayed;
use sickbay_core::stats::{self, StreamState};
use sickbay_core::{MessageId, QueueName, StreamKey};

use crate::BATCH_MAX;
use crate::api::Api;
use crate::extract::{Answer, Json, PathQueue, PathStream, Query};
use crate::wire::Problem;
use crate::wire::problem::Reaction;
use crate::wire::stream::{Released, Reset, ResetAnswer, ResetWhich, StreamDetail, Streams, StreamsQuery};

pub(super) async fn list(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    Query(query): Query<StreamsQuery>,
) -> Result<Answer<Streams>, Problem> {
    let rows_max = query.rows.unwrap_or(100).min(BATCH_MAX as u32);
    let streams = api.store().streams(&queue, rows_max).await?;
    Ok(Answer(Streams { streams: streams.into_iter().map(Into::into).collect() }))
}

pub(super) async fn release(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    PathStream(key): PathStream,
) -> Result<Answer<Released>, Problem> {
    Ok(Answer(Released { released: api.store().release_followers(&queue, &key).await? }))
}

pub(super) async fn show(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    PathStream(key): PathStream,
    Query(query): Query<StreamsQuery>,
) -> Result<Answer<StreamDetail>, Problem> {
    let rows_max = query.rows.unwrap_or(100).min(BATCH_MAX as u32);
    Ok(Answer(find(&api, &queue, &key, rows_max).await?.into()))
}

/// Gives entries their attempts back and makes them due: a stream that waits long for its head goes on.
pub(super) async fn reset(
    State(api): State<Api>,
    PathQueue(queue): PathQueue,
    PathStream(key): PathStream,
    Json(reset): Json<Reset>,
) -> Result<Answer<ResetAnswer>, Problem> {
    let detail = find(&api, &queue, &key, BATCH_MAX as u32).await?;
    let ids: Vec<MessageId> = match reset.entries {
        ResetWhich::All => detail.entries.iter().map(|entry| entry.id).collect(),
        ResetWhich::Head => vec![head(&detail)?],
    };
    let done = |answers: Vec<Replayed>| answers.iter().filter(|answer| **answer == Replayed::Done).count();
    let attempts_reset = done(api.store().reset_attempts(ids.clone()).await?) as u64;
    let entries = ids.len() as u64;
    let hastened = done(api.store().hasten(ids).await?) as u64;
    let known = (detail.entries.len() + detail.holds.len()) as u64;
    let left = match reset.entries {
        ResetWhich::All => detail.view.length.saturating_sub(known),
        ResetWhich::Head => 0,
    };
    Ok(Answer(ResetAnswer { entries, attempts_reset, hastened, left }))
}

async fn find(
    api: &Api,
    queue: &QueueName,
    key: &StreamKey,
    rows_max: u32,
) -> Result<stats::StreamDetail, Problem> {
    let found = api.store().stream(queue, key, rows_max).await?;
    found.ok_or_else(|| {
        let detail = format!("queue {queue} has no stream {:?}", key.as_str());
        Problem::new(Reaction::NotFound, "SB0040", detail)
            .hint("a stream is there while a message of it waits, is leased, or holds it from quarantine")
    })
}

/// The entry that the stream waits for.
fn head(detail: &stats::StreamDetail) -> Result<MessageId, Problem> {
    let refused = |why: String, hint: String| Problem::new(Reaction::Conflict, "SB0029", why).hint(hint);
    if detail.view.state == StreamState::Held {
        let id = detail.view.head.map(MessageId::short).unwrap_or_default();
        let why = format!("the head of the stream, {id}, is in quarantine and has no schedule to reset");
        return Err(refused(why, format!("replay {id}, discard it, or release the stream")));
    }
    let head = detail.entries.iter().find(|entry| !entry.deferred).or_else(|| detail.entries.first());
    head.map(|entry| entry.id)
        .ok_or_else(|| refused("the stream is empty".to_owned(), "look again".to_owned()))
}
