//! Dead letters that share a signature.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use sickbay::{DeadLetter, MessageId, PageRequest, QuarantineFilter, Sickbay, StoreError};

/// So much of an error is shown.
const SAMPLE_CHARACTERS: usize = 70;
const ROWS: u32 = 500;

/// Dead letters with one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Incident {
    pub(super) signature: String,
    pub(super) reason: String,
    pub(super) count: u64,
    pub(super) sample: String,
}

/// The incidents of a quarantine that only grows.
#[derive(Default)]
pub(super) struct Incidents {
    seen: HashSet<MessageId>,
    by_signature: BTreeMap<String, Incident>,
}

impl Incidents {
    /// Adds what was quarantined since the last look, in at most so many pages; `each` is told of every one.
    pub(super) async fn look(
        &mut self,
        bay: &Sickbay,
        pages_max: usize,
        mut each: impl FnMut(&DeadLetter),
    ) -> Result<(), StoreError> {
        let mut page = PageRequest { rows_max: ROWS, after: None };
        for _ in 0..pages_max {
            let found = bay.store().quarantine(&QuarantineFilter::default(), page).await?;
            // The newest come first: where one is known, all that follow are.
            let mut known = false;
            for row in &found.rows {
                known = !self.seen.insert(row.id);
                if known {
                    break;
                }
                each(row);
                self.add(row);
            }
            page.after = found.next;
            if known || page.after.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, row: &DeadLetter) {
        let signature = row.signature.to_string();
        let incident = self.by_signature.entry(signature.clone()).or_insert_with(|| Incident {
            signature,
            reason: row.reason.as_str().to_owned(),
            count: 0,
            sample: row.error.chars().take(SAMPLE_CHARACTERS).collect(),
        });
        incident.count += 1;
    }

    /// The largest first.
    pub(super) fn list(&self) -> Vec<Incident> {
        let mut incidents: Vec<Incident> = self.by_signature.values().cloned().collect();
        incidents.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.signature.cmp(&b.signature)));
        incidents
    }
}
