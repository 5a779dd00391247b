//! The door: what every store checks, cleans and says in the same way.

use sickbay_core::classify::Classifier;
use sickbay_core::clock::Timestamp;
use sickbay_core::failure::{Failure, Kind, Reason};
use sickbay_core::id::IdPrefix;
use sickbay_core::message::{Message, Status};
use sickbay_core::quarantine::{Attempt, AttemptEnd};
use sickbay_core::signature::{Grouping, Signature, Subject};
use sickbay_core::text;
use sickbay_core::{ErrorKind, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, StoreError};
use xxhash_rust::xxh3::xxh3_64;

/// The most characters of an error that a row of a list shows.
pub const FIRST_LINE_CHARACTERS_MAX: usize = 300;
/// The most numbers that an id prefix may name before it is called too short.
pub const CANDIDATES_MAX: u64 = 10_000;

/// Why a dead letter whose bytes changed is not sent back.
pub const DAMAGED: &str = "its stored bytes are damaged; they are not the bytes that were pushed";

/// How long after its last claim a process still counts as working on a queue (rule 18).
pub const WORKS_ON: std::time::Duration = std::time::Duration::from_secs(60);

/// How large what is pushed may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Defaults to 16 MiB.
    pub payload_bytes_max: usize,
    /// Names and values together. Defaults to 64 KiB.
    pub headers_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes_max: 16 << 20, headers_bytes_max: 64 << 10 }
    }
}

impl Limits {
    /// Refuses a message that is too large (`SB0002`, `SB0003`).
    pub fn check(&self, message: &NewMessage) -> Result<(), StoreError> {
        self.check_payload(&message.payload)?;
        let bytes: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > self.headers_bytes_max {
            let text =
                format!("the headers have {bytes} bytes; at most {} are allowed", self.headers_bytes_max);
            return Err(StoreError::new(ErrorKind::Invalid, "SB0003", text));
        }
        Ok(())
    }

    /// Refuses a payload that is too large (`SB0002`).
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), StoreError> {
        let (bytes, max) = (payload.len(), self.payload_bytes_max);
        if bytes > max {
            let text = format!("the payload has {bytes} bytes; at most {max} are allowed");
            return Err(StoreError::new(ErrorKind::Invalid, "SB0002", text));
        }
        Ok(())
    }
}

/// Every number that messages can have was given (`SB0004`).
pub fn numbers_spent() -> StoreError {
    StoreError::new(ErrorKind::Full, "SB0004", "the store has numbered as many messages as it can")
}

/// A queue that was never defined (`SB0001`), with the known name that looks most like it.
pub fn unknown_queue<'a>(queue: &QueueName, known: impl IntoIterator<Item = &'a str>) -> StoreError {
    let nearest = known.into_iter().min_by_key(|name| distance(name, queue.as_str()));
    let hint = nearest.map_or_else(
        || "; no queue is defined yet".to_owned(),
        |name| format!("; the nearest name is {name:?}"),
    );
    StoreError::new(ErrorKind::NotFound, "SB0001", format!("there is no queue {:?}{hint}", queue.as_str()))
}

/// How many letters must be inserted, removed or changed to make `a` into `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Several messages begin with the given prefix (`SB0010`).
pub fn ambiguous_prefix(first: MessageId, second: MessageId) -> StoreError {
    let text =
        format!("several messages begin like this, {first} and {second} among them; give more characters");
    StoreError::new(ErrorKind::Conflict, "SB0010", text)
}

/// Refuses a prefix that names too many numbers to look at (`SB0011`).
pub fn check_prefix(prefix: IdPrefix, last: u64) -> Result<(), StoreError> {
    if prefix.candidates(last) <= CANDIDATES_MAX {
        return Ok(());
    }
    let text = "so short a prefix may mean more than 10,000 messages; give more characters";
    Err(StoreError::new(ErrorKind::Invalid, "SB0011", text))
}

/// The store was closed (`SB0013`).
pub fn closed() -> StoreError {
    StoreError::new(ErrorKind::Stop, "SB0013", "the store is closed")
}

/// An effect that another store's constructor made (`SB0015`).
pub fn foreign_effect() -> StoreError {
    StoreError::new(ErrorKind::Invalid, "SB0015", "the effect was made for another store")
}

/// Refuses a policy that cannot be applied (`SB0017`).
pub fn check_policy(policy: &QueuePolicy) -> Result<(), StoreError> {
    let wrong = |text: String| Err(StoreError::new(ErrorKind::Invalid, "SB0017", text));
    let retries = std::iter::once(&policy.retry).chain(policy.overrides.iter().map(|o| &o.retry));
    for retry in retries {
        if !(0.0..=1.0).contains(&retry.jitter) {
            return wrong(format!("a jitter of {} is not between 0 and 1", retry.jitter));
        }
    }
    Classifier::new(&policy.classification).map_or_else(|error| wrong(error.to_string()), |_| Ok(()))
}

/// A failure as it is stored: every text in it cleaned and cut.
pub fn clean(failure: Failure) -> Failure {
    Failure {
        error: text::clean_error(&failure.error),
        code: failure.code.map(|code| text::clean_error(&code)),
        schema_path: failure.schema_path.map(|path| text::clean_error(&path)),
        ..failure
    }
}

/// What a handler printed as it is stored: the end of it, cleaned.
pub fn clean_output(output: &str) -> String {
    text::clean_output(output.as_bytes())
}

/// What a row of a list shows of an error that was cleaned.
pub fn first_line(error: &str) -> String {
    text::first_line(error, FIRST_LINE_CHARACTERS_MAX)
}

/// How much of an error is kept where lists are searched, at least.
const SEARCHED_BYTES: usize = 2048;

/// The beginning of an error, as much of it as every list can be searched for.
pub fn searched(error: &str) -> &str {
    let end = (0..=SEARCHED_BYTES.min(error.len())).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    &error[..end]
}

/// What is kept beside a payload to see that it has not changed.
pub fn checksum(payload: &[u8]) -> u64 {
    xxh3_64(payload)
}

/// The failure of a message whose worker died and that is tried again.
pub fn crashed(evidence: &str) -> Failure {
    Failure::new(Kind::Unknown, Reason::Crash, text::clean_error(evidence))
}

/// The failure of a message whose bytes changed in the store.
pub fn corrupt() -> Failure {
    Failure::new(Kind::Poison, Reason::Corrupt, "the stored bytes are not the bytes that were pushed")
}

/// The failure of a message that a person set aside.
pub fn operator(why: &str) -> Failure {
    Failure::new(Kind::Poison, Reason::Operator, text::clean_error(why))
}

/// The row of the history that says that a message was sent back.
pub fn replayed(number: u32, now: Timestamp) -> Attempt {
    acted(AttemptEnd::Replayed, number, now)
}

/// The row of the history that says that a message was given its attempts back.
pub fn reset(number: u32, now: Timestamp) -> Attempt {
    acted(AttemptEnd::Reset, number, now)
}

/// Why a message that was never tried cannot be given its attempts back.
pub fn nothing_to_reset(status: Status) -> String {
    format!("it has used no attempt (it is {})", status.as_str())
}

fn acted(end: AttemptEnd, number: u32, now: Timestamp) -> Attempt {
    Attempt {
        number,
        started_at: now,
        ended_at: now,
        worker: String::new(),
        end,
        failure: None,
        signature: None,
        ran: None,
        output: None,
    }
}

/// Where a waiting message is counted (rule 30).
pub fn waiting_status(failures: u32, due_at: Timestamp, now: Timestamp) -> Status {
    match (due_at > now, failures) {
        (false, _) => Status::Pending,
        (true, 0) => Status::Scheduled,
        (true, _) => Status::Failed,
    }
}

/// What a person asks to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send a dead letter back.
    Replay,
    /// Set a live message aside.
    DeadLetter,
    /// Discard a dead letter.
    Discard,
    /// Bring a discarded one back.
    Restore,
    /// Remove what waits.
    Cancel,
    /// Make due what waits for its time.
    Hasten,
    /// Give what waits its attempts back.
    Reset,
}

impl Act {
    /// Why a message of this status does not allow the act; `None` if it does.
    pub fn refusal(self, status: Status) -> Option<String> {
        use Status::{Active, Completed, Dead, Discarded, Failed, Pending, Scheduled};
        let why = match (self, status) {
            (Self::Replay | Self::Discard, Dead)
            | (Self::DeadLetter, Pending | Scheduled | Failed | Active)
            | (Self::Restore, Discarded)
            | (Self::Cancel | Self::Reset, Pending | Scheduled | Failed)
            | (Self::Hasten, Scheduled | Failed) => return None,
            (Self::Replay, Discarded) => "it was discarded; restore it first",
            (Self::Discard, Discarded) => "it is discarded already",
            (Self::DeadLetter, Dead | Discarded) => "it is in quarantine already",
            (Self::Cancel, Active) => "a worker holds it; dead-letter it to take it away",
            (Self::Cancel, Dead) => "it is in quarantine; discard it instead",
            (Self::Hasten, Pending) => "it is due already",
            (Self::Hasten | Self::Reset, Active) => "a worker holds it",
            (Self::Reset, Dead) => "it is in quarantine; replay it, which gives its attempts back too",
            (_, Completed) => "it is done",
            (_, Pending | Scheduled | Failed | Active) => "it is not in quarantine",
            (Self::Restore, Dead) => "it was not discarded",
            (Self::Cancel | Self::Hasten | Self::Reset, Dead | Discarded) => "it is in quarantine",
        };
        Some(format!("{why} (it is {})", status.as_str()))
    }
}

/// What failures of this kind have in common, where the settlement did not say.
pub fn signature(message: &Message, failure: &Failure, policy: &QueuePolicy) -> Signature {
    Grouping::new(&policy.grouping).signature(&Subject {
        queue: message.queue.as_str(),
        message_type: message.message_type.as_ref().map(MessageType::as_str),
        reason: failure.reason.as_str(),
        text: &failure.error,
        schema_path: failure.schema_path.as_deref(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_queue_is_told_the_nearest_name() {
        let error = unknown_queue(&QueueName::new("ordrs").unwrap(), ["mails", "orders", "o"]);
        assert_eq!(error.to_string(), r#"there is no queue "ordrs"; the nearest name is "orders" (SB0001)"#);
        let error = unknown_queue(&QueueName::new("ordrs").unwrap(), []);
        assert!(error.to_string().contains("no queue is defined yet"));
    }

    #[test]
    fn limits_refuse_what_is_one_byte_too_large() {
        let limits = Limits { payload_bytes_max: 3, headers_bytes_max: 4 };
        let message = |payload: &'static str| NewMessage::new(QueueName::new("q").unwrap(), payload);
        assert!(limits.check(&message("abc").header("ab", "cd")).is_ok());
        assert_eq!(limits.check(&message("abcd")).unwrap_err().code(), "SB0002");
        assert_eq!(limits.check(&message("abc").header("ab", "cde")).unwrap_err().code(), "SB0003");
    }

    #[test]
    fn every_refusal_says_which_status_it_met() {
        assert_eq!(Act::Replay.refusal(Status::Dead), None);
        assert_eq!(Act::Replay.refusal(Status::Pending).unwrap(), "it is not in quarantine (it is pending)");
        assert_eq!(Act::Hasten.refusal(Status::Pending).unwrap(), "it is due already (it is pending)");
    }
}
