//! Dead letters, and how to ask for them.

use serde::{Deserialize, Serialize};
use sickbay_core::decide::SetAside;
use sickbay_core::delivery::Counters;
use sickbay_core::failure::{Kind, Reason};
use sickbay_core::quarantine::{self, Page, PageRequest, QuarantineFilter};
use sickbay_core::signature::Signature;
use sickbay_core::{MessageId, MessageType, QueueName, StreamKey};

use super::{Problem, Time};

/// A dead letter as a row of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The message's identity.
    pub id: MessageId,
    /// The id's first characters.
    pub short: String,
    /// The queue it was in.
    pub queue: QueueName,
    /// Its type.
    #[serde(rename = "type")]
    pub message_type: Option<MessageType>,
    /// Its stream.
    pub stream: Option<StreamKey>,
    /// Why it was set aside.
    pub set_aside: SetAside,
    /// Whether trying again could have helped.
    pub kind: Kind,
    /// What went wrong last.
    pub reason: Reason,
    /// The last error's first line.
    pub error: String,
    /// What failures of this kind have in common.
    pub signature: Signature,
    /// What was counted in its last life.
    pub counters: Counters,
    /// When it was pushed.
    pub pushed_at: Time,
    /// When it failed first.
    pub first_failed_at: Time,
    /// When it failed last.
    pub last_failed_at: Time,
    /// When it was set aside.
    pub quarantined_at: Time,
    /// When it was discarded, if it was.
    pub discarded_at: Option<Time>,
    /// Size of its payload.
    pub payload_bytes: u64,
}

impl From<quarantine::DeadLetter> for DeadLetter {
    fn from(dead: quarantine::DeadLetter) -> Self {
        Self {
            id: dead.id,
            short: dead.id.short(),
            queue: dead.queue,
            message_type: dead.message_type,
            stream: dead.stream,
            set_aside: dead.set_aside,
            kind: dead.kind,
            reason: dead.reason,
            error: dead.error,
            signature: dead.signature,
            counters: dead.counters,
            pushed_at: dead.pushed_at.into(),
            first_failed_at: dead.first_failed_at.into(),
            last_failed_at: dead.last_failed_at.into(),
            quarantined_at: dead.quarantined_at.into(),
            discarded_at: dead.discarded_at.map(Into::into),
            payload_bytes: dead.payload_bytes,
        }
    }
}

impl From<DeadLetter> for quarantine::DeadLetter {
    fn from(dead: DeadLetter) -> Self {
        Self {
            id: dead.id,
            queue: dead.queue,
            message_type: dead.message_type,
            stream: dead.stream,
            set_aside: dead.set_aside,
            kind: dead.kind,
            reason: dead.reason,
            error: dead.error,
            signature: dead.signature,
            counters: dead.counters,
            pushed_at: dead.pushed_at.into(),
            first_failed_at: dead.first_failed_at.into(),
            last_failed_at: dead.last_failed_at.into(),
            quarantined_at: dead.quarantined_at.into(),
            discarded_at: dead.discarded_at.map(Into::into),
            payload_bytes: dead.payload_bytes,
        }
    }
}

/// Which dead letters are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Only of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Only of this type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageType>,
    /// Only with this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Only of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Only with this signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Only of this stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamKey>,
    /// Only where the last error contains this text, in upper or lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Only what was quarantined at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Only what was quarantined before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The discarded ones instead of those that wait.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub discarded: bool,
}

impl Filter {
    /// True if it asks for everything; an empty text is found in every error.
    pub fn is_empty(&self) -> bool {
        let error = self.error.clone().filter(String::is_empty);
        *self == Self { discarded: self.discarded, error, ..Self::default() }
    }
}

impl From<QuarantineFilter> for Filter {
    fn from(filter: QuarantineFilter) -> Self {
        Self {
            queue: filter.queue,
            message_type: filter.message_type,
            reason: filter.reason,
            kind: filter.kind,
            signature: filter.signature,
            stream: filter.stream,
            error: filter.error_contains,
            since: filter.since.map(Into::into),
            until: filter.until.map(Into::into),
            discarded: filter.discarded,
        }
    }
}

impl From<Filter> for QuarantineFilter {
    fn from(filter: Filter) -> Self {
        Self {
            queue: filter.queue,
            message_type: filter.message_type,
            reason: filter.reason,
            kind: filter.kind,
            signature: filter.signature,
            stream: filter.stream,
            error_contains: filter.error,
            since: filter.since.map(Into::into),
            until: filter.until.map(Into::into),
            discarded: filter.discarded,
        }
    }
}

/// A filter and a part of what it finds, as the query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Which ones.
    pub filter: Filter,
    /// At most so many rows. Defaults to 100, at most 10,000.
    pub rows: Option<u32>,
    /// What the last page said; leave it out to begin.
    pub after: Option<u64>,
    /// Say how many there are in all.
    pub count: bool,
}

impl Query {
    /// Everything that the filter finds, from the first page on.
    pub fn new(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// The part that is asked for.
    pub(crate) fn page(&self) -> PageRequest {
        let rows_max = self.rows.unwrap_or(PageRequest::default().rows_max);
        PageRequest { rows_max: rows_max.min(super::super::BATCH_MAX as u32), after: self.after }
    }
}

/// A page of dead letters, newest quarantined first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetters {
    /// The rows.
    pub rows: Vec<DeadLetter>,
    /// Hand this in as `after` to go on; nothing at the end.
    pub next: Option<String>,
    /// How many there are in all, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl DeadLetters {
    pub(crate) fn new(page: Page<quarantine::DeadLetter>, count: Option<u64>) -> Self {
        let rows = page.rows.into_iter().map(Into::into).collect();
        Self { rows, next: page.next.map(|next| next.to_string()), count }
    }
}

/// Which dead letters something is done to: these, or those a filter finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bulk {
    /// These, by their whole ids or unique beginnings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Those that it finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Really all: needed where the filter is empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Replay: to this queue instead of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Discard: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What became of a bulk act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkAnswer {
    /// Done to so many.
    pub done: u64,
    /// So many are in a state that does not allow it.
    pub refused: u64,
    /// So many do not exist.
    pub not_found: u64,
    /// The first hundred to which it was not done.
    pub left_out: Vec<LeftOut>,
}

/// A message to which an act was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The id as it was given.
    pub id: String,
    /// Why.
    pub why: String,
}

impl Query {
    /// From the query of an address.
    pub(crate) fn read(text: &str) -> Result<Self, Problem> {
        let wrong = |error: String| crate::extract::wrong_address("the query", error);
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut query = Self::default();
        let mut rest = Vec::new();
        for (name, value) in pairs {
            let number = || value.parse::<u64>().map_err(|_| wrong(format!("{name:?} takes a number")));
            match name.as_str() {
                "rows" => query.rows = Some(u32::try_from(number()?).unwrap_or(u32::MAX)),
                "after" => query.after = Some(number()?),
                "count" => {
                    query.count =
                        value.parse().map_err(|_| wrong(format!("{name:?} takes true or false")))?;
                }
                _ => rest.push((name, value)),
            }
        }
        let rest = serde_urlencoded::to_string(rest).map_err(|error| wrong(error.to_string()))?;
        query.filter = serde_urlencoded::from_str(&rest).map_err(|error| wrong(error.to_string()))?;
        Ok(query)
    }

    /// As the query of an address.
    pub(crate) fn write(&self) -> Result<String, Problem> {
        let mut text = serde_urlencoded::to_string(&self.filter)
            .map_err(|error| crate::extract::wrong_address("the filter", error))?;
        let mut add = |name: &str, value: String| {
            let separator = if text.is_empty() { "" } else { "&" };
            text.push_str(&format!("{separator}{name}={value}"));
        };
        if let Some(rows) = self.rows {
            add("rows", rows.to_string());
        }
        if let Some(after) = self.after {
            add("after", after.to_string());
        }
        if self.count {
            add("count", "true".to_owned());
        }
        Ok(text)
    }
}
