//! What a handler may say beyond "done" and "failed":
//! `{"sickbay": {"retry_after": "30s", "stages": ["Stored"], "defer": "10s"}}`.

use serde::Deserialize;
use serde::de::{self, Deserializer};
use sickbay_core::{Failure, Stages, Verdict};

use super::wait::Wait;
use crate::answer::Answer;

/// What the handler said.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Said {
    /// Not to be tried again before this long.
    #[serde(default)]
    pub(crate) retry_after: Option<Wait>,
    /// Stages that this attempt finished.
    #[serde(default)]
    pub(crate) stages: StageList,
    /// Not now: to be delivered again after this long, uncounted.
    #[serde(default)]
    pub(crate) defer: Option<Wait>,
}

#[derive(Deserialize)]
struct Envelope {
    sickbay: Option<serde_json::Value>,
}

/// Reads an object that has a key "sickbay"; `None` if it is anything else.
pub(crate) fn read_object(bytes: &[u8]) -> Option<Result<Said, String>> {
    let bytes = bytes.trim_ascii();
    if !bytes.starts_with(b"{") || !bytes.ends_with(b"}") {
        return None;
    }
    let said = serde_json::from_slice::<Envelope>(bytes).ok()?.sickbay?;
    Some(serde_json::from_value(said).map_err(|error| error.to_string()))
}

/// The same from the last line of an output that says something.
#[cfg(feature = "exec")]
pub(crate) fn read_last_line(output: &[u8]) -> Option<Result<Said, String>> {
    read_object(output.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?)
}

/// The handler said it was done, and something else that nobody can read: that may have been a wish to
/// defer, so it is not done.
pub(crate) fn unreadable(problem: &str) -> Answer {
    let text = format!("the handler's verdict under \"sickbay\" cannot be read: {problem}");
    Answer::Verdict(Verdict::retry(Failure::unknown(text)))
}

/// Stages by their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageList(pub(crate) Stages);

impl<'de> Deserialize<'de> for StageList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let add = |stages: Stages, name: &String| match stage(name) {
            Some(stage) => Ok(stages.with(stage)),
            None => Err(de::Error::custom(format!(
                "{:?} is no stage; stages are Stored, EventStored, Published and Application0 to Application11",
                name.chars().take(40).collect::<String>()
            ))),
        };
        names.iter().try_fold(Stages::NONE, add).map(Self)
    }
}

fn stage(name: &str) -> Option<Stages> {
    let own = (0..12).filter_map(Stages::application);
    let known = [Stages::STORED, Stages::EVENT_STORED, Stages::PUBLISHED].into_iter().chain(own);
    known.into_iter().find(|stage| stage.to_string().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_object_with_the_key_sickbay_is_a_verdict_and_nothing_else_is() {
        let said =
            read_object(br#" {"sickbay": {"retry_after": "30s", "stages": ["Stored", "application3"]}} "#);
        let stages = Stages::STORED.with(Stages::application(3).unwrap());
        let expected =
            Said { retry_after: Some(Wait(Duration::from_secs(30))), stages: StageList(stages), defer: None };
        assert_eq!(said, Some(Ok(expected)));
        for other in ["", "done", "{}", "[1]", r#"{"total": 7}"#, r#"{"sickbay": "#, r#"{"sickbay": null}"#] {
            assert_eq!(read_object(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_verdict_with_a_mistake_says_which() {
        let problem = |text: &str| read_object(text.as_bytes()).unwrap().unwrap_err();
        assert!(problem(r#"{"sickbay": {"retry-after": "3s"}}"#).contains("unknown field `retry-after`"));
        assert!(problem(r#"{"sickbay": {"defer": "soon"}}"#).contains("\"soon\" is no duration"));
        assert!(problem(r#"{"sickbay": {"stages": ["Failed"]}}"#).contains("\"Failed\" is no stage"));
    }

    #[cfg(feature = "exec")]
    #[test]
    fn only_the_last_line_of_an_output_counts() {
        let verdict = r#"{"sickbay": {"defer": 5}}"#;
        assert!(read_last_line(format!("working\n{verdict}\n\n").as_bytes()).is_some());
        assert!(read_last_line(format!("{verdict}\nworking\n").as_bytes()).is_none());
    }
}
