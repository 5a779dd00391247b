//! Points in time as RFC 3339 text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sickbay_core::Timestamp;

const DAY_MILLIS: i128 = 86_400_000;

/// A time that travels as RFC 3339 text, to the millisecond and in UTC. Years beyond 9999, which a message
/// that never comes due has, are written with all their digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

/// Why a text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time; write it like 2026-11-15T09:30:00Z or 2026-11-15T09:30:00.250+01:00")]
pub struct InvalidTime(String);

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Time {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let millis = parse(text).and_then(|millis| i64::try_from(millis).ok());
        let time = millis.map(|millis| Self(Timestamp::from_millis(millis)));
        time.ok_or_else(|| InvalidTime(text.chars().take(60).collect()))
    }
}

fn parse(text: &str) -> Option<i128> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (date, sign) = date.strip_prefix('-').map_or((date, 1), |date| (date, -1));
    let mut parts = date.split('-');
    // Years before the first are printed with their sign in place of a digit.
    let digits = if sign < 0 { 3 } else { 4 };
    let year: i64 = sign * number(parts.next()?, digits..=12)?;
    let (month, day) = (number(parts.next()?, 2..=2)?, number(parts.next()?, 2..=2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    let (clock, offset) = split_offset(rest)?;
    let (clock, fraction) = clock.split_once('.').map_or((clock, "0"), |(clock, fraction)| (clock, fraction));
    let mut parts = clock.split(':');
    let hour = number(parts.next()?, 2..=2)?;
    let minute = number(parts.next()?, 2..=2)?;
    let second = number(parts.next()?, 2..=2)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day = (hour * 3600 + minute * 60 + second) * 1000 + millis_of(fraction)?;
    let days = i128::from(days_from_civil(year, month, day));
    Some(days * DAY_MILLIS + i128::from(of_day) - i128::from(offset) * 60_000)
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// The first three digits of a fraction of a second.
fn millis_of(fraction: &str) -> Option<i64> {
    if fraction.is_empty() || fraction.len() > 30 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digit = |at: usize| fraction.as_bytes().get(at).map_or(0, |byte| i64::from(byte - b'0'));
    Some(digit(0) * 100 + digit(1) * 10 + digit(2))
}

/// The clock time, and the minutes that it is ahead of UTC.
fn split_offset(rest: &str) -> Option<(&str, i64)> {
    if let Some(clock) = rest.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = rest.rfind(['+', '-'])?;
    let (clock, offset) = rest.split_at(at);
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = offset[1..].split_once(':')?;
    let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
    if hours > 23 || minutes > 59 { None } else { Some((clock, sign * (hours * 60 + minutes))) }
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A date of the proleptic Gregorian calendar to days since the epoch (Hinnant's algorithm).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let millis = [0, -1, 1_794_700_800_123, 951_782_400_000, -62_167_219_200_001, i64::MAX, i64::MIN];
        for millis in millis.into_iter().chain((0..4000).map(|n| n * 86_399_999_977)) {
            let time = Time(Timestamp::from_millis(millis));
            assert_eq!(time.to_string().parse(), Ok(time), "{time}");
        }
    }

    #[test]
    fn offsets_and_fractions_are_understood() {
        for text in
            ["2026-11-15T09:30:00.25Z", "2026-11-15t10:30:00.250999+01:00", "2026-11-15 00:00:00.250-09:30"]
        {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), "2026-11-15T09:30:00.250Z", "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-11-15",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T09:30:00",
            "26-11-15T09:30:00Z",
            "2026-11-15T09:30Z",
            "2026-11-15T09:30:00.Z",
            "2026-11-15T09:30:00+1:00",
            "999999999999-01-01T00:00:00Z",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
