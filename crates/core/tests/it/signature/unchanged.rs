//! Stores keep signatures, so that a text must have the same one in every version. What is expected of the
//! corpus and of single lines stands in files beside it; run the tests with `UPDATE_SIGNATURES=1` to write
//! them anew, read the difference, and say in the changelog that incidents begin anew.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use sickbay_core::signature::{normalise, signatures};

use super::{corpus, of, subject};

/// Compares with a file of the corpus, or writes it.
#[track_caller]
fn check(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(file);
    if std::env::var_os("UPDATE_SIGNATURES").is_some() {
        return std::fs::write(path, found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (nth, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {file}", nth + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "lines of {file}");
}

#[test]
fn no_signature_of_the_corpus_changes_between_versions() {
    let corpus = corpus();
    let subjects: Vec<_> = corpus.iter().map(|(_, text)| subject(text)).collect();
    let together = signatures(&subjects);
    let mut found = String::new();
    let mut causes = BTreeSet::new();
    let mut readings = BTreeSet::new();
    for ((cause, text), (merged, shown)) in corpus.iter().zip(together) {
        let alone = of(text);
        if causes.insert(cause) {
            writeln!(found, "== {cause}").unwrap();
        }
        let reading = format!("{alone} {}\n{merged} {}", on_one_line(&normalise(text)), on_one_line(&shown));
        if readings.insert((cause, reading.clone())) {
            writeln!(found, "{reading}").unwrap();
        }
    }
    check("signatures.txt", &found);
}

/// Every second line is what the line before it is read as. Signs stand for what a line cannot hold.
#[test]
fn no_reading_of_a_line_changes_between_versions() {
    let lines = include_str!("../../corpus/lines.txt");
    let mut found = String::new();
    for line in lines.lines().filter(|line| !line.starts_with("    ")) {
        writeln!(found, "{line}").unwrap();
        if !line.starts_with('#') && !line.is_empty() {
            let text = line.replace('⏎', "\n").replace('⇥', "\t").replace('␛', "\u{1b}");
            writeln!(found, "    {} {}", of(&text), on_one_line(&normalise(&text))).unwrap();
        }
    }
    check("lines.txt", &found);
}

fn on_one_line(text: &str) -> String {
    text.replace('\n', "⏎").replace('\t', "⇥")
}
