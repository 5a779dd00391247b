//! `sickbay completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Env;
use crate::output::{Exit, Result};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// For which shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, env: &Env) -> Result {
    let mut script = Vec::new();
    let mut command = super::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "sickbay", &mut script);
    env.out.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
