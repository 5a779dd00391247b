//! The commands, one file per noun. `Env` and `reach` say how each of them gets at the store.

mod check;
mod completions;
mod copy;
mod database;
mod doctor;
mod exit_codes;
mod explain;
mod init;
mod man;
mod message;
mod migrate;
mod policy;
mod push;
mod quarantine;
mod queue;
mod reach;
mod serve;
mod signature;
mod stats;
mod stream;
mod watch;
mod work;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::{Color, Output, Result};
use crate::{bench, demo};

/// A durable queue in which no failing message blocks the others, gets lost or is forgotten.
#[derive(Parser)]
#[command(name = "sickbay", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Begin with `sickbay demo`, or with `sickbay init` and `sickbay serve`.
`sickbay help exit-codes` lists the exit codes, `sickbay explain CODE` explains an error.";

/// What every command can be told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The store: a file, or postgres://… [default: that of sickbay.toml, or sickbay.db]
    #[arg(
        long,
        global = true,
        value_name = "STORE",
        env = "SICKBAY_STORE",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub(crate) store: Option<PathBuf>,
    /// The configuration [default: sickbay.toml in the current folder, if there is one]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// Ask the server at this address instead of a store of this machine
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) server: Option<String>,
    /// Print one JSON document on stdout
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Say nothing but what was asked for
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// When to use colours
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    pub(crate) color: Color,
}

/// What a command works with.
pub(crate) struct Env {
    pub(crate) options: Options,
    pub(crate) out: Output,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Push messages: one, from a file or stdin, or one per line
    Push(push::Arguments),
    /// Queues: what is in them and what they want
    #[command(subcommand)]
    Queue(queue::Command),
    /// Figures of all queues
    Stats(stats::Arguments),
    /// One message: everything known of it, and what can be done with it
    #[command(subcommand)]
    Message(message::Command),
    /// Dead letters: look at them, send them back, discard them
    #[command(subcommand, alias = "dlq")]
    Quarantine(quarantine::Command),
    /// Streams whose messages keep their order
    #[command(subcommand)]
    Stream(stream::Command),
    /// Policies: what a queue does about failures
    #[command(subcommand)]
    Policy(policy::Command),
    /// The signatures of error texts, one per line
    Signature(signature::Arguments),
    /// Own the store: answer other commands, run the handlers of the configuration
    Serve(serve::Arguments),
    /// Run the handlers of the configuration, also beside a running `sickbay serve`
    Work(work::Arguments),
    /// Processes that work on the store
    #[command(subcommand)]
    Worker(worker::Command),
    /// Write a configuration to begin with
    Init(init::Arguments),
    /// Say whether a configuration is right
    Check(check::Arguments),
    /// Examine the store: version, integrity, owner, room; on PostgreSQL settings, bloat, instances
    Doctor(doctor::Arguments),
    /// Make the schema of a store on PostgreSQL, or bring it to this version
    Migrate(migrate::Arguments),
    /// Copy a store with quarantine and history: SQLite to PostgreSQL, back, or into its own kind
    Copy(copy::Arguments),
    /// Explain an error code
    Explain(explain::Arguments),
    /// List the exit codes
    #[command(after_help = exit_codes::text())]
    ExitCodes,
    /// Pay 10,000 orders, some of them poisonous, and show what became of each
    Demo(demo::Arguments),
    /// The worker process of the demo
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
    /// Measure what this machine can do, in about 15 seconds
    Bench(bench::Arguments),
    /// Print completions for a shell
    Completions(completions::Arguments),
    /// Write the manual pages
    Man(man::Arguments),
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result<ExitCode> {
        let exit = match self {
            Self::Demo(arguments) => return Ok(demo::run(arguments, &env.out).await?),
            Self::DemoWorker(arguments) => return Ok(demo::work(arguments).await?),
            Self::Push(arguments) => push::run(arguments, env).await?,
            Self::Queue(command) => command.run(env).await?,
            Self::Stats(arguments) => stats::run(&arguments, env).await?,
            Self::Message(command) => command.run(env).await?,
            Self::Quarantine(command) => command.run(env).await?,
            Self::Stream(command) => command.run(env).await?,
            Self::Policy(command) => command.run(env).await?,
            Self::Signature(arguments) => signature::run(&arguments, env)?,
            Self::Serve(arguments) => serve::run(&arguments, env).await?,
            Self::Work(arguments) => work::run(&arguments, env).await?,
            Self::Worker(command) => command.run(env).await?,
            Self::Init(arguments) => init::run(&arguments, env)?,
            Self::Check(arguments) => check::run(&arguments, env)?,
            Self::Doctor(arguments) => doctor::run(&arguments, env).await?,
            Self::Migrate(arguments) => migrate::run(&arguments, env).await?,
            Self::Copy(arguments) => copy::run(&arguments, env).await?,
            Self::Explain(arguments) => explain::run(&arguments, env)?,
            Self::ExitCodes => exit_codes::run(env)?,
            Self::Bench(arguments) => bench::run(&arguments, &env.out).await?,
            Self::Completions(arguments) => completions::run(&arguments, env)?,
            Self::Man(arguments) => man::run(&arguments, env)?,
        };
        Ok(exit.into())
    }
}
