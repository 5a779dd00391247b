//! What comes in, checked; what goes out. Everything that is wrong becomes a [`Problem`].

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sickbay_core::{QueueName, StreamKey};

use crate::BODY_BYTES_MAX;
use crate::routes::Marks;
use crate::wire::Problem;
use crate::wire::problem::Reaction;

/// A body of JSON. An empty one is an empty object.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let bytes = whole_body(request).await?;
        parse(&bytes).map(Self)
    }
}

/// Reads JSON, and says where it is wrong.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| Problem::unreadable(said(&error)))
}

/// What the parser says, with the place in front.
pub(crate) fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(text) => format!("line {}, column {}: {text}", error.line(), error.column()),
        None => text,
    }
}

/// The body, unless it is too large; one that says so itself is refused before it is read.
async fn whole_body(request: Request) -> Result<Bytes, Problem> {
    let bytes_max = request.extensions().get::<Marks>().map_or(BODY_BYTES_MAX, |marks| marks.body_bytes_max);
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large(bytes_max));
    }
    match Limited::new(request.into_body(), bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
        Err(error) => Err(Problem::unreadable(format!("the body ended early: {error}"))),
    }
}

pub(crate) fn too_large(bytes_max: usize) -> Problem {
    let detail = format!("the request has more than the {bytes_max} bytes that are allowed here");
    Problem::new(Reaction::Invalid, "SB0022", detail).status(413).hint("send it in several requests")
}

/// The query of an address.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(query).map(Self).map_err(|error| wrong_address("the query", error))
    }
}

pub(crate) fn wrong_address(what: &str, error: impl Display) -> Problem {
    Problem::new(Reaction::Invalid, "SB0023", format!("{what} is wrong: {error}"))
}

/// A part of the path by its name.
async fn part<T, S>(parts: &mut Parts, state: &S, name: &str) -> Result<T, Problem>
where
    T: FromStr<Err: Display>,
    S: Send + Sync,
{
    let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
    let Path(mut path) = path.map_err(|error| wrong_address("the path", error.body_text()))?;
    let text = path.remove(name).unwrap_or_default();
    text.parse().map_err(|error| wrong_address("the path", error))
}

/// The queue that the path names.
pub(crate) struct PathQueue(pub(crate) QueueName);

impl<S: Send + Sync> FromRequestParts<S> for PathQueue {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        part(parts, state, "queue").await.map(Self)
    }
}

/// The stream that the path names.
pub(crate) struct PathStream(pub(crate) StreamKey);

impl<S: Send + Sync> FromRequestParts<S> for PathStream {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        part(parts, state, "key").await.map(Self)
    }
}

/// The id, or the beginning of one, that the path names.
pub(crate) struct PathId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        part(parts, state, "id").await.map(Self)
    }
}

/// An answer in JSON.
pub(crate) struct Answer<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        written(StatusCode::OK, "application/json", &self.0)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        written(status, "application/problem+json", &self)
    }
}

fn written(status: StatusCode, content_type: &'static str, value: &impl Serialize) -> Response {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        // No type that travels can fail to be written: its maps have text for keys.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
