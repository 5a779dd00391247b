//! Many seeds, the shortest script of one that fails, and scripts as files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sickbay_testkit::script::Command;

use crate::generate::script;
use crate::oracle::Violation;
use crate::stores::Kind;
use crate::world::{Done, Failed, Looks, run};

/// Which schedules to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// Steps of each.
    pub steps: usize,
    /// Every seed divisible by this also runs on SQLite; 0 for none, 1 for all.
    pub sqlite_every: u64,
    /// Every seed runs in memory.
    pub memory: bool,
    /// Every seed runs on PostgreSQL.
    pub postgres: bool,
    /// How many at once.
    pub threads: usize,
    /// How long a failing script is made shorter.
    pub shrink_for: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            seeds: 1000,
            steps: 10_000,
            sqlite_every: 20,
            memory: true,
            postgres: false,
            threads: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            shrink_for: Duration::from_secs(60),
        }
    }
}

/// A schedule that failed, with the shortest script that shows it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// The store.
    pub kind: Kind,
    /// What was found with the whole script.
    pub violation: Violation,
    /// The shortest script that still fails.
    pub script: Vec<Command>,
    /// What it shows.
    pub shown: Violation,
}

impl Finding {
    /// The script as a file that can be kept.
    pub fn file(&self) -> String {
        let mut text = format!(
            "# {} on {}, seed {}\n# {}\n",
            self.shown.invariant,
            self.kind.as_str(),
            self.seed,
            self.shown.text.replace('\n', "\n# ")
        );
        for command in &self.script {
            text.push_str(&format!("{command}\n"));
        }
        text
    }
}

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Schedules run on each store.
    pub schedules: BTreeMap<&'static str, u64>,
    /// What they did.
    pub done: Done,
    /// Those that failed.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    fn count(&self, invariants: &[&str]) -> usize {
        self.findings.iter().filter(|finding| invariants.contains(&finding.violation.invariant)).count()
    }

    /// The figures, as one document.
    pub fn json(&self) -> Value {
        let mut document = json!({
            "schedules": self.schedules.values().sum::<u64>(),
            "steps": self.done.steps,
            "messages": self.done.messages,
            "deliveries": self.done.deliveries,
            "seconds": self.took.as_secs_f64(),
            "lost": self.count(&["I1", "I8"]),
            "unexplained": self.count(&["I3", "I4", "I7"]),
            "bystanders_blamed": self.count(&["I6"]),
            "silently_wrong": self.count(&["I9"]),
            "violations": self.findings.len(),
            "failing_seeds": self.findings.iter().map(|f| json!({"seed": f.seed, "store": f.kind.as_str(),
                "invariant": f.violation.invariant, "text": f.violation.text})).collect::<Vec<_>>(),
        });
        for (store, count) in &self.schedules {
            document[format!("schedules_on_{store}")] = json!(count);
        }
        document
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a chore takes is measured by the machine's clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Runs the schedules of a plan. Stops at the first that fails, and makes its script short.
pub fn run_plan(plan: &Plan) -> Report {
    run_plan_for(plan, Duration::from_secs(24 * 3600))
}

/// The same for at most so long.
pub fn run_plan_for(plan: &Plan, limit: Duration) -> Report {
    let started = now();
    let (next, stop) = (AtomicU64::new(plan.seed), AtomicBool::new(false));
    let report = Mutex::new(Report::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) && started.elapsed() < limit {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= plan.seed + plan.seeds {
                return;
            }
            for kind in kinds(plan, seed) {
                let outcome = run_seed(kind, seed, plan.steps);
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                *report.schedules.entry(kind.as_str()).or_default() += 1;
                match outcome {
                    Ok(done) => add(&mut report.done, done),
                    Err(failed) => {
                        if !stop.swap(true, Ordering::Relaxed) {
                            report.findings.push(shortest(kind, seed, plan, &failed));
                        }
                        return;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = now() - started;
    report
}

fn kinds(plan: &Plan, seed: u64) -> Vec<Kind> {
    let mut kinds = Vec::new();
    if plan.memory {
        kinds.push(Kind::Memory);
    }
    if plan.sqlite_every > 0 && seed.is_multiple_of(plan.sqlite_every) {
        kinds.push(Kind::Sqlite);
    }
    if plan.postgres {
        kinds.push(Kind::Postgres);
    }
    kinds
}

fn add(sum: &mut Done, done: Done) {
    sum.steps += done.steps;
    sum.messages += done.messages;
    sum.deliveries += done.deliveries;
}

/// One schedule.
pub fn run_seed(kind: Kind, seed: u64, steps: usize) -> Result<Done, Failed> {
    run(kind, Looks::Seldom, &script(seed, steps))
}

fn shortest(kind: Kind, seed: u64, plan: &Plan, failed: &Failed) -> Finding {
    let mut whole = script(seed, plan.steps);
    whole.truncate(failed.at + 1);
    let until = now() + plan.shrink_for;
    let invariant = failed.violation.invariant;
    let fails = |shorter: &[Command]| {
        now() < until
            && run(kind, Looks::Always, shorter).is_err_and(|failed| failed.violation.invariant == invariant)
    };
    let script = shrink(whole, fails);
    let shown = run(kind, Looks::Always, &script)
        .err()
        .map_or_else(|| failed.violation.clone(), |failed| failed.violation);
    Finding { seed, kind, violation: failed.violation.clone(), script, shown }
}

/// Drops steps, first many at once and then one by one, as long as `fails` still holds.
fn shrink(mut script: Vec<Command>, fails: impl Fn(&[Command]) -> bool) -> Vec<Command> {
    let mut size = script.len().div_ceil(2).max(1);
    loop {
        let before = script.len();
        let mut at = script.len();
        // From the end: what came last matters most, and what is gone there makes every later try cheaper.
        while at > 0 {
            let from = at.saturating_sub(size);
            let shorter: Vec<Command> = script[..from].iter().chain(&script[at..]).cloned().collect();
            if fails(&shorter) {
                script = shorter;
            }
            at = from;
        }
        if size == 1 && script.len() == before {
            return script;
        }
        size = (size / 2).max(1);
    }
}

/// Reads a script: one step to a line, `#` begins a comment.
pub fn read(text: &str) -> Result<Vec<Command>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let parse = |line: &str| line.parse::<Command>().map_err(anyhow::Error::msg);
    lines.filter(|line| !line.is_empty()).map(parse).collect()
}

/// Runs every script of a folder on these stores. Answers their names with what is wrong with them.
pub fn run_folder(folder: &Path, kinds: &[Kind]) -> Result<Vec<(String, Result<(), String>)>> {
    let mut results = Vec::new();
    let listing = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<_> = listing.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    for file in files.into_iter().filter(|file| file.extension().is_some_and(|ext| ext == "txt")) {
        let script = read(&std::fs::read_to_string(&file)?)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for kind in kinds {
            let outcome = run(*kind, Looks::Always, &script).map(drop).map_err(|failed| {
                format!("step {}: {}: {}", failed.at, failed.violation.invariant, failed.violation.text)
            });
            results.push((format!("{name} on {}", kind.as_str()), outcome));
        }
    }
    Ok(results)
}
