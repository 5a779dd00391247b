//! The lines that programs read and write.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use sickbay_core::classify::RawError;
use sickbay_core::text::first_line;
use sickbay_core::verdict::Failed;
use sickbay_core::{
    Cause, Failure, Key, Kind, LeaseToken, MessageId, MessageType, Reason, StreamKey, Timestamp, Verdict,
};

use crate::answer::Answer;
use crate::context::Context;
use crate::foreign::{StageList, Wait, stage_names};

/// A message as its program reads it. Everything is always there, but of the two forms of the payload
/// one: text if the bytes are text, base64 otherwise.
#[derive(Serialize)]
struct Request<'a> {
    id: MessageId,
    queue: &'a str,
    #[serde(rename = "type")]
    message_type: Option<&'a str>,
    stream: Option<&'a str>,
    key: Option<&'a str>,
    attempt: u32,
    failures: u32,
    last_attempt: bool,
    stages: Vec<String>,
    cause: Option<Cause>,
    suspect: bool,
    #[serde(serialize_with = "as_text")]
    token: LeaseToken,
    #[serde(serialize_with = "as_text")]
    pushed_at: Timestamp,
    #[serde(serialize_with = "as_optional_text")]
    deadline: Option<Timestamp>,
    time_budget_ms: u64,
    #[serde(serialize_with = "as_object")]
    headers: &'a [(String, String)],
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

fn as_text<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<S: Serializer>(value: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// An object has each name once: the first one counts, as everywhere.
fn as_object<S: Serializer>(headers: &&[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let mut seen = HashSet::new();
    for (name, value) in headers.iter().filter(|(name, _)| seen.insert(name.as_str())) {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// Appends the line for a message.
pub(super) fn write_line(ctx: &Context, line: &mut Vec<u8>) {
    let message = ctx.message();
    let text = std::str::from_utf8(&message.payload).ok();
    let request = Request {
        id: message.id,
        queue: message.queue.as_str(),
        message_type: message.message_type.as_ref().map(MessageType::as_str),
        stream: message.stream.as_ref().map(StreamKey::as_str),
        key: message.key.as_ref().map(Key::as_str),
        attempt: ctx.attempt(),
        failures: ctx.counters().failures,
        last_attempt: ctx.is_last_attempt(),
        stages: stage_names(ctx.stages()),
        cause: ctx.cause(),
        suspect: ctx.is_suspect(),
        token: ctx.token(),
        pushed_at: message.pushed_at,
        deadline: message.deadline_at,
        time_budget_ms: u64::try_from(ctx.remaining().as_millis()).unwrap_or(u64::MAX),
        headers: &message.headers,
        payload: text,
        payload_base64: text.is_none().then(|| STANDARD.encode(&message.payload)),
    };
    // Writing plain data to memory cannot fail.
    let _ = serde_json::to_writer(&mut *line, &request);
    line.push(b'\n');
}

/// An answer as a program writes it.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default)]
    ok: Option<bool>,
    #[serde(default, borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    code: Option<serde_json::Value>,
    #[serde(default)]
    retry_after: Option<Wait>,
    #[serde(default)]
    stages: StageList,
    #[serde(default)]
    defer: Option<Wait>,
    #[serde(default, borrow)]
    output: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Addressed<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// Whose answer a line is. The error says what is wrong with a line that is no answer at all.
pub(super) fn addressee(line: &[u8]) -> Result<MessageId, String> {
    let told = |problem: &str| format!("{:?} ({problem})", first_line(&String::from_utf8_lossy(line), 200));
    let Addressed { id } = serde_json::from_slice(line).map_err(|error| told(&error.to_string()))?;
    id.parse().map_err(|error| told(&format!("{error}")))
}

/// What a line says about its message. A mistake in it is that message's failure, and no one else's.
pub(super) fn judge(ctx: &Context, line: &[u8]) -> Answer {
    let answer = serde_json::from_slice::<Response<'_>>(line).map_err(|error| error.to_string());
    answer.and_then(|response| response.answer(ctx)).unwrap_or_else(|problem| {
        let shown = first_line(&String::from_utf8_lossy(line), 200);
        let text = format!("the program's answer {shown:?} cannot be read: {problem}");
        Answer::Verdict(Verdict::retry(Failure::unknown(text)))
    })
}

impl Response<'_> {
    fn answer(self, ctx: &Context) -> Result<Answer, String> {
        if let Some(output) = &self.output {
            ctx.note_output(output.as_bytes());
        }
        let stages = self.stages.0;
        let answer = match (self.ok, &self.error, self.defer) {
            (Some(true), None, None) => Answer::done(),
            (None | Some(false), None, Some(wait)) => Answer::Verdict(Verdict::Defer(wait.0)),
            (None | Some(false), Some(_), None) => self.failed()?,
            (Some(false), None, None) => Answer::Raw(RawError {
                text: "the program answered \"ok\": false and gave no \"error\"".to_owned(),
                retry_after: self.retry_after.map(|wait| wait.0),
                ..RawError::default()
            }),
            _ => return Err("it needs one of \"ok\": true, \"error\" and \"defer\"".to_owned()),
        };
        ctx.finish_stage(stages);
        Ok(answer)
    }

    /// With a kind the program has judged; without one the queue's rules do.
    fn failed(self) -> Result<Answer, String> {
        let told = |error: sickbay_core::failure::UnknownWord| error.to_string();
        let kind = self.kind.as_deref().map(str::parse::<Kind>).transpose().map_err(told)?;
        let reason = self.reason.as_deref().map(str::parse::<Reason>).transpose().map_err(told)?;
        let code = self.code.map(|code| match code {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        });
        let (text, retry_after) =
            (self.error.unwrap_or_default().into_owned(), self.retry_after.map(|wait| wait.0));
        let Some(kind) = kind else {
            return Ok(Answer::Raw(RawError { text, code, reason, retry_after, ..RawError::default() }));
        };
        let usual = match kind {
            Kind::Transient => Reason::DependencyFailure,
            Kind::Poison | Kind::Unknown => Reason::HandlerException,
        };
        let mut failure = Failure::new(kind, reason.unwrap_or(usual), text);
        (failure.code, failure.retry_after) = (code, retry_after);
        let failed = Failed::from(failure);
        Ok(Answer::Verdict(if kind == Kind::Poison {
            Verdict::Poison(failed)
        } else {
            Verdict::Retry(failed)
        }))
    }
}
