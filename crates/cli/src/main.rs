//! The binary `sickbay`: arguments, wiring, printing.

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A durable queue in which no failing message blocks the others, gets lost or is forgotten.
#[derive(Parser)]
#[command(name = "sickbay", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Pays 10,000 orders, some of them poisonous, and shows what became of each
    Demo(demo::Arguments),
    /// The worker process of the demo
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Demo(arguments) => demo::run(arguments).await,
            Command::DemoWorker(arguments) => demo::work(arguments).await,
        }
    });
    match result {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("sickbay: {error:#}");
    ExitCode::FAILURE
}
