//! Durations as people write them: `"30s"`, `"1h30m"`, `"500ms"`, or a number of seconds.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// How long to wait, as a handler says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Duration);

/// Nobody means to wait longer: 366 days.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

const UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

fn refuse(text: impl fmt::Display) -> String {
    format!(
        "{text} is no duration; write \"30s\", \"500ms\", \"1h30m\" or a number of seconds, at most 366 days"
    )
}

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if let Ok(seconds) = rest.parse() {
        return from_seconds(seconds);
    }
    let mut millis = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let length = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(length);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = behind.trim_start();
    }
    (!text.trim().is_empty()).then(|| Duration::from_millis(millis)).filter(|wait| *wait <= LONGEST)
}

fn from_seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| *wait <= LONGEST)
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = Wait;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"30s\" or a number of seconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Wait, E> {
        let shown = || refuse(format_args!("{:?}", text.chars().take(40).collect::<String>()));
        parse(text).map(Wait).ok_or_else(|| E::custom(shown()))
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Wait, E> {
        from_seconds(seconds).map(Wait).ok_or_else(|| E::custom(refuse(seconds)))
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Wait, E> {
        self.visit_f64(seconds as f64)
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Wait, E> {
        self.visit_f64(seconds as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let read = |json: &str| serde_json::from_str::<Wait>(json).map(|wait| wait.0.as_millis());
        for (json, millis) in [
            ("\"30s\"", 30_000),
            ("\"500ms\"", 500),
            ("\"1h30m\"", 5_400_000),
            ("\" 2m 5s \"", 125_000),
            ("\"1d\"", 86_400_000),
            ("\"90\"", 90_000),
            ("90", 90_000),
            ("1.5", 1500),
            ("0", 0),
        ] {
            assert_eq!(read(json).unwrap(), millis, "{json}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_by_name() {
        for json in [
            "\"soon\"",
            "\"\"",
            "\"-5s\"",
            "-5",
            "\"5 parsecs\"",
            "1e300",
            "\"99999999999999999999s\"",
            "\"s\"",
            "\"inf\"",
            "\"1000d\"",
        ] {
            let error = serde_json::from_str::<Wait>(json).unwrap_err().to_string();
            assert!(error.contains("is no duration; write \"30s\""), "{json}: {error}");
        }
    }
}
