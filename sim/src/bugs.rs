//! Known defects of this field, switched on one at a time: the harness must find each.
//!
//! They are compiled in with the feature `seeded-bugs` only. Two of them are about the disk and are
//! found by cutting power under the file, which is not done here.

use std::time::Duration;

use serde_json::{Value, json};

use crate::run::{Plan, Report};

/// How long the search for one may take.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What finds a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// Schedules on SQLite.
    Simulator,
    /// Power cuts under the file.
    PowerCuts,
}

/// One defect and whether it was found.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The defect.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Who is to find it.
    pub finder: Finder,
    /// How it showed, if it did.
    pub shown: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Hunt {
    /// One line of the table.
    pub fn json(&self) -> Value {
        json!({"name": self.name, "about": self.about, "finder": format!("{:?}", self.finder),
            "found": self.shown.is_some(), "shown": self.shown, "seconds": self.took.as_secs_f64()})
    }
}

/// The schedules in which a defect is looked for.
#[cfg_attr(not(feature = "seeded-bugs"), allow(dead_code))]
fn plan() -> Plan {
    Plan {
        seeds: 4000,
        steps: 600,
        sqlite_every: 1,
        memory: false,
        shrink_for: Duration::ZERO,
        ..Plan::default()
    }
}

#[cfg_attr(not(feature = "seeded-bugs"), allow(dead_code))]
fn hunt(name: &'static str, about: &'static str, finder: Finder, report: &Report) -> Hunt {
    let shown = report.findings.first();
    let shown = shown.map(|f| format!("seed {}: {}: {}", f.seed, f.violation.invariant, f.violation.text));
    Hunt { name, about, finder, shown, took: report.took }
}

/// Looks for every defect that the simulator is to find.
#[cfg(feature = "seeded-bugs")]
pub fn hunt_all(wanted: Option<&str>, mut tell: impl FnMut(&Hunt)) -> Vec<Hunt> {
    use sickbay_core::seeded::{Bug, activate};
    let mut hunts = Vec::new();
    for bug in Bug::ALL.iter().filter(|bug| wanted.is_none_or(|wanted| bug.name() == wanted)) {
        let finder = match bug {
            Bug::AcknowledgedBeforeCommit | Bug::FsyncSkipped => Finder::PowerCuts,
            _ => Finder::Simulator,
        };
        let report = match finder {
            Finder::PowerCuts => Report::default(),
            Finder::Simulator => {
                activate(Some(*bug));
                let report = crate::run::run_plan_for(&plan(), LIMIT);
                activate(None);
                report
            }
        };
        let found = hunt(bug.name(), bug.about(), finder, &report);
        tell(&found);
        hunts.push(found);
    }
    hunts
}

/// Without the feature there are none.
#[cfg(not(feature = "seeded-bugs"))]
pub fn hunt_all(_wanted: Option<&str>, _tell: impl FnMut(&Hunt)) -> Vec<Hunt> {
    Vec::new()
}
