//! The binary `sickbay`: arguments, wiring, printing.

mod bench;
mod command;
mod demo;
mod output;

use std::process::ExitCode;

use clap::Parser as _;

use command::{Arguments, Env};
use output::{Failure, Output};

/// Deliveries are made on the store's thread and dropped on the handlers': the system's allocator makes them
/// wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let out = Output::new(arguments.options.json, arguments.options.quiet, arguments.options.color);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failure::from(anyhow::Error::from(error)), &out),
    };
    let env = Env { options: arguments.options, out };
    match runtime.block_on(arguments.command.run(&env)) {
        Ok(code) => code,
        Err(failure) => fail(&failure, &out),
    }
}

fn fail(failure: &Failure, out: &Output) -> ExitCode {
    failure.report(out);
    failure.exit.into()
}
