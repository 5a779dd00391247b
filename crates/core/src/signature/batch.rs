//! Signatures of many failures together: words that keep changing are volatile too.
//!
//! Two outlines that differ in one word may be two causes; twenty that differ in the same one are one
//! cause with a name in it. Evidence is counted per place, and a word that itself tells a cause (a state
//! in capitals, an exception, what follows `error` or `status`) is never merged.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Essence, Signature, Subject, fingerprint, normalise, words};

/// Words of an outline that is compared with others; a longer one is a dump.
const WORDS_MAX: usize = 48;

/// Rounds of merging: each can make one more place of an outline volatile.
const ROUNDS: usize = 3;

/// Different words in one place that make it volatile.
const PLAIN_WORDS_MIN: usize = 5;

/// The same where the words look like names in code or of machines.
const NAMES_MIN: usize = 3;

/// Words besides the merged one that outlines must share.
const SHARED_WORDS_MIN: usize = 2;

type Outline = Vec<String>;

pub(super) fn signatures<'a>(
    subjects: &[Subject<'a>],
    essence: impl Fn(&Subject<'a>) -> Essence,
) -> Vec<(Signature, String)> {
    let essences: Vec<Essence> = subjects.iter().map(essence).collect();
    let mut groups: BTreeMap<(&str, Option<&str>, &str), BTreeSet<&str>> = BTreeMap::new();
    for (subject, essence) in subjects.iter().zip(&essences) {
        if let Essence::Outline(outline) = essence {
            groups.entry(place(subject)).or_default().insert(outline);
        }
    }
    let merged: BTreeMap<_, _> =
        groups.into_iter().map(|(place, outlines)| (place, merge(&outlines))).collect();
    let answer = |(subject, essence): (&Subject<'a>, &Essence)| match essence {
        Essence::Outline(outline) => {
            match merged.get(&place(subject)).and_then(|merged| merged.get(outline.as_str())) {
                Some(merged) => {
                    let shown = merged.replace('*', "<val>").replace(" \n", "\n");
                    (fingerprint(subject, &Essence::Outline(merged.clone())), shown)
                }
                None => (fingerprint(subject, essence), normalise(subject.text)),
            }
        }
        Essence::SchemaPath(text) | Essence::Rule(text) => (fingerprint(subject, essence), text.clone()),
    };
    subjects.iter().zip(&essences).map(answer).collect()
}

fn place<'a>(subject: &Subject<'a>) -> (&'a str, Option<&'a str>, &'a str) {
    (subject.queue, subject.message_type, subject.reason)
}

/// For every outline that is merged with others, the outline they have in common.
fn merge<'o>(outlines: &BTreeSet<&'o str>) -> HashMap<&'o str, String> {
    let mut current: Vec<(&str, Outline)> = outlines
        .iter()
        .map(|outline| (*outline, words_of(outline)))
        .filter(|(_, words)| words.len() <= WORDS_MAX)
        .collect();
    let mut merged = HashMap::new();
    for _ in 0..ROUNDS {
        let patterns = accepted_patterns(&current);
        let mut changed = false;
        for (outline, words) in &mut current {
            let Some(pattern) = best_pattern(words, &patterns) else { continue };
            *words = pattern;
            merged.insert(*outline, words.join(" "));
            changed = true;
        }
        if !changed {
            break;
        }
    }
    merged
}

/// The words of the message; the calls below it stay together as one, so that they are never merged.
fn words_of(outline: &str) -> Outline {
    let calls = outline.find("\nat ").unwrap_or(outline.len());
    let mut words: Outline = outline[..calls].split(' ').map(str::to_owned).collect();
    if calls < outline.len() {
        words.push(outline[calls..].to_owned());
    }
    words
}

/// Patterns with one or two holes, and how many outlines they cover, if there is evidence enough.
fn accepted_patterns(outlines: &[(&str, Outline)]) -> HashMap<Outline, usize> {
    let mut seen: HashMap<Outline, Vec<BTreeSet<String>>> = HashMap::new();
    let distinct: BTreeSet<&Outline> = outlines.iter().map(|(_, words)| words).collect();
    for words in distinct {
        for holes in holes_of(words) {
            let values =
                seen.entry(with_holes(words, &holes)).or_insert_with(|| vec![BTreeSet::new(); holes.len()]);
            for (values, hole) in values.iter_mut().zip(&holes) {
                values.insert(words[*hole].clone());
            }
        }
    }
    seen.into_iter()
        .filter(|(pattern, values)| has_evidence(pattern, values))
        .map(|(pattern, values)| (pattern, values.iter().map(BTreeSet::len).min().unwrap_or(0)))
        .collect()
}

/// The places of an outline that may be volatile: any but the first, and pairs of names.
fn holes_of(words: &Outline) -> Vec<Vec<usize>> {
    let candidates: Vec<usize> = (1..words.len()).filter(|at| may_vary(words, *at)).collect();
    let names: Vec<usize> = candidates.iter().copied().filter(|at| is_name(&words[*at])).collect();
    let mut holes: Vec<Vec<usize>> = candidates.iter().map(|at| vec![*at]).collect();
    for (nth, first) in names.iter().enumerate() {
        holes.extend(names[nth + 1..].iter().map(|second| vec![*first, *second]));
    }
    holes
}

fn may_vary(words: &Outline, at: usize) -> bool {
    let word = words[at].as_str();
    let before = words[at - 1].as_str();
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    let capitals = letters >= 2 && !word.bytes().any(|b| b.is_ascii_lowercase());
    let telling = capitals
        || word.ends_with("Exception")
        || word.ends_with("Error")
        || word.contains('\n')
        || words::is_telling_key(before)
        || words::is_code_word(before);
    !telling
}

fn with_holes(words: &Outline, holes: &[usize]) -> Outline {
    words
        .iter()
        .enumerate()
        .map(|(at, word)| if holes.contains(&at) { "\0".to_owned() } else { word.clone() })
        .collect()
}

fn has_evidence(pattern: &Outline, values: &[BTreeSet<String>]) -> bool {
    let shared = pattern.iter().filter(|word| !matches!(word.as_str(), "*" | "\0")).count();
    let enough = |values: &BTreeSet<String>| {
        let plain = values.iter().filter(|value| *value != "*" && !is_name(value)).count();
        let names = values.iter().filter(|value| is_name(value)).count();
        // A place that is volatile in one outline is likely to be so in the others.
        let star = usize::from(values.contains("*")) * 2;
        if plain == 0 {
            names + star >= NAMES_MIN && names > 1
        } else {
            plain + names + star >= PLAIN_WORDS_MIN
        }
    };
    shared >= SHARED_WORDS_MIN.max(values.len()) && values.iter().all(enough)
}

/// Whether a word looks like the name of a thing and not like a word of a sentence.
fn is_name(word: &str) -> bool {
    word != "*"
        && (word.bytes().any(|b| matches!(b, b'.' | b'_' | b'$' | b'/' | b'\\'))
            || word.bytes().skip(1).any(|b| b.is_ascii_uppercase()))
}

/// The pattern that covers the most outlines, of those that fit; fewer holes first.
fn best_pattern(words: &Outline, patterns: &HashMap<Outline, usize>) -> Option<Outline> {
    let fitting = holes_of(words).into_iter().filter_map(|holes| {
        let pattern = with_holes(words, &holes);
        let covered = *patterns.get(&pattern)?;
        Some((covered, usize::MAX - holes.len(), pattern))
    });
    let (_, _, pattern) = fitting.max()?;
    let mut merged: Outline = Vec::with_capacity(pattern.len());
    for word in pattern {
        let word = if word == "\0" { "*".to_owned() } else { word };
        if !(word == "*" && merged.last().is_some_and(|last| last == "*")) {
            merged.push(word);
        }
    }
    (merged != *words).then_some(merged)
}
