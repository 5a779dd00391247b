//! Messages come in.

use axum::body::Body;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::error::Category;
use sickbay_core::port::Pushed;
use sickbay_core::{ErrorKind, NewMessage, QueueName, StoreError};

use super::check_batch;
use crate::api::Api;
use crate::extract::{Answer, Json, Query, said, too_large};
use crate::wire::problem::Reaction;
use crate::wire::{Problem, message};
use crate::{BATCH_MAX, LARGE_BODY_BYTES_MAX};

/// So many lines, or so many bytes of them, share one transaction.
const LINES_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

pub(super) async fn push(
    State(api): State<Api>,
    Json(push): Json<message::Push>,
) -> Result<Answer<message::PushAnswer>, Problem> {
    let pushed = api.store().push(messages(push)?).await?;
    Ok(Answer(message::PushAnswer { pushed: pushed.into_iter().map(Into::into).collect() }))
}

/// The messages of a push as the store takes them.
pub(super) fn messages(push: message::Push) -> Result<Vec<NewMessage>, Problem> {
    check_batch(push.messages.len(), "messages")?;
    let mut messages = Vec::with_capacity(push.messages.len());
    for (index, message) in push.messages.into_iter().enumerate() {
        let message = message.into_core(push.queue.as_ref());
        messages
            .push(message.map_err(|error| Problem::unreadable(format!("message {}: {error}", index + 1)))?);
    }
    Ok(messages)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinesQuery {
    queue: Option<QueueName>,
}

/// One message per line. What comes before a bad line is stored.
pub(super) async fn lines(
    State(api): State<Api>,
    Query(query): Query<LinesQuery>,
    mut body: Body,
) -> Result<Answer<message::LinesAnswer>, Problem> {
    let mut lines =
        Lines { api, queue: query.queue, waiting: Vec::new(), bytes: 0, seen: 0, answer: Default::default() };
    let mut rest = BytesMut::new();
    let mut searched = 0;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                lines.flush().await?;
                return Err(lines.stopped(Problem::unreadable(format!("the body ended early: {error}"))));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(at) = rest[searched..].iter().position(|byte| *byte == b'\n') {
            let line = rest.split_to(searched + at + 1).freeze();
            searched = 0;
            lines.take(line).await?;
        }
        searched = rest.len();
        if searched > LARGE_BODY_BYTES_MAX {
            lines.flush().await?;
            return Err(lines.at(lines.seen + 1, &too_large(LARGE_BODY_BYTES_MAX)));
        }
    }
    if !rest.is_empty() {
        lines.take(rest.freeze()).await?;
    }
    lines.flush().await?;
    Ok(Answer(lines.answer))
}

/// Lines on their way into the store.
struct Lines {
    api: Api,
    queue: Option<QueueName>,
    /// Each with the number of its line.
    waiting: Vec<(u64, NewMessage)>,
    bytes: usize,
    seen: u64,
    answer: message::LinesAnswer,
}

impl Lines {
    async fn take(&mut self, line: Bytes) -> Result<(), Problem> {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let number = self.seen + 1;
            match self.read(line) {
                Ok(message) => self.waiting.push((number, message)),
                Err(problem) => {
                    self.flush().await?;
                    return Err(self.at(number, &problem));
                }
            }
            self.bytes += line.len();
        }
        self.seen += 1;
        if self.waiting.len() >= LINES_MAX.min(BATCH_MAX) || self.bytes >= BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    fn read(&self, line: &[u8]) -> Result<NewMessage, Problem> {
        let message: Result<message::NewMessage, _> = serde_json::from_slice(line);
        let message = message.map_err(|error| Problem::unreadable(in_a_line(&error)))?;
        message.into_core(self.queue.as_ref()).map_err(|error| Problem::unreadable(error.to_string()))
    }

    /// Stores what waits. If the store refuses it, everything before the line that it refuses is stored.
    async fn flush(&mut self) -> Result<(), Problem> {
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        if !waiting.is_empty() {
            let all = waiting.iter().map(|(_, message)| message.clone()).collect();
            match self.api.store().push(all).await {
                Ok(pushed) => self.count(&pushed),
                Err(error) if blames_a_message(&error) => return self.one_by_one(waiting).await,
                Err(error) => return Err(self.stopped(error.into())),
            }
        }
        self.answer.lines_stored = self.seen;
        Ok(())
    }

    async fn one_by_one(&mut self, waiting: Vec<(u64, NewMessage)>) -> Result<(), Problem> {
        for (number, message) in waiting {
            self.answer.lines_stored = number - 1;
            match self.api.store().push(vec![message]).await {
                Ok(pushed) => self.count(&pushed),
                Err(error) if blames_a_message(&error) => return Err(self.at(number, &error.into())),
                Err(error) => return Err(self.stopped(error.into())),
            }
        }
        self.answer.lines_stored = self.seen;
        Ok(())
    }

    fn count(&mut self, pushed: &[Pushed]) {
        let duplicates = pushed.iter().filter(|pushed| matches!(pushed, Pushed::Duplicate(_))).count() as u64;
        self.answer.duplicates += duplicates;
        self.answer.new += pushed.len() as u64 - duplicates;
    }

    /// A problem with one line.
    fn at(&self, number: u64, cause: &Problem) -> Problem {
        let detail = format!("line {number}: {}", cause.detail);
        let mut problem = Problem::new(Reaction::Invalid, "SB0026", detail).status(cause.status);
        problem.line = Some(number);
        self.stopped(problem)
    }

    /// A problem that ended the work.
    fn stopped(&self, mut problem: Problem) -> Problem {
        let stored = self.answer.lines_stored;
        problem.lines_stored = Some(stored);
        problem.hint(format!("{stored} lines are stored; leave them out when you send the rest"))
    }
}

/// What is wrong with the JSON of one line, in words.
fn in_a_line(error: &serde_json::Error) -> String {
    let told = said(error).replacen("line 1, column", "column", 1);
    match error.classify() {
        Category::Data => told,
        Category::Syntax | Category::Eof | Category::Io => format!("this is no JSON object ({told})"),
    }
}

fn blames_a_message(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
}
