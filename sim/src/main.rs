//! The simulator as a program: `cargo xtask sim` calls it.

use std::process::ExitCode;

use anyhow::Result;
use sickbay_sim::run::{Plan, run_plan};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut plan = Plan::default();
    let mut at = 0;
    while at < arguments.len() {
        let value = arguments.get(at + 1).map(String::as_str).unwrap_or_default();
        match arguments[at].as_str() {
            "--seeds" => plan.seeds = value.parse()?,
            "--steps" => plan.steps = value.parse()?,
            "--seed" => (plan.seed, plan.seeds) = (value.parse()?, 1),
            "--first" => plan.seed = value.parse()?,
            "--shrink-for" => plan.shrink_for = std::time::Duration::from_secs(value.parse()?),
            "--threads" => plan.threads = value.parse()?,
            "--store" if value == "sqlite" => (plan.memory, plan.sqlite_every) = (false, 1),
            "--store" => (plan.memory, plan.sqlite_every) = (true, 0),
            other => anyhow::bail!("unknown argument {other:?}"),
        }
        at += 2;
    }
    let report = run_plan(&plan);
    for finding in &report.findings {
        println!("seed {}: {}: {}\n", finding.seed, finding.violation.invariant, finding.violation.text);
        println!("{}", finding.file());
    }
    println!("{}", serde_json::to_string_pretty(&report.json())?);
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
