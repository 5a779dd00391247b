//! Is a store on PostgreSQL well?

use std::time::Duration;

use sickbay::{Clock as _, Examination, Instance, PostgresStore, SystemClock, TableState};
use sickbay_cli::config::{PostgresAddress, show_duration};

use super::super::database;
use super::Report;
use crate::output::{ago, count, plural};

/// The oldest server that the tests know.
const VERSION_MIN: i32 = 130_000;
/// A transaction open for longer keeps tables from being cleaned up.
const PIN_AGE_MAX: Duration = Duration::from_secs(60);
/// As many row versions that nobody needs are ordinary.
const DEAD_MIN: u64 = 50_000;
/// Heartbeats come every five seconds.
const BEAT_AGE_MAX: Duration = Duration::from_secs(30);
/// Times in logs and in the store differ by more than is comfortable.
const SKEW_MAX: Duration = Duration::from_secs(5);

pub(super) async fn examine(address: &PostgresAddress, report: &mut Report) {
    let clock = SystemClock::new();
    let options = match address.options() {
        Ok(options) => options.connections(1),
        Err(error) => return report.bad("database", error.to_string(), "look at the address of the store"),
    };
    let before = clock.now();
    let seen = match PostgresStore::examine(address.reveal(), &options).await {
        Ok(seen) => seen,
        Err(error) => {
            let failure = database::failure(address, &error);
            return report.bad(
                "database",
                failure.to_string(),
                "see what the code means with `sickbay explain CODE`",
            );
        }
    };
    let halfway = before.millis() + (clock.now().millis() - before.millis()) / 2;
    report.good("database", address.to_string());
    examine_server(&seen, report);
    examine_schema(address, &seen, report);
    examine_settings(&seen, report);
    examine_tables(&seen, report);
    examine_pins(&seen, report);
    examine_instances(&seen, report);
    examine_clock(seen.now.millis() - halfway, report);
}

fn examine_server(seen: &Examination, report: &mut Report) {
    let detail = format!("PostgreSQL {}", seen.server_version);
    if seen.server_version_number < VERSION_MIN {
        report.bad("server", detail, "use PostgreSQL 13 or newer");
    } else {
        report.good("server", detail);
    }
}

fn examine_schema(address: &PostgresAddress, seen: &Examination, report: &mut Report) {
    let (name, needed) = (address.schema(), seen.schema_version_needed);
    match seen.schema_version {
        None => report.bad("version", format!("there is no schema {name}"), "run `sickbay migrate`"),
        Some(version) if version < needed => {
            report.bad(
                "version",
                format!("schema {name} is {version}, not {needed}"),
                "run `sickbay migrate`",
            );
        }
        Some(version) if version > needed => {
            let detail = format!("schema {name} is {version}; this program knows {needed}");
            report.bad("version", detail, "use the newer sickbay that made it");
        }
        Some(_) if seen.functions_are_old => {
            let detail = format!("the functions of schema {name} are those of an earlier version");
            report.bad("version", detail, "run `sickbay migrate`");
        }
        Some(version) => report.good("version", format!("schema {name} is {version}")),
    }
    if seen.missing_indexes.is_empty() {
        report.good("indexes", "all are there");
    } else {
        let detail = format!("missing or not valid: {}", seen.missing_indexes.join(", "));
        report.bad(
            "indexes",
            detail,
            "make them again: `sickbay migrate --dry-run` on an empty schema shows how",
        );
    }
}

fn examine_settings(seen: &Examination, report: &mut Report) {
    const WANTED: [(&str, &str, &str); 6] = [
        ("autovacuum", "on", "turn it on: without it the tables only grow"),
        ("track_counts", "on", "turn it on: autovacuum needs it"),
        ("fsync", "on", "turn it on: without it a power cut destroys the database"),
        ("full_page_writes", "on", "turn it on: without it a power cut can destroy the database"),
        ("synchronous_commit", "on", "turn it on: without it a crash loses what was acknowledged"),
        ("default_transaction_read_only", "off", "turn it off, or name the primary instead of a replica"),
    ];
    let value =
        |name: &str| seen.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let mut well = Vec::new();
    for (name, wanted, advice) in WANTED {
        match value(name) {
            // More than is needed is as well.
            Some(value) if value == wanted || name == "synchronous_commit" && value.starts_with("remote") => {
                well.push(format!("{name} {value}"));
            }
            Some(value) => report.bad("settings", format!("{name} is {value}"), advice),
            None => {}
        }
    }
    if let Some(isolation) = value("default_transaction_isolation") {
        well.push(format!("isolation {isolation}"));
    }
    report.good("settings", well.join(", "));
}

fn examine_tables(seen: &Examination, report: &mut Report) {
    let shown = |table: &TableState| {
        let (live, dead) = (count(table.rows_live), count(table.rows_dead));
        format!("{}: {live} rows, {dead} dead ones, {} KiB", table.name, count(table.bytes / 1024))
    };
    let bloated = |table: &&TableState| table.rows_dead > DEAD_MIN && table.rows_dead > 2 * table.rows_live;
    let advice = "autovacuum cannot keep up or is held back: see the transactions, or run VACUUM on it";
    for table in seen.tables.iter().filter(bloated) {
        report.bad("bloat", shown(table), advice);
    }
    let (dead, bytes) =
        seen.tables.iter().fold((0, 0), |sum, table| (sum.0 + table.rows_dead, sum.1 + table.bytes));
    let tables = plural(seen.tables.len() as u64, "table");
    report.good("tables", format!("{tables}, {} KiB, {} dead rows", count(bytes / 1024), count(dead)));
}

fn examine_pins(seen: &Examination, report: &mut Report) {
    let mut quiet = true;
    for pin in seen.pins.iter().filter(|pin| pin.age >= PIN_AGE_MAX || pin.transactions > 1_000_000) {
        quiet = false;
        let seconds = Duration::from_secs(pin.age.as_secs());
        let detail = format!("{} ({}) for {}", pin.who, pin.state, show_duration(seconds));
        report.bad("horizon", detail, "end it: as long as it is open, what was deleted cannot be cleaned up");
    }
    if quiet {
        report.good("horizon", "no transaction is open for long");
    }
}

fn examine_instances(seen: &Examination, report: &mut Report) {
    let shown = |instance: &Instance| {
        let name = instance.name.as_deref().unwrap_or("without a name");
        let beat = ago(seen.now.since(instance.beat_at));
        format!("{name}, process {:x}, seen {beat} ago, holds {}", instance.process.0, count(instance.holds))
    };
    for instance in &seen.instances {
        let silent = seen.now.millis() - instance.beat_at.millis() > BEAT_AGE_MAX.as_millis() as i64;
        if silent && instance.holds > 0 {
            let advice =
                "it died or cannot reach the database: what it holds comes back when its leases run out";
            report.bad("instance", shown(instance), advice);
        } else if !silent {
            report.good("instance", shown(instance));
        }
    }
}

fn examine_clock(skew: i64, report: &mut Report) {
    let detail = format!("this machine and the database differ by {} ms", count(skew.unsigned_abs()));
    if skew.unsigned_abs() > SKEW_MAX.as_millis() as u64 {
        report.bad("clock", detail, "the database's clock counts; set the time of one of them");
    } else {
        report.good("clock", detail);
    }
}

#[cfg(test)]
mod tests {
    use sickbay::{Pin, ProcessId, Timestamp};

    use super::*;

    fn well() -> Examination {
        Examination {
            server_version: "15.4".to_owned(),
            server_version_number: 150_004,
            schema_version: Some(1),
            schema_version_needed: 1,
            functions_are_old: false,
            settings: [("autovacuum", "on"), ("fsync", "on"), ("synchronous_commit", "remote_apply")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            now: Timestamp::from_millis(1_000_000),
            tables: vec![table(40_000, 49_000)],
            pins: vec![pin(59)],
            missing_indexes: Vec::new(),
            instances: vec![instance(999_000, 5)],
        }
    }

    fn table(rows_live: u64, rows_dead: u64) -> TableState {
        TableState { name: "waiting".to_owned(), rows_live, rows_dead, bytes: 8192 }
    }

    fn pin(seconds: u64) -> Pin {
        let age = Duration::from_secs(seconds);
        Pin { who: "report, pid 7".to_owned(), state: "idle in transaction".to_owned(), age, transactions: 9 }
    }

    fn instance(beat_at: i64, holds: u64) -> Instance {
        let beat_at = Timestamp::from_millis(beat_at);
        Instance {
            process: ProcessId(0xab),
            name: Some("one".to_owned()),
            opened_at: beat_at,
            beat_at,
            holds,
        }
    }

    /// What is bad about it, in words.
    fn bad(seen: &Examination, skew: i64) -> Vec<String> {
        let mut report = Report { store: String::new(), findings: Vec::new() };
        examine_server(seen, &mut report);
        examine_settings(seen, &mut report);
        examine_tables(seen, &mut report);
        examine_pins(seen, &mut report);
        examine_instances(seen, &mut report);
        examine_clock(skew, &mut report);
        let bad = report.findings.iter().filter(|finding| !finding.ok);
        bad.map(|finding| format!("{}: {}", finding.what, finding.detail)).collect()
    }

    #[test]
    fn a_database_in_good_order_is_well() {
        assert_eq!(bad(&well(), -4_000), Vec::<String>::new());
    }

    #[test]
    fn a_transaction_that_is_open_for_a_minute_is_named() {
        let seen = Examination { pins: vec![pin(61)], ..well() };
        assert_eq!(bad(&seen, 0), ["horizon: report, pid 7 (idle in transaction) for 1m1s"]);
    }

    #[test]
    fn a_bloated_table_a_silent_holder_and_a_wrong_clock_are_named() {
        let seen = Examination {
            tables: vec![table(100, 60_000)],
            instances: vec![instance(900_000, 5), instance(800_000, 0)],
            ..well()
        };
        assert_eq!(
            bad(&seen, 600_000),
            [
                "bloat: waiting: 100 rows, 60,000 dead ones, 8 KiB",
                "instance: one, process ab, seen 1m40s ago, holds 5",
                "clock: this machine and the database differ by 600,000 ms"
            ]
        );
    }

    #[test]
    fn an_old_server_and_settings_that_lose_data_are_named() {
        let settings = [("autovacuum", "off"), ("fsync", "off"), ("synchronous_commit", "local")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let seen = Examination {
            server_version: "12.9".to_owned(),
            server_version_number: 120_009,
            settings,
            ..well()
        };
        assert_eq!(
            bad(&seen, 0),
            [
                "server: PostgreSQL 12.9",
                "settings: autovacuum is off",
                "settings: fsync is off",
                "settings: synchronous_commit is local"
            ]
        );
    }
}
