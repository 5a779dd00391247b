//! `sickbay exit-codes`.

use serde::Serialize;

use super::Env;
use crate::output::{Exit, Result};

#[derive(Serialize)]
struct Row {
    code: u8,
    meaning: &'static str,
}

/// Shown by `sickbay help exit-codes`.
pub(super) fn text() -> String {
    ROWS.iter().map(|&(exit, meaning)| format!("{}  {meaning}\n", exit as u8)).collect()
}

const ROWS: &[(Exit, &str)] = &[
    (Exit::Done, "done"),
    (Exit::Failed, "failed: it was tried, and something went wrong"),
    (Exit::Usage, "usage: the command, the configuration or what it was given is wrong"),
    (Exit::Problems, "found problems (check, doctor, copy)"),
    (Exit::NotFound, "not found: no such queue, message, file or code"),
    (Exit::Refused, "refused: the state of things does not allow it"),
    (Exit::Unreachable, "the store cannot be reached: it is not there, or its owner does not answer"),
];

pub(crate) fn run(env: &Env) -> Result {
    let rows: Vec<Row> = ROWS.iter().map(|&(exit, meaning)| Row { code: exit as u8, meaning }).collect();
    env.out.answer(&rows, |_| text())?;
    Ok(Exit::Done)
}
