//! What became of the orders.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;
use sickbay::{MessageId, PageRequest, QuarantineFilter, Reason, Sickbay};

use super::{orders, queue};

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

/// Dead letters that share a signature.
#[derive(Debug, Serialize)]
struct Incident {
    signature: String,
    reason: &'static str,
    count: u64,
    sample: String,
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
    let mut incidents: BTreeMap<String, Incident> = BTreeMap::new();
    let (mut bystanders_blamed, mut killer_quarantined, mut killer_lone_crashes) = (0, false, 0);
    let mut page = PageRequest { rows_max: 500, after: None };
    loop {
        let rows = bay.store().quarantine(&QuarantineFilter::default(), page).await?;
        for row in rows.rows {
            if row.reason == Reason::Crash {
                if row.id == killer {
                    (killer_quarantined, killer_lone_crashes) = (true, row.counters.charges);
                }
                bystanders_blamed += u64::from(row.id != killer);
            }
            let signature = row.signature.to_string();
            let incident = incidents.entry(signature.clone()).or_insert_with(|| Incident {
                signature,
                reason: row.reason.as_str(),
                count: 0,
                sample: row.error.chars().take(70).collect(),
            });
            incident.count += 1;
        }
        page.after = rows.next;
        if page.after.is_none() {
            break;
        }
    }
    let ledger = rusqlite::Connection::open(path)?;
    let mut signatures: Vec<Incident> = incidents.into_values().collect();
    signatures.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.signature.cmp(&b.signature)));
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{} orders in {} s", self.messages, self.seconds)?;
        writeln!(f, "  completed    {:>6}", self.completed)?;
        writeln!(f, "  duplicates   {:>6}  acknowledged without being run", self.duplicates)?;
        writeln!(f, "  retried      {:>6}  times", self.retried)?;
        writeln!(f, "  quarantined  {:>6}  in {} incidents:", self.quarantined, self.incidents)?;
        for incident in &self.signatures {
            let Incident { signature, reason, count, sample } = incident;
            writeln!(f, "    {count:>5}  {signature}  {reason:<19} {}", sample.escape_debug())?;
        }
        writeln!(
            f,
            "  the worker died {} times; bystanders blamed: {}",
            self.worker_deaths, self.bystanders_blamed
        )?;
        let (actual, expected) = (self.ledger_actual, self.ledger_expected);
        let word = if actual == expected { "balanced to the cent" } else { "DOES NOT BALANCE" };
        writeln!(f, "  ledger       {actual} of {expected} cents: {word}")
    }
}
