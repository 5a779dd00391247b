//! The chores of the project: `cargo xtask <command>`.

mod bench;
mod bench_command;
mod bench_peers;
mod cargo;
mod counts;
mod faults;
mod needs;
mod servers;
mod signatures;
mod sim;
mod steps;
mod suggest;
mod suite;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

/// One chore. A new one is a module and a line in [`COMMANDS`].
struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&Path, &[String]) -> Result<ExitCode>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[filter]",
        about: "format, clippy, tidy, every test, doc tests, examples, faults, a soak; with a filter only the tests it matches",
        run: suite::test,
    },
    Command {
        name: "bench",
        arguments: "[--quick] [--json] [--command] [P1 …]",
        about: "the figures that we promise, against the machine's limits and against peers; with --command those of the command",
        run: bench::command,
    },
    Command {
        name: "faults",
        arguments: "[--quick] [--json] [--seed N] [--minutes N] [part …]",
        about: "breaks disks, files and processes; every promise must hold. Without --quick it is a long run, kept in faults/ledger.jsonl",
        run: faults::command,
    },
    Command {
        name: "signatures",
        arguments: "DIR [--json]",
        about: "grouping accuracy of signatures over labelled texts (CSV files: text, cause)",
        run: |_, arguments| signatures::run(arguments).map(|()| ExitCode::SUCCESS),
    },
    Command {
        name: "sim",
        arguments: "[--seeds N] [--seed S] [--bugs] …",
        about: "schedules in virtual time, watched by an oracle; --bugs: every known defect is found; --all: both",
        run: sim::sim,
    },
    Command {
        name: "soak",
        arguments: "[--minutes N] [--json]",
        about: "mixed load with faults on one file: nothing is lost, memory and files stay flat",
        run: sim::soak,
    },
    Command { name: "tidy", arguments: "", about: "the house rules that are checks", run: tidy::command },
    Command {
        name: "ci",
        arguments: "",
        about: "everything `test` does, and docs, licences and banned crates; format and clippy must be there",
        run: suite::ci,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("{}", unknown(name));
        return ExitCode::from(2);
    };
    match cargo::workspace_root().and_then(|root| (command.run)(&root, rest)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut text = String::from("The chores of the project.\n\nUsage: cargo xtask <command>\n\nCommands:\n");
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        text.push_str(&format!("  {call:<32} {}\n", command.about));
    }
    text
}

fn unknown(name: &str) -> String {
    let names = COMMANDS.iter().map(|command| command.name);
    match suggest::nearest(name, names) {
        Some(near) => format!("unknown command '{name}'; did you mean '{near}'?"),
        None => format!("unknown command '{name}'\n\n{}", usage()),
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, unknown, usage};

    #[test]
    fn the_usage_lists_every_command() {
        for command in COMMANDS {
            assert!(usage().contains(&format!("\n  {}", command.name)), "{} is missing", command.name);
        }
    }

    #[test]
    fn a_misspelt_command_is_answered_with_the_nearest_one() {
        assert_eq!(unknown("tets"), "unknown command 'tets'; did you mean 'test'?");
        assert_eq!(unknown("tidi"), "unknown command 'tidi'; did you mean 'tidy'?");
        assert!(unknown("philosophy").contains("Usage:"));
    }
}
