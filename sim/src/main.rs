//! The simulator as a program: `cargo xtask sim` and `cargo xtask soak` call it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sickbay_sim::bugs::{Finder, Hunt, hunt_all};
use sickbay_sim::run::{Plan, read, run_folder, run_plan};
use sickbay_sim::soak::soak;
use sickbay_sim::stores::Kind;
use sickbay_sim::world::trace;

const USAGE: &str = "\
Usage: sickbay-sim schedules [--seeds N] [--steps N] [--seed S] [--store memory|sqlite|both|postgres] [--shrink SECONDS] [--json] [--keep DIR]
       sickbay-sim bugs [NAME] [--json]
       sickbay-sim all [--seeds N] [--steps N] [--json]
       sickbay-sim replay DIR
       sickbay-sim trace FILE [--store memory|sqlite|postgres]
       sickbay-sim soak [--minutes N | --seconds N] [--seed S] [--trace CHUNK] [--json]";

/// Arguments by name.
struct Arguments(Vec<String>);

impl Arguments {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|argument| argument == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let parse = |text: &str| text.parse().with_context(|| format!("{name} {text:?} is no number"));
        self.value(name).map(parse).transpose()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|argument| argument == name)
    }
}

fn main() -> Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        bail!("{USAGE}");
    }
    let command = arguments.remove(0);
    let first = arguments.first().cloned();
    let rest = Arguments(arguments);
    match command.as_str() {
        "schedules" => schedules(&rest),
        "all" => all(&rest),
        "bugs" => bugs(first.as_deref().filter(|name| !name.starts_with("--")), &rest),
        "replay" => replay(&first.context("which folder?")?),
        "trace" => traced(&first.context("which file?")?, &rest),
        "soak" => soaked(&rest),
        other => bail!("{other:?} is no command\n{USAGE}"),
    }
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let mut plan = Plan::default();
    if let Some(seed) = arguments.number("--seed")? {
        (plan.seed, plan.seeds) = (seed, 1);
    }
    plan.seeds = arguments.number("--seeds")?.unwrap_or(plan.seeds);
    plan.steps = arguments.number("--steps")?.map_or(plan.steps, |steps| steps as usize);
    plan.threads = arguments.number("--threads")?.map_or(plan.threads, |threads| threads as usize);
    plan.shrink_for = arguments.number("--shrink")?.map_or(plan.shrink_for, Duration::from_secs);
    match arguments.value("--store") {
        None => {}
        Some("memory") => (plan.memory, plan.sqlite_every) = (true, 0),
        Some("sqlite") => (plan.memory, plan.sqlite_every) = (false, 1),
        Some("both") => (plan.memory, plan.sqlite_every) = (true, 1),
        Some("postgres") => (plan.memory, plan.sqlite_every, plan.postgres) = (false, 0, true),
        Some(other) => bail!("{other:?} is no store; choose memory, sqlite, both or postgres"),
    }
    Ok(plan)
}

fn print(arguments: &Arguments, document: &Value) -> Result<()> {
    let text =
        if arguments.has("--json") { document.to_string() } else { serde_json::to_string_pretty(document)? };
    println!("{text}");
    Ok(())
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn schedules(arguments: &Arguments) -> Result<ExitCode> {
    let report = run_plan(&plan(arguments)?);
    for finding in &report.findings {
        eprintln!("seed {}: {}: {}\n", finding.seed, finding.violation.invariant, finding.violation.text);
        eprintln!("{}", finding.file());
        if let Some(folder) = arguments.value("--keep").map(PathBuf::from) {
            std::fs::write(folder.join(format!("seed_{}.txt", finding.seed)), finding.file())?;
        }
    }
    print(arguments, &report.json())?;
    Ok(exit(report.findings.is_empty()))
}

/// Schedules and defects in one document.
fn all(arguments: &Arguments) -> Result<ExitCode> {
    let report = run_plan(&plan(arguments)?);
    let hunts = hunt_all(None, |_| {});
    let ours: Vec<&Hunt> = hunts.iter().filter(|hunt| hunt.finder == Finder::Simulator).collect();
    let found = ours.iter().filter(|hunt| hunt.shown.is_some()).count();
    let mut document = report.json();
    document["seeded_bugs"] = json!(ours.len());
    document["seeded_bugs_found"] = json!(found);
    document["seeded_bugs_for_power_cuts"] = json!(hunts.len() - ours.len());
    report.findings.iter().for_each(|finding| eprintln!("{}", finding.file()));
    print(arguments, &document)?;
    Ok(exit(report.findings.is_empty() && found == ours.len()))
}

fn bugs(wanted: Option<&str>, arguments: &Arguments) -> Result<ExitCode> {
    let tell = |hunt: &Hunt| {
        let shown = hunt.shown.as_deref().unwrap_or(match hunt.finder {
            Finder::Simulator => "NOT FOUND",
            Finder::PowerCuts => "left to the power cuts",
        });
        eprintln!("{:<26} {:>6.2} s  {shown}", hunt.name, hunt.took.as_secs_f64());
    };
    let hunts = hunt_all(wanted, tell);
    if hunts.is_empty() {
        bail!("no defects are compiled in; build with --features seeded-bugs");
    }
    let ours: Vec<&Hunt> = hunts.iter().filter(|hunt| hunt.finder == Finder::Simulator).collect();
    let found = ours.iter().filter(|hunt| hunt.shown.is_some()).count();
    let table: Vec<Value> = hunts.iter().map(Hunt::json).collect();
    print(arguments, &json!({"seeded_bugs": ours.len(), "seeded_bugs_found": found, "bugs": table}))?;
    Ok(exit(found == ours.len()))
}

fn replay(folder: &str) -> Result<ExitCode> {
    let results = run_folder(&PathBuf::from(folder), &[Kind::Memory, Kind::Sqlite])?;
    for (name, outcome) in &results {
        match outcome {
            Ok(()) => println!("ok      {name}"),
            Err(error) => println!("FAILED  {name}: {error}"),
        }
    }
    Ok(exit(results.iter().all(|(_, outcome)| outcome.is_ok())))
}

/// Shows what every step of a script changes.
fn traced(file: &str, arguments: &Arguments) -> Result<ExitCode> {
    let kind = match arguments.value("--store") {
        None | Some("memory") => Kind::Memory,
        Some("sqlite") => Kind::Sqlite,
        Some("postgres") => Kind::Postgres,
        Some(other) => bail!("{other:?} is no store; choose memory, sqlite or postgres"),
    };
    let violation = trace(kind, &read(&std::fs::read_to_string(file)?)?, |line| println!("{line}"));
    Ok(exit(violation.is_none()))
}

fn soaked(arguments: &Arguments) -> Result<ExitCode> {
    let minutes = arguments.number("--minutes")?.map(|minutes| minutes * 60);
    let seconds = arguments.number("--seconds")?.or(minutes).unwrap_or(60);
    let chunks = arguments.number("--chunks")?.unwrap_or(u64::MAX);
    let seed = arguments.number("--seed")?.unwrap_or(1);
    let traced = arguments.number("--trace")?.unwrap_or(u64::MAX);
    let done = soak(seed, Duration::from_secs(seconds), chunks, traced)?;
    print(arguments, &done.json())?;
    Ok(ExitCode::SUCCESS)
}
