//! What became of the orders.

use std::path::Path;

use serde::Serialize;
use sickbay::{DeadLetter, MessageId, Reason, Sickbay};

use super::incidents::{Incident, Incidents};
use super::{orders, queue};
use crate::output::{Output, count, escape, excerpt, plural};

/// The figures at the end; with `--json` this is the document.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    messages: u64,
    completed: u64,
    duplicates: u64,
    retried: u64,
    quarantined: u64,
    incidents: usize,
    worker_deaths: u64,
    killer_quarantined: bool,
    killer_lone_crashes: u32,
    bystanders_blamed: u64,
    ledger_expected: i64,
    ledger_actual: i64,
    seconds: f64,
    signatures: Vec<Incident>,
}

impl Report {
    /// Everything ended as it should.
    pub(super) fn is_right(&self) -> bool {
        self.ledger_actual == self.ledger_expected && self.bystanders_blamed == 0 && self.killer_quarantined
    }
}

/// Reads the figures from the store and the ledger.
pub(super) async fn read(
    path: &Path,
    messages: u64,
    killer: MessageId,
    worker_deaths: u64,
    seconds: f64,
) -> anyhow::Result<Report> {
    let bay = Sickbay::open(path)?;
    let stats = bay.store().stats(&queue()?).await?;
    let (mut bystanders_blamed, mut killer_quarantined, mut killer_lone_crashes) = (0, false, 0);
    let mut incidents = Incidents::default();
    let each = |row: &DeadLetter| {
        if row.reason == Reason::Crash {
            if row.id == killer {
                (killer_quarantined, killer_lone_crashes) = (true, row.counters.charges);
            }
            bystanders_blamed += u64::from(row.id != killer);
        }
    };
    incidents.look(&bay, usize::MAX, each).await?;
    let ledger = rusqlite::Connection::open(path)?;
    let signatures = incidents.list();
    Ok(Report {
        messages,
        completed: stats.completed,
        duplicates: stats.duplicates,
        retried: stats.failures.saturating_sub(stats.quarantined),
        quarantined: stats.dead,
        incidents: signatures.len(),
        worker_deaths,
        killer_quarantined,
        killer_lone_crashes,
        bystanders_blamed,
        ledger_expected: orders::expected(messages),
        ledger_actual: ledger
            .query_row("SELECT coalesce(sum(amount_cents), 0) FROM ledger", [], |row| row.get(0))?,
        seconds: (seconds * 100.0).round() / 100.0,
        signatures,
    })
}

impl Report {
    /// The signature of the incident that a person would solve first: the largest.
    pub(super) fn first_signature(&self) -> &str {
        self.signatures.first().map_or("", |incident| &incident.signature)
    }

    /// The report for people.
    pub(super) fn text(&self, out: &Output) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            text.push_str(&words);
            text.push('\n');
        };
        line(out.bold(&format!("{} orders in {} s", count(self.messages), self.seconds)));
        let figure =
            |name: &str, number: u64, words: &str| format!("  {name:<12} {:>10}  {words}", count(number));
        line(figure("paid", self.completed, "each exactly once").trim_end().to_owned());
        line(figure("duplicates", self.duplicates, "acknowledged without being run"));
        line(figure("retried", self.retried, "times"));
        line(figure(
            "quarantined",
            self.quarantined,
            &format!("in {}:", plural(self.incidents as u64, "incident")),
        ));
        let room = out.width.unwrap_or(120).saturating_sub(49);
        for Incident { signature, reason, count: number, sample } in &self.signatures {
            line(format!(
                "    {:>9}  {signature}  {reason:<18} {}",
                count(*number),
                excerpt(&escape(sample), room)
            ));
        }
        line(figure(
            "deaths",
            self.worker_deaths,
            &format!("of the worker; bystanders blamed: {}", self.bystanders_blamed),
        ));
        let (actual, expected) = (self.ledger_actual, self.ledger_expected);
        let word = if actual == expected { "balanced to the cent" } else { "DOES NOT BALANCE" };
        line(format!("  {:<12} {actual} of {expected} cents: {word}", "ledger"));
        text
    }
}
