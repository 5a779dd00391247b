//! The demo, as a newcomer runs it, and with every way to die.

use std::process::Command;

use serde_json::Value;

fn demo(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_sickbay"))
        .arg("demo")
        .arg("--json")
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

/// Fifty messages in one worker's hands, one of which kills it each time it is tried.
fn a_killer_among_bystanders(death: &str) {
    let report = demo(&["--messages", "50", "--death", death]);
    assert_eq!(report["killer_quarantined"], true, "{report}");
    assert_eq!(report["killer_lone_crashes"], 3, "after exactly its budget: {report}");
    assert_eq!(report["bystanders_blamed"], 0, "{report}");
    assert_eq!(report["ledger_actual"], report["ledger_expected"], "{report}");
    let deaths = report["worker_deaths"].as_u64().unwrap();
    assert!((3..=4).contains(&deaths), "one death in company and three alone: {report}");
}

#[test]
fn a_message_that_aborts_its_worker_is_quarantined_after_exactly_its_budget() {
    a_killer_among_bystanders("abort");
}

#[test]
fn a_message_whose_worker_is_killed_is_quarantined_after_exactly_its_budget() {
    a_killer_among_bystanders("kill");
}

#[test]
fn a_message_that_exits_its_worker_is_quarantined_after_exactly_its_budget() {
    a_killer_among_bystanders("exit");
}

#[test]
fn a_message_that_overflows_the_stack_is_quarantined_after_exactly_its_budget() {
    a_killer_among_bystanders("overflow");
}

#[test]
fn a_message_that_eats_all_memory_is_quarantined_after_exactly_its_budget() {
    a_killer_among_bystanders("memory");
}

#[test]
fn ten_thousand_orders_end_where_they_should() {
    let report = demo(&[]);
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!(number("completed") + number("duplicates") + number("quarantined"), 10_000);
    assert_eq!(number("duplicates"), 200);
    assert_eq!(number("bystanders_blamed"), 0);
    // Missing field, negative amount, unknown type, refused by the bank, overrun, killer.
    assert_eq!(number("incidents"), 6, "{report}");
    assert!(number("retried") > 0);
    assert_eq!(report["ledger_actual"], report["ledger_expected"]);
}

#[test]
fn the_three_commands_that_the_demo_prints_work_as_printed() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_sickbay");
    let output =
        Command::new(program).args(["demo", "--messages", "300"]).env("TMPDIR", folder.path()).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains('\u{1b}'), "{text}");
    let commands: Vec<&str> = text.split("Type next:\n").nth(1).unwrap().lines().map(str::trim).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(commands.len(), 3, "{text}");
    let mut said = Vec::new();
    for command in commands {
        let ran = Command::new("sh").arg("-c").arg(command).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{command}: {told}{}", String::from_utf8_lossy(&ran.stderr));
        said.push(told);
    }
    assert_eq!(said[0].lines().count(), 9, "a header and eight dead letters: {}", said[0]);
    assert!(said[1].contains("Crash") && said[1].contains("signal 6"), "{}", said[1]);
    assert!(said[2].ends_with("dead letters sent back\n") && !said[2].starts_with("0 "), "{}", said[2]);
}
