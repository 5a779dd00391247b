//! Rules that can never have their say.

use super::pattern::Pattern;
use super::raw::lower;
use super::rule::Rule;

/// Pairs `(i, j)`, counting from 0: rule `j` never decides, because the earlier rule `i` matches
/// whenever `j` does. Each `j` is named once, with the first such `i`.
///
/// It errs on the side of silence: two different regular expressions are never compared, nor are the
/// many rules that cover another only together.
pub fn unreachable_rules(rules: &[Rule]) -> Vec<(usize, usize)> {
    let covering = |j: usize| (0..j).find(|i| covers(&rules[*i], &rules[j]));
    (1..rules.len()).filter_map(|j| covering(j).map(|i| (i, j))).collect()
}

/// True if each condition of `earlier` follows from one of `later`'s.
fn covers(earlier: &Rule, later: &Rule) -> bool {
    covers_by(earlier.text.as_deref(), later.text.as_deref(), |part, whole| {
        lower(whole).contains(lower(part).as_ref())
    }) && covers_by(earlier.regex.as_deref(), later.regex.as_deref(), |a, b| a == b)
        && covers_by(earlier.exit_code, later.exit_code, |a, b| a == b)
        && covers_by(earlier.http_status, later.http_status, super::status::StatusMatch::covers)
        && covers_by(earlier.code.as_deref(), later.code.as_deref(), by_pattern(Pattern::covers_any_case))
        && covers_by(
            earlier.message_type.as_deref(),
            later.message_type.as_deref(),
            by_pattern(Pattern::covers),
        )
        && covers_by(earlier.reason, later.reason, |a, b| a == b)
}

/// No condition follows from anything; a condition follows only from one of its own sort.
fn covers_by<T>(earlier: Option<T>, later: Option<T>, follows: impl Fn(T, T) -> bool) -> bool {
    match (earlier, later) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(earlier), Some(later)) => follows(earlier, later),
    }
}

fn by_pattern(covers: fn(&Pattern, &Pattern) -> bool) -> impl Fn(&str, &str) -> bool {
    move |earlier, later| match (Pattern::parse(earlier), Pattern::parse(later)) {
        (Ok(earlier), Ok(later)) => covers(&earlier, &later),
        _ => false,
    }
}
