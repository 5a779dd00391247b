//! Worker processes and servers that die, on PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use sickbay_faults::vfs::Drive;

use super::{Report, TOLD_MAX};
use crate::plan::Plan;

impl Report {
    #[cfg(unix)]
    pub(super) fn postgres(&mut self, plan: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        use sickbay_faults::postgres::{crashes, workers};
        if self.lacks_server("postgres") {
            return Ok(());
        }
        let outcome = workers(&std::env::current_exe()?, plan.workers())?;
        self.count("postgres_worker_kills", outcome.kills);
        self.count("postgres_worker_deaths", outcome.deaths);
        self.count("postgres_handled", outcome.handled);
        self.count("postgres_redeliveries", outcome.redeliveries);
        self.count("postgres_leases_expired", outcome.expiries);
        self.count("postgres_quarantined", outcome.quarantined);
        self.blamed += outcome.blamed;
        self.lost += outcome.lost.len() as u64;
        self.unexplained += outcome.unexplained.len() as u64;
        self.tell(outcome.lost.into_iter().chain(outcome.unexplained));
        let outcome = crashes(plan.server_crashes)?;
        self.count("postgres_server_crashes", outcome.cycles);
        self.count("postgres_pushed_between_crashes", outcome.pushed);
        self.count("postgres_calls_to_try_again", outcome.refused);
        self.lost += outcome.lost.len() as u64;
        self.tell(outcome.lost.into_iter());
        Ok(())
    }

    /// Several programs in the middle of their calls at once.
    #[cfg(unix)]
    pub(super) fn interleavings(&mut self, plan: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        if self.lacks_server("interleavings") {
            return Ok(());
        }
        let outcome = sickbay_faults::postgres::at_once(plan.seed..plan.seed + plan.interleavings, None)?;
        self.next_seed = self.next_seed.max(plan.seed + outcome.schedules);
        self.count("interleavings", outcome.schedules);
        self.count("interleaved_calls", outcome.calls);
        self.count("interleaved_calls_stopped", outcome.stopped);
        self.count("interleaved_waits", outcome.waits);
        self.lost += outcome.findings.len() as u64;
        self.tell(outcome.findings.into_iter());
        Ok(())
    }

    #[cfg(unix)]
    fn lacks_server(&mut self, part: &str) -> bool {
        let lacks = !sickbay_testkit::cluster::Cluster::is_installed();
        if lacks {
            self.skipped.push(format!("{part}: PostgreSQL is not installed"));
            eprintln!("SKIPPED {part}: PostgreSQL is not installed");
        }
        lacks
    }

    #[cfg(not(unix))]
    pub(super) fn interleavings(&mut self, _: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        self.skipped.push("interleavings: only where there are signals".to_owned());
        Ok(())
    }

    #[cfg(not(unix))]
    pub(super) fn postgres(&mut self, _: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        self.skipped.push("postgres: only where there are signals".to_owned());
        Ok(())
    }

    #[cfg(unix)]
    fn tell(&mut self, findings: impl Iterator<Item = String>) {
        for finding in findings.take(TOLD_MAX) {
            eprintln!("{finding}");
            self.findings.push(finding);
        }
    }
}
