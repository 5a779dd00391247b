//! What an answer means.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use sickbay_core::classify::RawError;
use sickbay_core::text::first_line;
use sickbay_core::{Failure, Timestamp, Verdict};

use crate::answer::Answer;
use crate::context::Context;
use crate::foreign::{Said, read_object, unreadable};

/// This much of an answer is kept as error or output.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// This much is read, so that the connection can be used again. Beyond it a new one is cheaper.
const READ_BYTES_MAX: usize = 256 * 1024;
/// No endpoint is obeyed that wants to be left alone for longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// Reads the answer and judges it. The error is the connection's.
pub(super) async fn judge(
    ctx: &Context,
    response: Response<Incoming>,
    now: Timestamp,
) -> hyper::Result<Answer> {
    let (head, body) = response.into_parts();
    let body = read(body).await?;
    let said = match read_object(&body).transpose() {
        Err(problem) if head.status.is_success() => return Ok(unreadable(&problem)),
        said => said.ok().flatten().unwrap_or_default(),
    };
    ctx.finish_stage(said.stages.0);
    if head.status.is_success() {
        if !body.is_empty() {
            ctx.note_output(&body);
        }
        return Ok(said.defer.map_or_else(Answer::done, |wait| Answer::Verdict(Verdict::Defer(wait.0))));
    }
    if head.status.is_redirection() {
        return Ok(redirected(head.status, &head.headers));
    }
    Ok(Answer::Raw(failed(head.status, &head.headers, &body, &said, now)))
}

/// The beginning of a body.
async fn read(mut body: Incoming) -> hyper::Result<Bytes> {
    let (mut kept, mut read) = (BytesMut::new(), 0);
    while !body.is_end_stream() && read < READ_BYTES_MAX {
        let Some(frame) = body.frame().await else { break };
        if let Ok(data) = frame?.into_data() {
            read += data.len();
            let room = KEPT_BYTES_MAX - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(kept.freeze())
}

/// Following it could send the message, and its credentials, to somebody else.
fn redirected(status: StatusCode, headers: &HeaderMap) -> Answer {
    let target = headers.get(LOCATION).map(|target| String::from_utf8_lossy(target.as_bytes()).into_owned());
    let target = target.map(|target| format!(" to {:?}", first_line(&target, 200))).unwrap_or_default();
    let text = format!(
        "the endpoint answered {status}: it redirects{target}. Redirects are not followed; give the handler the final URL"
    );
    Answer::Verdict(Verdict::poison(Failure::poison(text).code(format!("HTTP {}", status.as_u16()))))
}

fn failed(status: StatusCode, headers: &HeaderMap, body: &[u8], said: &Said, now: Timestamp) -> RawError {
    let text = String::from_utf8_lossy(body);
    let text = match text.trim() {
        "" => format!("the endpoint answered {status} with an empty body"),
        text => text.to_owned(),
    };
    let wait = said.retry_after.map(|wait| wait.0).or_else(|| retry_after(headers, now));
    RawError { http_status: Some(status.as_u16()), retry_after: wait, ..RawError::new(text) }
}

/// Seconds, or a date. A date is compared with the endpoint's own, if it says what time it has.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let said = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match said.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = date(said)?;
            let there = headers.get(DATE).and_then(|said| date(said.to_str().ok()?));
            until.since(there.unwrap_or(now))
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

fn date(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp::default().plus(since))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn asked(pairs: &[(HeaderName, &'static str)], now: Timestamp) -> Option<Duration> {
        let values = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        retry_after(&values.collect(), now)
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = date("Sun, 15 Nov 2026 10:00:00 GMT").unwrap();
        let seconds = |pairs: &[(HeaderName, &'static str)]| asked(pairs, now).map(|wait| wait.as_secs());
        assert_eq!(seconds(&[(RETRY_AFTER, "120")]), Some(120));
        assert_eq!(seconds(&[(RETRY_AFTER, "Sun, 15 Nov 2026 10:00:30 GMT")]), Some(30));
        assert_eq!(seconds(&[(RETRY_AFTER, "Sunday, 15-Nov-26 10:01:00 GMT")]), Some(60));
        assert_eq!(seconds(&[(RETRY_AFTER, "Sun, 15 Nov 2026 09:00:00 GMT")]), Some(0));
        assert_eq!(seconds(&[(RETRY_AFTER, "soon")]), None);
        assert_eq!(seconds(&[(RETRY_AFTER, "99999999999999")]), Some(86_400));
        assert_eq!(seconds(&[]), None);
    }

    #[test]
    fn a_date_is_compared_with_the_clock_of_the_endpoint() {
        let now = date("Sun, 15 Nov 2026 10:00:00 GMT").unwrap();
        let hour_ahead =
            [(RETRY_AFTER, "Sun, 15 Nov 2026 11:00:30 GMT"), (DATE, "Sun, 15 Nov 2026 11:00:00 GMT")];
        assert_eq!(asked(&hour_ahead, now), Some(Duration::from_secs(30)));
    }
}
