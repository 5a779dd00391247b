//! The name that was probably meant.

/// The choice that looks most like `given`, if any does.
pub(super) fn nearest<'c>(given: &str, choices: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let given = plain(given);
    let near = |choice: &'c str| {
        let other = plain(choice);
        let distance = strsim::damerau_levenshtein(&given, &other);
        let most = (given.chars().count().max(other.chars().count()) / 3).clamp(1, 4);
        let begins = given.len() >= 3 && (other.starts_with(&given) || given.starts_with(&other));
        (distance <= most || begins).then_some((distance, choice))
    };
    choices.into_iter().filter_map(near).min_by_key(|(distance, _)| *distance).map(|(_, choice)| choice)
}

/// Case, dashes and underscores are what people mix up most.
fn plain(word: &str) -> String {
    word.chars().take(100).filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// "`a`, `b` or `c`".
pub(super) fn list<'c>(choices: impl IntoIterator<Item = &'c str>) -> String {
    let quoted: Vec<String> = choices.into_iter().map(|choice| format!("`{choice}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// "did you mean `attempts`?", or else what there is to choose from.
pub(super) fn suggestion(given: &str, choices: &[&str]) -> String {
    let all = || format!("choose {}", list(choices.iter().copied()));
    nearest(given, choices.iter().copied()).map_or_else(all, |near| format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let words = ["attempts", "cooldown", "backoff", "cap", "jitter"];
        for (given, meant) in [
            ("attempt", Some("attempts")),
            ("atempts", Some("attempts")),
            ("cool_down", Some("cooldown")),
            ("back-off", Some("backoff")),
            ("jiter", Some("jitter")),
            ("Cap", Some("cap")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, words), meant, "{given:?}");
        }
    }
}
