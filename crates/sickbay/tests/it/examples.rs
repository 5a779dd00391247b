//! The examples do what they say.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An example of this crate; `cargo test` builds them all.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(built.exists(), "{} is missing; build the examples first", built.display());
    built
}

fn run(name: &str) -> String {
    let output = Command::new(example(name)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn hello_greets_everybody() {
    assert_eq!(run("hello").lines().count(), 3);
}

#[test]
fn exactly_once_pays_a_duplicate_once() {
    assert!(run("exactly_once").ends_with("the ledger holds 2500 cents\n"));
}

#[test]
fn quarantine_mends_and_replays() {
    let output = run("quarantine");
    assert!(output.contains("SerializationError") && output.contains("is worth 5"), "{output}");
}

#[test]
fn streams_keep_their_order() {
    let output = run("streams");
    for account in ["ada", "bob"] {
        let steps: Vec<_> = output.lines().filter(|line| line.starts_with(account)).collect();
        assert_eq!(steps, ["opened", "credited", "closed"].map(|step| format!("{account} {step}")));
    }
    assert!(output.find("bob closed") < output.find("ada opened"), "Bob does not wait for Ada");
}
