//! Each `tests/configs/NN-name.toml` is wrong, and `NN-name.txt` is what is said about it. To write the
//! answers anew, run the tests with `UPDATE_CONFIGS=1` and read the difference.

use std::path::{Path, PathBuf};

use sickbay_cli::config::{Config, ConfigErrors, Paint};

/// Tests run in the folder of the crate, so the paths in the answers are the same everywhere.
const FOLDER: &str = "tests/configs";

fn broken_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}

fn errors_of(path: impl AsRef<Path>) -> ConfigErrors {
    let path = path.as_ref();
    match Config::load(path) {
        Ok(config) => panic!("{} is accepted: {config:?}", path.display()),
        Err(errors) => errors,
    }
}

#[test]
fn every_broken_file_is_refused_with_the_words_expected() {
    let files = broken_files();
    assert!(files.len() >= 40, "only {} broken files", files.len());
    let update = std::env::var_os("UPDATE_CONFIGS").is_some();
    let mut wrong = Vec::new();
    for path in files {
        let said = errors_of(&path).render(Paint::Plain);
        let answer = path.with_extension("txt");
        if update {
            std::fs::write(&answer, &said).unwrap();
        } else if std::fs::read_to_string(&answer).ok().as_deref() != Some(&said) {
            wrong.push(format!("{}\n{said}", answer.display()));
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n\n{}", wrong.join("\n"));
}

#[test]
fn every_problem_has_a_line_and_a_caret_under_it() {
    for path in broken_files() {
        let errors = errors_of(&path);
        assert!(!errors.problems.is_empty());
        for problem in &errors.problems {
            let place = problem.place.as_ref().unwrap();
            assert!(place.line >= 1 && place.column >= 1, "{problem:?}");
        }
        let said = errors.render(Paint::Plain);
        assert!(said.matches('^').count() >= errors.problems.len(), "{said}");
        assert!(!said.contains('\x1b'), "{said}");
    }
}

#[test]
fn all_problems_of_a_file_are_reported_in_its_order() {
    let path = broken_files().into_iter().find(|path| path.ends_with("many-errors-at-once.toml"));
    let path = path
        .or_else(|| broken_files().into_iter().find(|path| path.to_string_lossy().contains("many-errors")));
    let errors = errors_of(path.unwrap());
    let lines: Vec<usize> = errors.problems.iter().map(|p| p.place.as_ref().unwrap().line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
    assert_eq!(lines.len(), 8, "{errors}");
}

#[test]
fn colours_are_used_only_when_they_are_asked_for() {
    let errors = errors_of(&broken_files()[8]);
    let plain = errors.render(Paint::Plain);
    let colourful = errors.render(Paint::Colour);
    assert!(colourful.contains("\x1b[1;31merror[SB0042]\x1b[0m"));
    let mut stripped = colourful;
    for escape in ["\x1b[1;31m", "\x1b[1;32m", "\x1b[1;34m", "\x1b[0m"] {
        stripped = stripped.replace(escape, "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn a_missing_file_says_how_to_get_one() {
    let said = errors_of("tests/configs/nowhere.toml").to_string();
    assert_eq!(
        said,
        "error[SB0046]: there is no such file\n  --> tests/configs/nowhere.toml\n  \
         help: `sickbay init` writes one to begin with\n\n1 error in tests/configs/nowhere.toml; more: `sickbay explain SB0046`"
    );
    assert!(errors_of("tests/configs").to_string().contains("this is a folder, not a file"));
}

#[test]
fn a_file_that_is_no_utf8_is_refused_where_it_stops_being_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sickbay.toml");
    std::fs::write(&path, b"[queues.payments]\n# caf\xe9\n").unwrap();
    let errors = errors_of(&path);
    let place = errors.problems[0].place.as_ref().unwrap();
    assert_eq!((place.line, place.column), (2, 6));
    assert!(errors.to_string().contains("not UTF-8"), "{errors}");
}

#[test]
fn nothing_in_a_file_reaches_the_terminal_as_an_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sickbay.toml");
    std::fs::write(&path, "[queues.\"a\\u001b[2J\"]\nlease = 1 # \x1b[2J\n\"\\u001b[31mkey\" = 1\n").unwrap();
    let said = errors_of(&path).render(Paint::Plain);
    assert!(!said.contains('\x1b'), "{said:?}");
}

#[test]
fn problems_are_also_told_as_data() {
    let errors = errors_of(&broken_files()[8]);
    let json = serde_json::to_value(&errors).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "file": "tests/configs/09-unknown-queue-key.toml",
            "problems": [{
                "code": "SB0042",
                "message": "`concurency` is no key of a queue",
                "line": 2,
                "column": 1,
                "help": "did you mean `concurrency`?"
            }]
        })
    );
}

/// Enough of every kind of damage to meet each branch of the reading.
#[test]
fn a_damaged_file_is_refused_or_read_but_never_a_panic() {
    let path = Path::new("tests/configs/good/full.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let mut refused = 0;
    for (turn, at) in places.iter().copied().enumerate().step_by(5) {
        let (before, after) = text.split_at(at);
        let damage = ["\"", "[", "{", "=", "\n", "é", "\0", "-", "9"][turn % 9];
        for damaged in [before.to_owned(), format!("{before}{damage}{}", &after[1..])] {
            if let Err(errors) = Config::parse(path, &damaged, |_| Some("x".to_owned())) {
                assert!(!errors.problems.is_empty());
                assert!(errors.render(Paint::Plain).contains('^'), "{damaged}");
                refused += 1;
            }
        }
    }
    assert!(refused > 300, "only {refused} were refused");
}
