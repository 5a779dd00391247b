//! "Did you mean": the known word nearest to what was typed.

/// The candidate at most two edits away from `typed` with the fewest edits, if there is one.
pub(crate) fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (distance(typed, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= 2 && *edits < candidate.len())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// The number of letters to insert, remove or replace to turn one word into the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn the_distance_counts_single_letters() {
        assert_eq!(distance("test", "test"), 0);
        assert_eq!(distance("tst", "test"), 1);
        assert_eq!(distance("tets", "test"), 2);
        assert_eq!(distance("", "ci"), 2);
    }

    #[test]
    fn nothing_is_suggested_for_a_word_that_is_far_from_all() {
        assert_eq!(nearest("release", ["test", "tidy", "ci"].into_iter()), None);
        assert_eq!(nearest("x", ["ci"].into_iter()), None);
    }
}
