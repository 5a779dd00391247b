//! What people see, as whole sessions: each `tests/sessions/*.txt` and each page of the documentation is typed line by
//! line, and what comes is compared with what stands there. To write the answers anew, run the tests with
//! `UPDATE_SESSIONS=1` and read the difference.
//!
//! A line `$ words` is given to a shell in a folder of the session's own, `> words` goes on with it, `? 4` is the exit code
//! where it is not 0, and everything else is what is printed on stdout and stderr. `sickbay serve &` stays until the end.
//! Times, ages, paths and the like may differ; `[..]` stands for anything in a line and a line `...` for any lines.

mod compare;
mod run;
mod written;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use run::Place;
use written::{Page, Step};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    files.sort();
    files
}

fn sessions() -> Vec<PathBuf> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions"), "txt")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    pages.extend(files(&root().join("docs"), "md"));
    pages
}

/// Types everything in a file and answers what was not as expected.
fn check(path: &Path) -> Option<String> {
    let mut page = Page::read(path);
    let mut place = Place::new();
    let mut wrong = String::new();
    for step in page.steps_mut() {
        let said = place.run(&step.command);
        if !compare::is_same(&step.expected, &said) {
            wrong.push_str(&compare::difference(step, &said));
            step.expected = place.masked(&said);
        }
    }
    if wrong.is_empty() {
        return None;
    }
    if std::env::var_os("UPDATE_SESSIONS").is_some() {
        page.write();
        return None;
    }
    Some(format!("{}:\n{wrong}", path.display()))
}

/// A few at a time: each is a chain of processes that mostly wait for each other.
fn check_all(paths: &[PathBuf]) {
    let wrong = std::sync::Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(check(path));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "not as expected:\n\n{}", wrong.join("\n"));
}

#[test]
fn every_session_goes_as_it_is_written() {
    check_all(&sessions());
}

#[test]
fn what_the_documentation_shows_is_what_happens() {
    check_all(&pages());
}

#[test]
fn the_readme_and_the_pages_about_the_command_show_sessions() {
    for name in ["README.md", "docs/cli.md", "docs/configuration.md", "docs/handlers.md"] {
        assert!(Page::read(&root().join(name)).steps().count() > 0, "{name} shows nothing that is run");
    }
}

#[test]
fn every_command_is_shown_as_text_as_json_and_wrong() {
    let typed: Vec<Step> = sessions().iter().flat_map(|path| Page::read(path).into_steps()).collect();
    let lines: Vec<String> =
        typed.iter().map(|step| format!("{} ", step.command.replace('\n', " "))).collect();
    let mut missing = BTreeSet::new();
    for command in run::commands() {
        let of_command = |line: &&String| line.contains(&format!("{command} "));
        let shown: Vec<&String> = lines.iter().filter(of_command).collect();
        if shown.is_empty() {
            missing.insert(format!("{command}: not shown at all"));
        }
        // These print what others read, or stay; they have no document of their own.
        let without_json = ["completions", "man", "serve", "work"];
        if !shown.iter().any(|line| line.contains("--json"))
            && !without_json.iter().any(|w| command.ends_with(w))
        {
            missing.insert(format!("{command}: not shown with --json"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    let wrong =
        typed.iter().filter(|step| step.expected.contains("\n? ") || step.expected.starts_with("? ")).count();
    assert!(wrong >= 40, "only {wrong} wrong commands are shown");
}
