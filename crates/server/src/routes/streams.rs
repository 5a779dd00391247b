//! Streams.

use axum::extract::State;

use crate::BATCH_MAX;
use crate::api::Api;
use crate::extract::{Answer, PathQueue, PathStream, Query};
use crate::wire::Problem;
use crate::wire::stream::{Released, Streams, StreamsQuery};

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
