//! Durations as people write them: `30s`, `5m`, `1h30m`, `1.5s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECOND: u128 = 1_000_000_000;

/// The units that are printed, largest first, in nanoseconds.
const PRINTED: [(&str, u128); 7] = [
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A duration that travels as text and loses nothing on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no duration: {problem}; write 30s, 5m, 1h30m or 250ms")]
pub struct InvalidSpan {
    given: String,
    problem: String,
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, nanos) in PRINTED {
            if rest >= nanos {
                write!(f, "{}{unit}", rest / nanos)?;
                rest %= nanos;
            }
        }
        Ok(())
    }
}

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let wrong = |problem: String| InvalidSpan { given: text.chars().take(60).collect(), problem };
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        if rest.starts_with('-') {
            return Err(wrong("it is negative".to_owned()));
        }
        let mut total = 0u128;
        while !rest.is_empty() {
            let (number, after) = rest.split_at(rest.find(not_numeric).unwrap_or(rest.len()));
            let after = after.trim_start();
            let (unit, after) = after.split_at(after.find(not_a_letter).unwrap_or(after.len()));
            if number.is_empty() {
                return Err(wrong("a number is expected before each unit".to_owned()));
            }
            let nanos = unit_nanos(unit).map_err(wrong)?;
            let part = scaled(number, nanos).ok_or_else(|| wrong(format!("{number:?} is no number")))?;
            total = total.checked_add(part).ok_or_else(|| wrong("it is too long".to_owned()))?;
            rest = after.trim_start();
        }
        let (seconds, nanos) = (total / SECOND, (total % SECOND) as u32);
        match u64::try_from(seconds) {
            Ok(seconds) => Ok(Self(Duration::new(seconds, nanos))),
            Err(_) => Err(wrong("it is too long".to_owned())),
        }
    }
}

fn not_numeric(c: char) -> bool {
    !c.is_ascii_digit() && c != '.'
}

fn not_a_letter(c: char) -> bool {
    !c.is_alphabetic()
}

fn unit_nanos(unit: &str) -> Result<u128, String> {
    Ok(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => SECOND,
        "m" | "min" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "week" | "weeks" => 7 * 86_400 * SECOND,
        "" => return Err("its unit is missing".to_owned()),
        other => {
            let shown: String = other.chars().take(20).collect();
            return Err(format!("{shown:?} is no unit of time"));
        }
    })
}

/// `number` of a unit, in nanoseconds; what is smaller than one is cut off.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        total = total.checked_add(u128::from(digit - b'0').checked_mul(place)?)?;
    }
    Some(total)
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        for (text, millis) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30 min", 5_400_000),
            ("1.5s", 1_500),
            (".25s", 250),
            ("2 days", 172_800_000),
            ("1w", 604_800_000),
            ("250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
        assert_eq!("3µs".parse(), Ok(Span(Duration::from_micros(3))));
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        let spans = [0, 1, 999, 1_000_001, 61_000_000_000, 90_061_001_001_001].map(Duration::from_nanos);
        for duration in spans.into_iter().chain([Duration::MAX, Duration::from_secs(u64::MAX)]) {
            let text = Span(duration).to_string();
            assert_eq!(text.parse(), Ok(Span(duration)), "{text}");
        }
        assert_eq!(Span(Duration::from_secs(5_400)).to_string(), "1h30m");
        assert_eq!(Span(Duration::from_millis(1_500)).to_string(), "1s500ms");
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        for (text, word) in [
            ("30", "unit is missing"),
            ("", "empty"),
            ("s", "a number is expected"),
            ("-5s", "negative"),
            ("3 parsecs", "\"parsecs\" is no unit"),
            ("1.2.3s", "is no number"),
            (".s", "is no number"),
            ("5s!", "a number is expected"),
            ("99999999999999999999999d", "too long"),
            ("999999999999999999999999999999999999999999999999d", "is no number"),
        ] {
            let error = text.parse::<Span>().map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
