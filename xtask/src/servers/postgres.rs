//! A private PostgreSQL server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::guard::{Folder, Guard};
use super::machine::{self, User};

/// Settings of every server: durable, with memory and WAL enough that checkpoints stay out of the way.
const SETTINGS: [&str; 12] = [
    "listen_addresses=127.0.0.1",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "wal_sync_method=fdatasync",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "min_wal_size=1GB",
    "checkpoint_timeout=15min",
    "max_connections=200",
    "log_min_messages=warning",
    "log_checkpoints=off",
];

/// Settings of a server that tests of what is stored run on: it need not survive the machine.
const FAST: [&str; 5] = [
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=128MB",
    "max_locks_per_transaction=256",
];

/// A PostgreSQL server of our own. Dropping it stops the server and removes its files.
#[derive(Debug)]
pub(crate) struct Postgres {
    /// The address of the database, with user and password.
    pub(crate) url: String,
    // Stopped before its folder is removed.
    server: Option<Guard>,
    programs: PathBuf,
    port: u16,
    user: User,
    settings: Vec<&'static str>,
    folder: Folder,
}

impl Postgres {
    /// Installs PostgreSQL if it is missing, makes a cluster in a temporary folder and starts it.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(&SETTINGS)
    }

    /// The same for tests, which do not pull the plug on it.
    pub(crate) fn start_fast() -> Result<Self> {
        Self::start_with(&[&SETTINGS[..], &FAST[..]].concat())
    }

    fn start_with(settings: &[&'static str]) -> Result<Self> {
        let programs = match find_programs() {
            Some(programs) => programs,
            None => {
                machine::install("postgresql")?;
                find_programs().context("the package postgresql brought no initdb")?
            }
        };
        let user = User::of_package("postgres")?;
        let folder = Folder::create("postgres", &user)?;
        let password = machine::password()?;
        let password_file = folder.write("password", &password, &user)?;
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.arg("--pgdata").arg(folder.path().join("data")).arg("--pwfile").arg(password_file);
        initdb.args([
            "--username=postgres",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        initdb.current_dir(folder.path()).stdout(std::process::Stdio::null());
        machine::run(user.apply(&mut initdb))?;
        let port = machine::free_port()?;
        let url = format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres");
        let settings = settings.to_vec();
        let mut postgres = Self { url, server: None, programs, port, user, settings, folder };
        postgres.launch()?;
        Ok(postgres)
    }

    /// Stops the server as a crash would: open transactions are lost and recovery runs at the next start.
    pub(crate) fn stop_immediate(&mut self) {
        self.server = None;
    }

    /// Crashes the server and starts it again on the same address.
    #[allow(dead_code, reason = "for measurements of recovery")]
    pub(crate) fn restart_immediate(&mut self) -> Result<()> {
        self.stop_immediate();
        self.launch()
    }

    fn launch(&mut self) -> Result<()> {
        let data = self.folder.path().join("data");
        let mut server = Command::new(self.programs.join("postgres"));
        server.arg("-D").arg(&data).arg("-p").arg(self.port.to_string());
        server.arg("-k").arg(self.folder.path());
        for setting in &self.settings {
            server.args(["-c", setting]);
        }
        // SIGQUIT is PostgreSQL's "immediate" shutdown.
        let mut guard = Guard::start(&server, "QUIT", &self.folder, &self.user)?;
        let status = data.join("postmaster.pid");
        guard.wait_until(|| {
            let status = fs::read_to_string(&status).unwrap_or_default();
            status.lines().nth(7).is_some_and(|line| line.trim() == "ready")
        })?;
        self.server = Some(guard);
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop_immediate();
    }
}

/// The folder of the newest PostgreSQL installed.
fn find_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter(|version| version.path().join("bin/initdb").is_file())
        .max_by_key(|version| version.file_name().to_string_lossy().parse::<u32>().unwrap_or(0));
    match newest {
        Some(version) => Some(version.path().join("bin")),
        None => machine::in_path("initdb")?.parent().map(PathBuf::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(postgres: &Postgres, sql: &str) -> String {
        let psql = postgres.programs.join("psql");
        let output = Command::new(psql).arg(&postgres.url).args(["-Atc", sql]).output().expect("psql runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    #[test]
    fn a_commit_outlives_an_immediate_restart_and_the_folder_goes_with_the_server() {
        let mut postgres = Postgres::start().expect("PostgreSQL starts");
        let folder = postgres.folder.path().to_owned();
        assert_eq!(query(&postgres, "SHOW fsync"), "on");
        assert_eq!(query(&postgres, "SHOW listen_addresses"), "127.0.0.1");
        query(&postgres, "CREATE TABLE kept AS SELECT 42 AS answer");
        postgres.restart_immediate().expect("PostgreSQL starts again");
        assert_eq!(query(&postgres, "SELECT answer FROM kept"), "42");
        let port = postgres.port;
        postgres.stop_immediate();
        assert!(!machine::is_listening(port));
        drop(postgres);
        assert!(!folder.exists());
    }
}
