//! `sickbay signature`: which errors are the same one.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;

use serde::Serialize;
use sickbay::core::signature::{Signature, Subject, signatures};

use super::Env;
use crate::output::{Exit, Failure, Result, Table, count};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file with the error texts, one per line [default: stdin]
    file: Option<PathBuf>,
    /// Put those together that are the same error, with how many there are
    #[arg(long)]
    group: bool,
    /// The queue they are from: goes into the signature
    #[arg(long, default_value = "", hide_default_value = true)]
    queue: String,
    /// The message type they are of: goes into the signature
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
    /// The reason they have: goes into the signature
    #[arg(long, default_value = "HandlerException")]
    reason: String,
}

#[derive(Serialize)]
struct Line<'t> {
    signature: Signature,
    text: &'t str,
}

#[derive(Serialize)]
struct Group<'t> {
    signature: Signature,
    count: u64,
    text: &'t str,
    /// The first of them as it was read.
    example: &'t str,
}

pub(crate) fn run(arguments: &Arguments, env: &Env) -> Result {
    let input = read(arguments)?;
    let texts: Vec<&str> = input.lines().collect();
    let subjects: Vec<Subject<'_>> = texts
        .iter()
        .map(|text| Subject {
            queue: &arguments.queue,
            message_type: arguments.message_type.as_deref(),
            reason: &arguments.reason,
            text,
            schema_path: None,
        })
        .collect();
    let signed = signatures(&subjects);
    if arguments.group {
        let groups = group(&signed, &texts);
        env.out.answer(&groups, |out| {
            let mut table = Table::new(["SIGNATURE", "COUNT", "ERROR"]);
            for group in &groups {
                table.row([group.signature.to_string(), count(group.count), group.text.to_owned()]);
            }
            table.render(out)
        })?;
        return Ok(Exit::Done);
    }
    let lines: Vec<Line<'_>> =
        signed.iter().map(|(signature, text)| Line { signature: *signature, text }).collect();
    env.out.answer(&lines, |_| {
        let line = |line: &Line<'_>| format!("{}  {}\n", line.signature, crate::output::escape(line.text));
        lines.iter().map(line).collect()
    })?;
    Ok(Exit::Done)
}

fn read(arguments: &Arguments) -> Result<String> {
    let mut bytes = Vec::new();
    match &arguments.file {
        Some(path) => bytes = std::fs::read(path).map_err(|error| Failure::file(path, &error))?,
        None => {
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|error| Failure::new(Exit::Failed, format!("stdin cannot be read: {error}")))?;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The most frequent first; those of the same number in the order read.
fn group<'t>(signed: &'t [(Signature, String)], texts: &[&'t str]) -> Vec<Group<'t>> {
    let mut places = HashMap::new();
    let mut groups: Vec<Group<'t>> = Vec::new();
    for ((signature, text), example) in signed.iter().zip(texts) {
        let place = *places.entry(*signature).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.count += 1,
            None => groups.push(Group { signature: *signature, count: 1, text, example }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}
