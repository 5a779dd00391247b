//! `sickbay check`.

use std::path::PathBuf;

use sickbay_cli::config::{Config, FILE_NAME};

use super::Env;
use crate::output::{Exit, Failure, Result, plural};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration [default: sickbay.toml]
    path: Option<PathBuf>,
    /// Print the whole configuration, with every default and every path in full
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(arguments: &Arguments, env: &Env) -> Result {
    let path = arguments.path.clone().or_else(|| env.options.config.clone());
    let path = path.unwrap_or_else(|| PathBuf::from(FILE_NAME));
    if !path.exists() {
        let message = format!("there is no configuration {}", path.display());
        return Err(Failure::new(Exit::NotFound, message).hint("write one with `sickbay init`"));
    }
    let config = match Config::load(&path) {
        Ok(config) => config,
        Err(errors) => {
            // What is wrong is what was asked for, so it is an answer of its own.
            if env.out.json {
                env.out.answer(&problems(&errors), |_| String::new())?;
                return Ok(Exit::Problems);
            }
            return Err(Failure::config(&errors, &env.out, Exit::Problems));
        }
    };
    let queues: Vec<_> = config.queues.keys().collect();
    let value = serde_json::json!({ "file": path, "queues": queues, "problems": [] });
    env.out.answer(&value, |_| {
        if arguments.print {
            return config.to_toml();
        }
        let handled = config.queues.values().filter(|queue| queue.handler.is_some()).count() as u64;
        let queues = plural(queues.len() as u64, "queue");
        format!("{} is right: {queues}, {}\n", path.display(), plural(handled, "handler"))
    })?;
    Ok(Exit::Done)
}

fn problems(errors: &sickbay_cli::config::ConfigErrors) -> serde_json::Value {
    let problems = errors.problems.iter().map(|problem| {
        serde_json::json!({
            "code": problem.sort,
            "message": problem.message,
            "line": problem.place.as_ref().map(|place| place.line),
            "column": problem.place.as_ref().map(|place| place.column),
            "help": problem.help,
        })
    });
    serde_json::json!({ "file": errors.file, "queues": [], "problems": problems.collect::<Vec<_>>() })
}
