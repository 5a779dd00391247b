//! `sickbay doctor`: is the store well?

mod postgres;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use sickbay_server::{connect, socket_path};

use super::Env;
use super::reach::StoreName;
use crate::output::{Exit, Result, count, escape};

/// Less room than this on the disk is a problem.
const ROOM_MIN: u64 = 256 << 20;
/// A log that grows beyond this is not being written back.
const LOG_MAX: u64 = 512 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Read every page of the file, which takes its time
    #[arg(long)]
    full: bool,
}

#[derive(Serialize)]
struct Report {
    store: String,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl Report {
    fn good(&mut self, what: &'static str, detail: impl Into<String>) {
        self.findings.push(Finding { what, ok: true, detail: detail.into(), advice: None });
    }

    fn bad(&mut self, what: &'static str, detail: impl Into<String>, advice: &'static str) {
        self.findings.push(Finding { what, ok: false, detail: detail.into(), advice: Some(advice) });
    }

    fn text(&self) -> String {
        let line = |finding: &Finding| {
            let sign = if finding.ok { "ok " } else { "BAD" };
            let advice =
                finding.advice.map(|advice| format!("\n                 {advice}")).unwrap_or_default();
            format!("{sign}  {:<10}  {}{advice}\n", finding.what, escape(&finding.detail))
        };
        self.findings.iter().map(line).collect()
    }
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    let (config, problem) = match env.config() {
        Ok(config) => (config, None),
        Err(failure) => (None, Some(failure)),
    };
    let name = env.store_name(config.as_ref())?;
    let store = match &name {
        StoreName::File(path) => path.display().to_string(),
        StoreName::Database(address) => address.to_string(),
    };
    let mut report = Report { store, findings: Vec::new() };
    report.good("program", format!("sickbay {}, SQLite {}", env!("CARGO_PKG_VERSION"), rusqlite::version()));
    match (&config, problem) {
        (_, Some(_)) => report.bad("config", "it is broken", "see what is wrong with `sickbay check`"),
        (Some(config), None) => report.good("config", config.path.display().to_string()),
        (None, None) => report.good("config", "none"),
    }
    match &name {
        StoreName::Database(address) => postgres::examine(address, &mut report).await,
        StoreName::File(path) => {
            if path.exists() {
                examine_file(path, arguments.full, &mut report);
                examine_log(path, &mut report);
                examine_owner(path, &mut report).await;
            } else {
                let advice = "name it with --store, or make one with `sickbay queue define NAME`";
                report.bad("file", format!("{} is not there", path.display()), advice);
            }
            examine_room(path, &mut report);
        }
    }
    let well = report.findings.iter().all(|finding| finding.ok);
    env.out.answer(&report, |_| report.text())?;
    Ok(if well { Exit::Done } else { Exit::Problems })
}

fn examine_file(path: &Path, full: bool, report: &mut Report) {
    let bytes = path.metadata().map(|metadata| metadata.len()).unwrap_or(0);
    report.good("file", format!("{} ({} KiB)", path.display(), count(bytes / 1024)));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let checked = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(Duration::from_secs(5))?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let pragma = if full { "PRAGMA integrity_check(5)" } else { "PRAGMA quick_check(5)" };
        let mut statement = connection.prepare(pragma)?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
        Ok((version, lines.collect::<rusqlite::Result<Vec<_>>>()?))
    });
    match checked {
        Ok((version, lines)) => {
            report.good("version", format!("schema {version}"));
            if lines.iter().all(|line| line == "ok") {
                report.good("integrity", if full { "every page is right" } else { "ok" });
            } else {
                let advice = "stop everything, copy the file, and recover it with `sqlite3 FILE .recover`";
                report.bad("integrity", lines.join("; "), advice);
            }
        }
        Err(error) => {
            let advice = "it is no store, or may not be read by this user";
            report.bad("integrity", format!("it cannot be read: {error}"), advice);
        }
    }
}

fn examine_log(path: &Path, report: &mut Report) {
    let bytes = beside(path, "-wal").metadata().map(|metadata| metadata.len()).unwrap_or(0);
    let detail = format!("{} KiB", count(bytes / 1024));
    if bytes > LOG_MAX {
        report.bad("log", detail, "something keeps a transaction open; stop what reads the file for long");
    } else {
        report.good("log", detail);
    }
}

/// Who owns it, seen by the lock and by the socket.
async fn examine_owner(path: &Path, report: &mut Report) {
    let lock = std::fs::File::open(beside(path, ".lock"));
    let is_free = lock.as_ref().map_or(true, |lock| lock.try_lock_shared().is_ok());
    // Given back at once: nobody is to be kept out by a look.
    drop(lock);
    let holder = std::fs::read_to_string(beside(path, ".lock")).unwrap_or_default();
    let holder: String = holder.chars().filter(char::is_ascii_digit).take(10).collect();
    let socket = socket_path(path);
    match (is_free, connect(path).await) {
        (true, _) => report.good("owner", "nobody: the next command is"),
        (false, Ok(client)) => {
            report.good("owner", format!("process {holder}"));
            let health = client.health().await;
            let detail =
                health.map(|health| format!("{} answers, sickbay {}", socket.display(), health.version));
            report.good("socket", detail.unwrap_or_else(|problem| problem.to_string()));
        }
        (false, Err(problem)) => {
            report.good("owner", format!("process {holder}"));
            let advice = "other commands cannot use the store until that process ends or serves";
            report.bad("socket", problem.to_string(), advice);
        }
    }
}

fn examine_room(path: &Path, report: &mut Report) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[cfg(unix)]
    if let Ok(disk) = rustix::fs::statvfs(folder) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let detail = format!("{} MiB are free", count(free >> 20));
        if free < ROOM_MIN {
            report.bad("disk", detail, "make room: a full disk refuses pushes");
        } else {
            report.good("disk", detail);
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
