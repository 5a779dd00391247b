//! `cargo xtask faults` runs this and reads the document that it prints.

mod plan;
mod report;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    #[cfg(unix)]
    if let [word, rest @ ..] = &arguments[..]
        && word == sickbay_faults::postgres::child::WORD
    {
        sickbay_faults::postgres::child::run(rest)?;
        return Ok(ExitCode::SUCCESS);
    }
    #[cfg(unix)]
    if let [word, store, ..] = &arguments[..]
        && sickbay_faults::process::child::run(word, Path::new(store))?
    {
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan::Plan::read(&arguments)?;
    // What a store panics with is found and told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let report = report::run(&plan)?;
    println!("{}", serde_json::to_string_pretty(&report.document(&plan))?);
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
