//! Packages that some tests need besides a Rust toolchain, such as a database server.
//!
//! A need that is missing is installed where that is nobody's loss: as root, with `apt-get`. Where it
//! cannot be, its tests are left out by name and that is said loudly; with `CI=true` it is a failure.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::cargo::has_program;
use crate::steps::Ending;

/// A package, how to find it, and the tests that cannot run without it.
pub(crate) struct Need {
    /// As its makers write it.
    pub(crate) name: &'static str,
    /// Whether it is installed.
    pub(crate) found: fn() -> bool,
    /// The Debian package that brings it.
    pub(crate) apt: &'static str,
    /// What the names of the tests that need it have in common: a module such as `postgres::`.
    pub(crate) tests: &'static str,
}

/// Everything that any test of the workspace needs.
pub(crate) const NEEDS: &[Need] = &[
    Need { name: "PostgreSQL", found: has_postgres, apt: "postgresql", tests: "postgres::" },
    Need { name: "PgBouncer", found: has_pgbouncer, apt: "pgbouncer", tests: "postgres::pooler::" },
    Need { name: "RabbitMQ", found: has_rabbitmq, apt: "rabbitmq-server", tests: "servers::rabbitmq::" },
];

/// What the fault runs need besides: its part, and what it is called there.
pub(crate) const FAKETIME: Need =
    Need { name: "libfaketime", found: has_faketime, apt: "libfaketime", tests: "jumps of the wall clock" };

fn has_faketime() -> bool {
    let mut folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let is_there = |folder: &Path| folder.join("faketime/libfaketime.so.1").is_file();
    is_there(Path::new("/usr/lib64")) || folders.any(|folder| is_there(&folder.path()))
}

/// Debian keeps the programs of each version in a folder of their own, outside the search path.
fn has_postgres() -> bool {
    let mut versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    has_program("initdb") || versions.any(|version| version.path().join("bin/initdb").is_file())
}

fn has_pgbouncer() -> bool {
    Path::new("/usr/sbin/pgbouncer").is_file() || Path::new("/usr/bin/pgbouncer").is_file()
}

fn has_rabbitmq() -> bool {
    Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").is_file()
}

/// The needs that are still missing after `install` was tried on each.
pub(crate) fn missing<'n>(
    needs: impl IntoIterator<Item = &'n Need>,
    install: impl Fn(&Need) -> bool,
) -> Vec<&'n Need> {
    let is_there = |need: &Need| (need.found)() || (install(need) && (need.found)());
    needs.into_iter().filter(|need| !is_there(need)).collect()
}

/// Installs the package with `apt-get` when we are root; true if that went well.
pub(crate) fn install(need: &Need) -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    if !is_root || !has_program("apt-get") {
        return false;
    }
    eprintln!("installing {} for the tests `{}`", need.apt, need.tests);
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", need.apt];
    // The list of packages may be fresh enough already, so that only the second call counts.
    let _ = apt_get(&["update", "--quiet"]);
    apt_get(&install)
}

fn apt_get(arguments: &[&str]) -> bool {
    // In run level 1 a package does not start the service that it brings.
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Whether this is continuous integration, where everything must run.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Says what is missing and how to get it.
pub(crate) fn report(missing: &[&Need], in_ci: bool) -> Result<Ending> {
    if missing.is_empty() {
        return Ok(Ending::Passed);
    }
    for need in missing {
        eprintln!("!! {} is not installed: the tests `{}` DO NOT RUN", need.name, need.tests);
        eprintln!("!! install it with: apt-get install {}", need.apt);
    }
    let names: Vec<&str> = missing.iter().map(|need| need.name).collect();
    let why = format!("not installed: {}; its tests did not run", names.join(", "));
    Ok(if in_ci { Ending::Failed(why) } else { Ending::Skipped(why) })
}

#[cfg(test)]
mod tests {
    use super::{Need, missing, report};
    use crate::steps::Ending;

    const HERE: Need = Need { name: "Here", found: || true, apt: "here", tests: "here::" };
    const GONE: Need = Need { name: "Gone", found: || false, apt: "gone", tests: "gone::" };

    #[test]
    fn only_what_is_not_there_is_installed_and_only_what_stays_away_is_missing() {
        let needs = [HERE, GONE];
        let refuse = |need: &Need| {
            assert_eq!(need.name, "Gone");
            false
        };
        assert_eq!(missing(&needs, refuse).iter().map(|need| need.name).collect::<Vec<_>>(), ["Gone"]);
    }

    #[test]
    fn an_installation_that_claims_success_is_looked_at_again() {
        assert_eq!(missing(&[GONE], |_| true).len(), 1);
    }

    #[test]
    fn a_missing_package_fails_in_ci_and_is_named_elsewhere() {
        let why = "not installed: Gone; its tests did not run".to_owned();
        assert_eq!(report(&[&GONE], false).unwrap(), Ending::Skipped(why.clone()));
        assert_eq!(report(&[&GONE], true).unwrap(), Ending::Failed(why));
        assert_eq!(report(&[], true).unwrap(), Ending::Passed);
    }
}
