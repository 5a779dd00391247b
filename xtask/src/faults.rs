//! `cargo xtask faults`: disks, files and processes are broken, and what was promised must hold.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::needs::{self, NEEDS};

/// What was run by long runs, one document a line. The next long run goes on with the next seed.
const LEDGER: &str = "faults/ledger.jsonl";

/// A program that breaks something and prints one document. What two of them count under one name is added up.
struct Part {
    package: &'static str,
    /// Known defects are compiled in.
    seeded: bool,
    arguments: &'static [&'static str],
}

const FAULTS: Part = Part { package: "sickbay-faults", seeded: false, arguments: &[] };

/// What runs besides, unless only parts of the first were asked for.
const OTHERS: &[Part] = &[
    Part { package: "sickbay-sim", seeded: false, arguments: &["schedules", "--json"] },
    Part { package: "sickbay-sim", seeded: true, arguments: &["bugs", "--json"] },
    Part { package: "sickbay-faults", seeded: true, arguments: &["bugs"] },
];

/// The keys of the document, in their order.
const KEYS: [&str; 10] = [
    "power_cuts",
    "schedules",
    "kills",
    "bit_flips",
    "lost",
    "unexplained",
    "bystanders_blamed",
    "silently_wrong",
    "seeded_bugs",
    "seeded_bugs_found",
];

/// Runs every part and prints a table, or with `--json` one document. `--minutes N` is the long run.
pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let json = arguments.iter().any(|argument| argument == "--json");
    let mut passed: Vec<String> = arguments.iter().filter(|a| a.as_str() != "--json").cloned().collect();
    let long = passed.iter().any(|argument| argument == "--minutes");
    if long && !passed.iter().any(|argument| argument == "--seed") {
        passed.extend(["--seed".to_owned(), next_seed(root).to_string()]);
    }
    let whole = !long && passed.iter().all(|argument| argument == "--quick");
    let (total, well) = run_parts(root, &passed, whole)?;
    if long {
        write_down(root, &total)?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&ordered(&total))?);
    } else {
        print!("{}", table(&total));
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What every commit must pass. True if it did.
pub(crate) fn quick(root: &Path) -> Result<bool> {
    let (total, well) = run_parts(root, &["--quick".to_owned()], true)?;
    print!("{}", table(&total));
    Ok(well)
}

fn run_parts(root: &Path, passed: &[String], whole: bool) -> Result<(Map<String, Value>, bool)> {
    if whole || passed.iter().any(|argument| argument == "postgres") {
        // Without it that part is skipped, and says so.
        needs::missing(NEEDS.iter().filter(|need| need.tests == "postgres::"), needs::install);
    }
    let (mut total, mut well) = (Map::new(), true);
    let parts = std::iter::once(&FAULTS).chain(OTHERS.iter().filter(|_| whole));
    for (index, part) in parts.enumerate() {
        let (document, passed) = run(root, part, if index == 0 { passed } else { &[] })?;
        well &= passed;
        merge(&mut total, document);
    }
    Ok((total, well))
}

fn run(root: &Path, part: &Part, arguments: &[String]) -> Result<(Map<String, Value>, bool)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["run", "--release", "--quiet", "--package", part.package]);
    if part.seeded {
        command.args(["--features", "seeded-bugs"]);
    }
    command.arg("--").args(part.arguments).args(arguments).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("{} cannot be started", part.package))?;
    let document = serde_json::from_slice(&output.stdout);
    let Value::Object(document) =
        document.with_context(|| format!("{} printed no document", part.package))?
    else {
        bail!("{} printed no document", part.package);
    };
    Ok((document, output.status.success()))
}

/// Numbers are added up, lists joined, and the rest is taken as it is.
fn merge(total: &mut Map<String, Value>, document: Map<String, Value>) {
    for (name, value) in document {
        match (total.get_mut(&name), value) {
            (Some(Value::Number(known)), Value::Number(more)) if known.is_u64() && more.is_u64() => {
                let sum = known.as_u64().unwrap_or(0) + more.as_u64().unwrap_or(0);
                total.insert(name, json!(sum));
            }
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (_, value) => drop(total.insert(name, value)),
        }
    }
}

/// The promised keys first; null where nothing was counted.
fn ordered(total: &Map<String, Value>) -> Value {
    let mut document = Map::new();
    for key in KEYS {
        document.insert(key.to_owned(), total.get(key).cloned().unwrap_or(Value::Null));
    }
    let rest = total.iter().filter(|(name, _)| !KEYS.contains(&name.as_str()));
    document.extend(rest.map(|(name, value)| (name.clone(), value.clone())));
    Value::Object(document)
}

fn table(total: &Map<String, Value>) -> String {
    let Value::Object(document) = ordered(total) else { return String::new() };
    let rows = document.iter().filter(|(_, value)| !value.is_null());
    rows.map(|(name, value)| match value {
        Value::Array(list) => list.iter().map(|one| format!("{name}: {one}\n")).collect(),
        value => format!("{name:<24} {value}\n"),
    })
    .collect()
}

/// The seed after the last one that a long run got to.
fn next_seed(root: &Path) -> u64 {
    let ledger = std::fs::read_to_string(root.join(LEDGER)).unwrap_or_default();
    let runs = ledger.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    runs.filter_map(|run| run["next_seed"].as_u64()).max().unwrap_or(1_000_000)
}

fn write_down(root: &Path, total: &Map<String, Value>) -> Result<()> {
    let mut run = total.clone();
    let output = Command::new("git").current_dir(root).args(["rev-parse", "--short", "HEAD"]).output();
    let commit = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    run.insert("commit".to_owned(), json!(commit.unwrap_or_default()));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(root.join(LEDGER))?;
    ensure!(writeln!(file, "{}", Value::Object(run)).is_ok(), "{LEDGER} cannot be written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        if let Value::Object(map) = value { map } else { Map::new() }
    }

    #[test]
    fn documents_of_parts_are_added_up() {
        let mut total = map(json!({"lost": 1, "power_cuts": 10, "findings": ["a"]}));
        merge(&mut total, map(json!({"lost": 2, "schedules": 5, "findings": ["b"], "quick": true})));
        assert_eq!(total["lost"], 3);
        assert_eq!(total["findings"], json!(["a", "b"]));
        assert_eq!((&total["schedules"], &total["quick"]), (&json!(5), &json!(true)));
    }

    #[test]
    fn every_promised_key_is_in_the_document() {
        let document = ordered(&map(json!({"lost": 0, "zebra": 1})));
        let names: Vec<&String> = document.as_object().unwrap().keys().collect();
        assert!(KEYS.iter().all(|key| names.iter().any(|name| name == key)), "{names:?}");
        assert_eq!((&document["lost"], &document["schedules"]), (&json!(0), &Value::Null));
    }

    #[test]
    fn a_finding_has_a_line_of_its_own() {
        let text = table(&map(json!({"lost": 1, "findings": ["gone", "lost"]})));
        assert_eq!(text.lines().filter(|line| line.starts_with("findings: ")).count(), 2, "{text}");
    }
}
