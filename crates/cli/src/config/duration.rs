//! Durations as people write them: "500ms", "30s", "5m", "1h30m", "2d".

use std::time::Duration;

/// The longest duration that is accepted: a hundred years.
const DAYS_MAX: u64 = 36_525;

/// The units, longest first, in milliseconds.
const UNITS: &[(&str, u64)] =
    &[("w", 7 * 86_400_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// What people write instead of our units.
const OTHER_UNITS: &[(&str, &str)] = &[
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("hr", "h"),
    ("hrs", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
    ("week", "w"),
    ("weeks", "w"),
    ("millis", "ms"),
    ("msec", "ms"),
];

/// Reads a duration: whole numbers, each with a unit, longest unit first. The error says what is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut rest = trimmed;
    let mut total_ms: u64 = 0;
    let mut smaller_than = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit());
        let (unit, after) = split(after, |c| !c.is_ascii_digit());
        let unit_ms = unit_ms(number, unit.trim())?;
        if unit_ms >= smaller_than {
            return Err("its units are not in order, longest first".to_owned());
        }
        smaller_than = unit_ms;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
        total_ms = part
            .and_then(|part| total_ms.checked_add(part))
            .filter(|total| *total <= DAYS_MAX * 86_400_000)
            .ok_or("it is longer than a hundred years")?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total_ms))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn unit_ms(number: &str, unit: &str) -> Result<u64, String> {
    if number.is_empty() {
        return Err(if unit.starts_with('-') { "it is negative" } else { "it has no number" }.to_owned());
    }
    if unit.is_empty() {
        return Err(format!("{number} has no unit"));
    }
    if unit.starts_with(['.', ',']) {
        return Err("it has a fraction; write 1h30m for one and a half hours".to_owned());
    }
    if let Some((_, ms)) = UNITS.iter().find(|(known, _)| *known == unit) {
        return Ok(*ms);
    }
    let other = OTHER_UNITS.iter().find(|(other, _)| other.eq_ignore_ascii_case(unit));
    let unit: String = unit.chars().take(20).collect();
    Err(other.map_or_else(
        || format!("`{unit}` is no unit; there are ms, s, m, h, d and w"),
        |(_, ours)| format!("`{unit}` is no unit; write {number}{ours}"),
    ))
}

/// Writes a duration as [`parse_duration`] reads it, to the millisecond.
pub fn show_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut shown = String::new();
    // Weeks are read but not written: "90d" says more than "12w6d".
    for (unit, unit_ms) in &UNITS[1..] {
        let number = rest / unit_ms;
        rest %= unit_ms;
        if number > 0 {
            shown.push_str(&format!("{number}{unit}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("90d", 7_776_000_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            let read = parse_duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(ms), "{text}");
            assert_eq!(show_duration(read), text);
        }
        assert_eq!(parse_duration(" 1h 30m "), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("2w"), Ok(Duration::from_secs(14 * 86_400)));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_what_is_wrong() {
        for (text, problem) in [
            ("", "it is empty"),
            ("30", "30 has no unit"),
            ("s", "it has no number"),
            ("-5s", "it is negative"),
            ("1.5h", "it has a fraction; write 1h30m for one and a half hours"),
            ("5min", "`min` is no unit; write 5m"),
            ("5x", "`x` is no unit; there are ms, s, m, h, d and w"),
            ("5m1h", "its units are not in order, longest first"),
            ("1s1s", "its units are not in order, longest first"),
            ("99999999999999999999s", "it is longer than a hundred years"),
            ("40000d", "it is longer than a hundred years"),
        ] {
            assert_eq!(parse_duration(text), Err(problem.to_owned()), "{text:?}");
        }
    }
}
