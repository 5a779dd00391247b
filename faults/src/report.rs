//! Runs the parts and gathers what came of them.

mod postgres;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde_json::{Map, Value, json};
use sickbay_faults::disk::Lie;
use sickbay_faults::vfs::Drive;
use sickbay_faults::{broken, flips, in_parallel, migration, power};

use crate::plan::Plan;

/// So many findings are told; the others are only counted.
const TOLD_MAX: usize = 20;
/// Once in so many scripts several callers act at once.
const GROUPS_ONCE_IN: u64 = 4;

/// Cuts the power at every operation of what a seed stands for.
type CutPower = fn(&Arc<Drive>, u64, power::Plan) -> power::Outcome;
type Part = fn(&mut Report, &Plan, &[Arc<Drive>]) -> Result<()>;

/// What came of all parts.
#[derive(Default)]
pub(crate) struct Report {
    numbers: Map<String, Value>,
    lost: u64,
    unexplained: u64,
    blamed: u64,
    silently_wrong: u64,
    uncaught: u64,
    findings: Vec<String>,
    skipped: Vec<String>,
    seconds: Map<String, Value>,
    next_seed: u64,
}

/// Runs the parts that the plan wants.
pub(crate) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report { next_seed: plan.seed, ..Report::default() };
    let drives: Vec<Arc<Drive>> =
        (0..plan.threads).map(|thread| Arc::new(Drive::new(&format!("faults-{thread}")))).collect();
    let parts: [(&str, Part); 9] = [
        ("controls", Report::controls),
        ("power", Report::power),
        ("disk", Report::disk),
        ("flips", Report::flips),
        ("kills", Report::kills),
        ("processes", Report::processes),
        ("postgres", Report::postgres),
        ("interleavings", Report::interleavings),
        ("bugs", Report::bugs),
    ];
    for (name, part) in parts.into_iter().filter(|(name, _)| plan.wants(name)) {
        let start = now();
        part(&mut report, plan, &drives)?;
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{name:<10} {seconds:>6.1} s");
        report.seconds.insert(name.to_owned(), json!((seconds * 10.0).round() / 10.0));
    }
    Ok(report)
}

impl Report {
    /// True if nothing was found that should not be there.
    pub(crate) fn is_well(&self) -> bool {
        self.lost + self.unexplained + self.blamed + self.silently_wrong + self.uncaught == 0
    }

    /// One JSON document.
    pub(crate) fn document(&self, plan: &Plan) -> Value {
        let mut document = self.numbers.clone();
        let sums = [
            ("lost", self.lost),
            ("unexplained", self.unexplained),
            ("bystanders_blamed", self.blamed),
            ("silently_wrong", self.silently_wrong),
            ("controls_uncaught", self.uncaught),
            ("first_seed", plan.seed),
            ("next_seed", self.next_seed),
        ];
        document.extend(sums.map(|(name, number)| (name.to_owned(), json!(number))));
        document.insert("quick".to_owned(), json!(plan.quick));
        document.insert("seconds_of_parts".to_owned(), Value::Object(self.seconds.clone()));
        document.insert("skipped".to_owned(), json!(self.skipped));
        document.insert("findings".to_owned(), json!(self.findings));
        Value::Object(document)
    }

    fn count(&mut self, name: &str, number: u64) {
        self.numbers.insert(name.to_owned(), json!(number));
    }

    /// A finding is about a delivery without a cause, or about something lost.
    fn found(&mut self, findings: Vec<String>) {
        for finding in findings {
            eprintln!("{finding}");
            if finding.contains("without an end on record") {
                self.unexplained += 1;
            } else {
                self.lost += 1;
            }
            if self.findings.len() < TOLD_MAX {
                self.findings.push(finding);
            }
        }
    }

    /// The harness itself: what it must find if a disk lies, if a store answers too early, and if nothing guards the
    /// files.
    fn controls(&mut self, plan: &Plan, drives: &[Arc<Drive>]) -> Result<()> {
        let short = power::Plan { findings_max: 1, ..power::Plan::default() };
        let lying = power::run(&drives[0], plan.seed, power::Plan { lies: Lie::Always, ..short });
        let early = power::run(&drives[0], plan.seed, power::Plan { answers_early: true, ..short });
        let together = power::run_group(&drives[0], plan.seed, power::Plan { answers_early: true, ..short });
        let unguarded = flips::run(&drives[0], plan.seed, 300, flips::Guard::Removed);
        let controls = [
            ("a disk that lies about syncing", lying.findings),
            ("a store that answers before it commits", early.findings),
            ("a store that answers several callers before it commits", together.findings),
            ("files without sums and mark", unguarded.findings),
        ];
        let mut caught = Map::new();
        for (name, findings) in controls {
            self.uncaught += u64::from(findings.is_empty());
            caught.insert(name.to_owned(), json!(!findings.is_empty()));
        }
        self.numbers.insert("controls_caught".to_owned(), Value::Object(caught));
        Ok(())
    }

    /// The known defects that only a power cut shows: each must be found within a minute.
    #[cfg(feature = "seeded-bugs")]
    fn bugs(&mut self, plan: &Plan, drives: &[Arc<Drive>]) -> Result<()> {
        use sickbay_core::seeded::{Bug, activate};
        let bugs = [Bug::AcknowledgedBeforeCommit, Bug::FsyncSkipped];
        let mut found = 0;
        for bug in bugs {
            let start = now();
            activate(Some(bug));
            let short = power::Plan { findings_max: 1, ..power::Plan::default() };
            let seeds = (plan.seed..).take_while(|_| start.elapsed().as_secs() < 60);
            // A store that cannot even be opened again on a healthy disk is found out too.
            let hunt = |seed| {
                let run = std::panic::AssertUnwindSafe(|| power::run(&drives[0], seed, short).findings);
                std::panic::catch_unwind(run).unwrap_or_else(|_| vec!["it breaks by itself".to_owned()])
            };
            let finding = seeds.flat_map(hunt).next();
            activate(None);
            let shown = if finding.is_some() { "found by power cuts" } else { "NOT FOUND" };
            eprintln!("{:<26} {:>6.2} s  {shown}", bug.name(), start.elapsed().as_secs_f64());
            found += u64::from(finding.is_some());
        }
        self.count("seeded_bugs", bugs.len() as u64);
        self.count("seeded_bugs_found", found);
        self.uncaught += bugs.len() as u64 - found;
        Ok(())
    }

    #[cfg(not(feature = "seeded-bugs"))]
    fn bugs(&mut self, _: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        anyhow::bail!("no defects are compiled in; build with --features seeded-bugs")
    }

    fn power(&mut self, plan: &Plan, drives: &[Arc<Drive>]) -> Result<()> {
        let (cuts, operations, start) = (AtomicU64::new(0), AtomicU64::new(0), now());
        let (of_groups, of_migrations) = (AtomicU64::new(0), AtomicU64::new(0));
        let findings = Mutex::new(Vec::new());
        let end = in_parallel(
            drives.len(),
            plan.seed,
            |thread| drives[thread].clone(),
            |drive, seed| {
                let enough = match plan.duration {
                    Some(duration) => start.elapsed() >= duration,
                    None => cuts.load(Ordering::Relaxed) >= plan.power_cuts,
                };
                if enough {
                    return false;
                }
                let (run, of): (CutPower, _) = match seed % 16 {
                    rest if rest % GROUPS_ONCE_IN == 0 => (power::run_group, Some(&of_groups)),
                    1 | 2 => (migration::run, Some(&of_migrations)),
                    _ => (power::run, None),
                };
                let outcome = run(drive, seed, power::Plan::default());
                of.map(|of| of.fetch_add(outcome.cuts, Ordering::Relaxed));
                cuts.fetch_add(outcome.cuts, Ordering::Relaxed);
                operations.fetch_add(outcome.operations, Ordering::Relaxed);
                findings.lock().unwrap_or_else(PoisonError::into_inner).extend(outcome.findings);
                true
            },
        );
        self.next_seed = self.next_seed.max(end);
        self.count("power_cuts", cuts.into_inner());
        self.count("power_cuts_with_several_callers", of_groups.into_inner());
        self.count("power_cuts_during_migrations", of_migrations.into_inner());
        self.count("operations_cut_at", operations.into_inner());
        self.found(findings.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn disk(&mut self, plan: &Plan, drives: &[Arc<Drive>]) -> Result<()> {
        let (faults, findings) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let (went_on, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
        let end = in_parallel(
            drives.len(),
            plan.seed,
            |thread| drives[thread].clone(),
            |drive, seed| {
                if faults.load(Ordering::Relaxed) >= plan.disk_faults {
                    return false;
                }
                let outcome = broken::run(drive, seed, 100);
                faults.fetch_add(outcome.faults, Ordering::Relaxed);
                went_on.fetch_add(outcome.went_on, Ordering::Relaxed);
                cuts.fetch_add(outcome.cuts, Ordering::Relaxed);
                findings.lock().unwrap_or_else(PoisonError::into_inner).extend(outcome.findings);
                true
            },
        );
        self.next_seed = self.next_seed.max(end);
        self.count("disk_faults", faults.into_inner());
        self.count("disk_faults_survived", went_on.into_inner());
        self.count("power_cuts_after_disk_faults", cuts.into_inner());
        self.found(findings.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn flips(&mut self, plan: &Plan, drives: &[Arc<Drive>]) -> Result<()> {
        let total = Mutex::new(flips::Outcome::default());
        let end = in_parallel(
            drives.len(),
            plan.seed,
            |thread| drives[thread].clone(),
            |drive, seed| {
                if total.lock().unwrap_or_else(PoisonError::into_inner).flips >= plan.flips {
                    return false;
                }
                let outcome = flips::run(drive, seed, 200, flips::Guard::There);
                total.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                true
            },
        );
        let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.next_seed = self.next_seed.max(end);
        self.count("bit_flips", total.flips);
        self.count("other_damages", total.others);
        self.count("damages_noticed", total.noticed);
        self.count("damages_harmless", total.harmless);
        self.silently_wrong += total.findings.len() as u64;
        total.findings.iter().for_each(|finding| eprintln!("{finding}"));
        self.findings.extend(total.findings.into_iter().take(TOLD_MAX));
        Ok(())
    }

    #[cfg(unix)]
    fn kills(&mut self, plan: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        // Each on files of its own.
        let parts = plan.threads.min(2) as u64;
        let outcomes = std::thread::scope(|scope| {
            let share = plan.kills.div_ceil(parts);
            let run = |part| move || sickbay_faults::process::kills(share, plan.seed + part);
            let running: Vec<_> = (0..parts).map(|part| scope.spawn(run(part))).collect();
            let ended = running.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended
                .map(|ended| ended.map_err(|_| anyhow!("the one who kills panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        self.next_seed = self.next_seed.max(plan.seed + parts);
        let sum = |of: fn(&sickbay_faults::process::Kills) -> u64| outcomes.iter().map(of).sum::<u64>();
        self.count("kills", sum(|one| one.kills));
        self.count("pushed_between_kills", sum(|one| one.pushed));
        self.count("kills_with_several_in_hand", sum(|one| one.deaths_in_company));
        if outcomes.iter().any(|one| one.pushed < one.kills || one.deaths_in_company < one.kills / 20) {
            self.found(vec!["those that were killed had hardly pushed or held anything".to_owned()]);
        }
        self.blamed += sum(|one| one.blamed);
        for one in outcomes {
            self.unexplained += one.unexplained.len() as u64;
            self.lost += one.lost.len() as u64;
            self.findings.extend(one.lost.into_iter().chain(one.unexplained).take(TOLD_MAX));
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn kills(&mut self, _: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        self.skipped.push("kills: only where there are signals".to_owned());
        Ok(())
    }

    #[cfg(unix)]
    fn processes(&mut self, plan: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        use sickbay_faults::process::{Ended, deploys, full, jumps, pause, remote, replaced, upgrade};
        self.count("deploys", u64::from(plan.deploys));
        let scenarios = [
            ("deploys", deploys(plan.deploys)?),
            ("a process stopped past its lease", pause()?),
            ("a worker on the socket stopped past its lease", remote()?),
            ("an old and a new program on one file", upgrade()?),
            ("a file replaced by an older copy", replaced()?),
            ("a full disk", full()?),
            ("jumps of the wall clock", jumps()?),
        ];
        for (name, ended) in scenarios {
            match ended {
                Ended::Well => {}
                Ended::Skipped(why) => self.skipped.push(format!("{name}: {why}")),
                Ended::Badly(what) => self.found(vec![format!("{name}: {what}")]),
            }
        }
        self.skipped.iter().for_each(|skipped| eprintln!("SKIPPED {skipped}"));
        Ok(())
    }

    #[cfg(not(unix))]
    fn processes(&mut self, _: &Plan, _: &[Arc<Drive>]) -> Result<()> {
        self.skipped.push("processes: only where there are signals".to_owned());
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a chore is timed by the machine's clock")]
fn now() -> Instant {
    Instant::now()
}
