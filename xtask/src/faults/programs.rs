//! The programs that break things: built one after the other, then kept apart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::cargo::cargo;

/// A program, with or without the known defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    package: &'static str,
    /// Known defects are compiled in.
    seeded: bool,
}

impl Program {
    pub(super) const FAULTS: Self = Self { package: "sickbay-faults", seeded: false };
    pub(super) const SIM: Self = Self { package: "sickbay-sim", seeded: false };
    pub(super) const SEEDED_FAULTS: Self = Self { package: "sickbay-faults", seeded: true };
    pub(super) const SEEDED_SIM: Self = Self { package: "sickbay-sim", seeded: true };

    pub(super) fn name(self) -> &'static str {
        self.package
    }
}

/// Programs that are ready to be started. They lie in a folder of their own: a build with defects replaces the one
/// without, and a program whose file is gone cannot start itself as a child.
pub(super) struct Programs {
    paths: HashMap<Program, PathBuf>,
    _folder: TempDir,
}

impl Programs {
    /// Builds what is needed.
    pub(super) fn build(root: &Path, wanted: impl Iterator<Item = Program>) -> Result<Self> {
        let here = std::env::current_exe().context("the path of this program")?;
        let folder = TempDir::new_in(here.parent().context("a program without a folder")?)?;
        let mut paths = HashMap::new();
        for program in wanted {
            if paths.contains_key(&program) {
                continue;
            }
            let built = build(root, program)?;
            let kept = folder.path().join(format!("{}-{}", program.package, paths.len()));
            std::fs::copy(&built, &kept).with_context(|| format!("copying {}", built.display()))?;
            paths.insert(program, kept);
        }
        Ok(Self { paths, _folder: folder })
    }

    pub(super) fn path(&self, program: Program) -> Result<&Path> {
        self.paths.get(&program).map(PathBuf::as_path).context("a program that was not built")
    }
}

/// Builds a program and answers where it lies.
fn build(root: &Path, program: Program) -> Result<PathBuf> {
    let format = "--message-format=json-render-diagnostics";
    let mut command = cargo(root, &["build", "--release", "--quiet", format, "--package", program.package]);
    if program.seeded {
        command.args(["--features", "seeded-bugs"]);
    }
    let output = command.stderr(Stdio::inherit()).output().context("cargo cannot be started")?;
    ensure!(output.status.success(), "{} does not build", program.package);
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executables
        .find(|path| path.file_stem().is_some_and(|name| name == program.package))
        .with_context(|| format!("cargo built no program {}", program.package))
}
