//! Running cargo and finding out what is installed beside it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The folder with the workspace's `Cargo.toml`, found upwards from the current one.
pub(crate) fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current folder cannot be read")?;
    let is_root = |folder: &&Path| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|line| line.trim() == "[workspace]") && folder.join("xtask").is_dir()
    };
    match here.ancestors().find(is_root) {
        Some(root) => Ok(root.to_path_buf()),
        None => {
            bail!("not inside the workspace: no Cargo.toml with [workspace] at or above the current folder")
        }
    }
}

/// A call of the cargo that started us, in the workspace's root.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root).args(arguments);
    // Output that is read for its counts goes through a pipe, where cargo would drop the colours.
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command
}

/// Whether `cargo <subcommand>` is installed and answers.
pub(crate) fn has_subcommand(root: &Path, subcommand: &str) -> bool {
    answers(cargo(root, &[subcommand, "--version"]))
}

/// Whether a program of this name can be started from the search path.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn answers(mut command: Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::{answers, cargo, has_program, has_subcommand, workspace_root};

    #[test]
    fn what_is_not_installed_is_reported_as_missing() {
        let root = workspace_root().unwrap();
        assert!(answers(cargo(&root, &["--version"])));
        assert!(!has_subcommand(&root, "no-such-subcommand"));
        assert!(!has_program("no-such-program"));
    }
}
