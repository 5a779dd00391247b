//! Signatures on a corpus of real-looking errors, on random values, and on hostile text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use sickbay_core::signature::{Signature, Subject, normalise, signature, signatures};

mod unchanged;

const CORPUS: &str = include_str!("../corpus/errors.txt");

fn subject(text: &str) -> Subject<'_> {
    Subject { queue: "orders", message_type: None, reason: "Unknown", text, schema_path: None }
}

fn of(text: &str) -> Signature {
    signature(&subject(text))
}

/// The texts of the corpus with their causes.
fn corpus() -> Vec<(&'static str, &'static str)> {
    let mut texts = Vec::new();
    for block in CORPUS.split("\n== ").skip(1) {
        let (cause, body) = block.split_once('\n').expect("a cause has texts");
        texts.extend(body.split("\n--\n").map(|text| (cause, text.trim_end_matches('\n'))));
    }
    texts
}

/// The share of texts whose group holds exactly the texts of their cause; and what is wrong with the others.
fn grouping_accuracy(corpus: &[(&str, &str)], signatures: &[Signature]) -> (f64, Vec<String>) {
    let mut groups: BTreeMap<Signature, BTreeSet<usize>> = BTreeMap::new();
    let mut causes: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (nth, ((cause, _), signature)) in corpus.iter().zip(signatures).enumerate() {
        groups.entry(*signature).or_default().insert(nth);
        causes.entry(cause).or_default().insert(nth);
    }
    let mut right = 0;
    let mut wrong = Vec::new();
    for group in groups.values() {
        let first = group.iter().next().copied().unwrap_or_default();
        if causes[corpus[first].0] == *group {
            right += group.len();
        } else {
            let names: BTreeSet<&str> = group.iter().map(|nth| corpus[*nth].0).collect();
            wrong.push(format!("{names:?} x{}: {}", group.len(), normalise(corpus[first].1)));
        }
    }
    (right as f64 / corpus.len() as f64, wrong)
}

#[test]
fn the_corpus_holds_what_it_says() {
    let corpus = corpus();
    let causes: BTreeSet<&str> = corpus.iter().map(|(cause, _)| *cause).collect();
    assert!(corpus.len() >= 300 && causes.len() >= 60, "{} texts of {} causes", corpus.len(), causes.len());
    assert!(corpus.iter().all(|(_, text)| !text.is_empty()));
}

#[test]
fn every_text_of_the_corpus_is_grouped_with_exactly_its_own_cause() {
    let corpus = corpus();
    let single: Vec<Signature> = corpus.iter().map(|(_, text)| of(text)).collect();
    let (accuracy, wrong) = grouping_accuracy(&corpus, &single);
    assert!(wrong.is_empty(), "accuracy {accuracy}:\n{}", wrong.join("\n"));
}

#[test]
fn a_batch_merges_no_two_causes_of_the_corpus() {
    let corpus = corpus();
    let subjects: Vec<Subject<'_>> = corpus.iter().map(|(_, text)| subject(text)).collect();
    let batch: Vec<Signature> = signatures(&subjects).into_iter().map(|(signature, _)| signature).collect();
    let (accuracy, wrong) = grouping_accuracy(&corpus, &batch);
    assert!(wrong.is_empty(), "accuracy {accuracy}:\n{}", wrong.join("\n"));
}

#[test]
fn a_normalised_line_has_the_signature_of_the_line() {
    for (cause, text) in corpus().into_iter().filter(|(_, text)| !text.contains('\n')) {
        let once = normalise(text);
        assert_eq!(of(&once), of(text), "{cause}: {text:?} became {once:?} and then {:?}", normalise(&once));
    }
}

/// Sentences with holes. Every kind of volatile value may stand in every hole.
const TEMPLATES: &[&str] = &[
    "order {} not found",
    "cannot ship {} to customer {}: address unknown",
    "{} is not reachable",
    "no answer from {} within {}, giving up",
    "[worker {}] lost lease of message ({})",
    "java.lang.IllegalStateException: ledger {} closed by {}",
    "upload of {} failed; quota {} exceeded",
    "checksum mismatch: wanted {}, found {}",
];

/// A volatile value of any kind.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[1-9][0-9]{0,18}",
        "-?[0-9]{1,6}\\.[0-9]{1,6}",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "0x[0-9a-f]{1,16}",
        "[0-9a-f]{11}[0-9]",
        "[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}(:[0-9]{1,5})?",
        "fe80::[0-9a-f]{1,4}:[0-9a-f]{1,4}",
        "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{3,9})?Z",
        "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]",
        "[0-9]{1,5}(ms|s|us|m|h| ms| seconds| minutes)",
        "[0-9]{1,5}(KB|MiB| bytes| GB)",
        "(/[a-z]{1,8}){2,5}(/[a-z0-9]{1,8}\\.(log|json|xml))?",
        "[C-Z]:\\\\[a-zA-Z]{1,8}\\\\[a-z0-9]{1,8}\\.(log|json)",
        "(https?|amqp|postgres)://[a-z]{1,10}\\.example\\.com(:[0-9]{2,5})?/[a-z0-9/]{0,20}[a-z]",
        "[a-z]{1,8}[0-9]{0,3}@[a-z]{1,8}\\.(com|org|net)",
        "[a-z]{2,8}-[0-9]{1,4}(\\.[a-z]{2,6}){0,2}",
        "'[a-zA-Z0-9 ,.:;()=/-]{0,30}'",
        "\"[a-zA-Z0-9 ,.:;()=/'-]{0,30}\"",
        "`[a-zA-Z0-9_:.]{0,30}`",
        "[A-Za-z0-9]{30,60}[0-9]==",
        "[a-z]{2,6}_[0-9]{3,12}",
    ]
}

fn fill(template: &str, values: &[String]) -> String {
    let mut values = values.iter();
    let mut parts = template.split("{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(values.next().map_or("7", |value| value));
        text.push_str(part);
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn volatile_values_of_any_kind_do_not_change_the_signature(
        nth in 0..TEMPLATES.len(),
        values in prop::collection::vec(value(), 2),
    ) {
        let plain = fill(TEMPLATES[nth], &["1".to_owned(), "2".to_owned()]);
        let text = fill(TEMPLATES[nth], &values);
        prop_assert_eq!(of(&text), of(&plain), "{} became {}", text, normalise(&text));
    }

    #[test]
    fn different_causes_differ_whatever_the_values(
        first in 0..TEMPLATES.len(),
        second in 0..TEMPLATES.len(),
        values in prop::collection::vec(value(), 4),
    ) {
        let (one, other) = (fill(TEMPLATES[first], &values[..2]), fill(TEMPLATES[second], &values[2..]));
        prop_assert_eq!(of(&one) == of(&other), first == second, "{} and {}", one, other);
    }

    #[test]
    fn line_numbers_addresses_and_threads_of_a_trace_do_not_change_the_signature(
        lines in prop::collection::vec(1u32..100_000, 4),
        thread in "[a-z]{1,8}-[0-9]{1,3}",
        address in "[0-9a-f]{6,12}",
    ) {
        let trace = |lines: &[u32], thread: &str, address: &str| {
            format!(
                "Exception in thread \"{thread}\" com.acme.Failed: order {} of com.acme.Cart@{address}\n\
                 \tat com.acme.Cart.total(Cart.java:{})\n\tat com.acme.Main.run(Main.java:{})\n\
                 Caused by: java.io.IOException: disk {} full\n\tat com.acme.Disk.write(Disk.java:{})",
                lines[0], lines[1], lines[2], lines[3], lines[0]
            )
        };
        prop_assert_eq!(of(&trace(&lines, &thread, &address)), of(&trace(&[1, 2, 3, 4], "t-1", "0a1b2c3d")));
    }

    #[test]
    fn any_text_has_a_signature_and_the_same_one_twice(text in any::<String>()) {
        prop_assert_eq!(of(&text), of(&text.clone()));
        let _ = normalise(&text);
    }

    #[test]
    fn any_bytes_have_a_signature(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = (of(&text), normalise(&text));
    }

    #[test]
    fn any_mix_of_the_characters_that_matter_has_a_signature(
        text in "[a-zA-Z0-9 \\t\\n'\"`=:/\\\\.,;@(){}\\[\\]<>|&?!%#$*+~^_\u{1b}\u{0}é“”\u{fffd}-]{0,400}",
    ) {
        let _ = (of(&text), normalise(&text), signatures(&[subject(&text), subject("x y z")]));
    }
}

/// Short texts that are repeated to make hostile ones.
const HOSTILE: &[&str] = &[
    "a",
    "1",
    "\"",
    "'",
    "`",
    "“",
    "(",
    "[",
    "{",
    "<",
    "=",
    ":",
    "/",
    "\\",
    ".",
    "-",
    "@",
    "%",
    "\0",
    "\u{1b}",
    "\u{1b}[",
    "\n",
    " ",
    "é",
    "\u{fffd}",
    "漢",
    "a=",
    "'a ",
    "\"a ",
    "('a",
    "msg=\"'a ",
    "msg=\"",
    "a:",
    "::",
    "a::",
    "1.",
    "1:",
    "/a",
    "a/b ",
    "at ",
    "\tat a(b)\n",
    "Caused by: ",
    "Caused by: x\n",
    "Caused by:\n",
    " ---> ",
    "File \"",
    "Traceback (most recent call last):\n",
    "http://",
    "C:\\",
    "C:\\a ",
    "\\u{",
    "a1 ",
    "a b ",
    "* ",
    "true ",
    "Jan ",
    "Mon, ",
    "12 Jan ",
    "user ",
    "0x",
    "x: y\n",
    "  File \"a\", line 1, in b\n",
];

#[test]
fn hostile_text_neither_panics_nor_makes_long_output() {
    for pattern in HOSTILE {
        for prefix in ["", "failed: ", "x='", "msg=\"", "Traceback (most recent call last):\n"] {
            let text = format!("{prefix}{}", pattern.repeat(100_000 / pattern.len()));
            let length = normalise(&text).len();
            assert!(length <= 70_000, "{pattern:?} makes {length} bytes");
            let _ = of(&text);
        }
    }
}

#[test]
fn fifty_megabytes_cost_no_more_than_the_part_that_is_looked_at() {
    for pattern in ["a", "1", "\"", "'", "[", "x=\"", "\n", "a b "] {
        let small = pattern.repeat((48 << 10) / pattern.len());
        let large = pattern.repeat((50 << 20) / pattern.len());
        assert_eq!(normalise(&small), normalise(&large), "{pattern:?}");
    }
}

#[test]
fn work_grows_no_faster_than_the_text() {
    // Far below the limit of what is looked at, so that all of the text is read.
    for pattern in HOSTILE {
        let small = pattern.repeat((2 << 10) / pattern.len());
        let large = pattern.repeat((16 << 10) / pattern.len());
        let (small, large) = (time_of(&small), time_of(&large));
        // Eight times the text; forty times the time leaves room for a busy machine, not for a square (64).
        assert!(large < small * 40 + Duration::from_millis(3), "{pattern:?}: {small:?} became {large:?}");
    }
}

fn time_of(text: &str) -> Duration {
    let best = (0..5).map(|_| {
        let start = time_worked();
        let _ = of(text);
        time_worked().saturating_sub(start)
    });
    best.min().unwrap_or_default()
}

/// The time that this thread was given, which does not pass while others have the processor.
fn time_worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn the_end_of_a_long_trace_counts() {
    let frames = "\tat com.acme.Deep.call(Deep.java:7)\n".repeat(5_000);
    let with = |root: &str| of(&format!("com.acme.Failed: x\n{frames}Caused by: {root}\n{frames}"));
    let near = |root: &str| {
        of(&format!("com.acme.Failed: x\n{frames}Caused by: {root}\n\tat com.acme.A.b(A.java:1)"))
    };
    assert_ne!(near("java.io.IOException: disk full"), near("java.io.IOException: no route"));
    assert_eq!(with("java.io.IOException: disk full"), with("java.io.IOException: disk full"));
}

#[test]
fn a_long_quotation_does_not_leak_into_the_signature() {
    let text = |word: &str| format!("bad payload \"{}\" in message", format!("{word} ").repeat(20_000));
    assert_eq!(of(&text("abc")), of(&text("xyz")));
}
