//! `sickbay init`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use sickbay_cli::config::{FILE_NAME, init::STARTER};

use super::Env;
use crate::output::{Exit, Failure, Result};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments, env: &Env) -> Result {
    let path = env.options.config.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    write(&path, arguments.force).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already", path.display());
            Failure::new(Exit::Refused, message)
                .hint("replace it with --force, or check it with `sickbay check`")
        }
        _ => Failure::file(&path, &error),
    })?;
    env.out.answer(&serde_json::json!({ "written": path }), |_| {
        format!(
            "{} is written. Next:\n  sickbay check\n  sickbay push orders '{{\"order\": 7}}'\n  sickbay serve\n",
            path.display()
        )
    })?;
    Ok(Exit::Done)
}

fn write(path: &Path, force: bool) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(path)?.write_all(STARTER.as_bytes())
}
