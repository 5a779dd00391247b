//! `cargo xtask bench`: the figures of FIELD-NOTES' targets, as ratios in one run.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::servers::Postgres;
use crate::{bench_command, bench_peers};

/// A figure, what must be reached and where we are going.
struct Target {
    id: &'static str,
    what: &'static str,
    /// What must be reached and where we are going; nothing for figures that only inform.
    goal: Option<Goal>,
    /// More is better, or less.
    more: bool,
}

struct Goal {
    must: f64,
    aim: f64,
}

const TARGETS: &[Target] = &[
    target("P1", "lifecycle at batch 100, against a hand-written loop", 0.5, 0.8, true),
    target("P2", "64 tasks pushing one each, against fdatasync", 5.0, 10.0, true),
    target("P3", "one task pushing one by one, against fdatasync", 0.3, 0.45, true),
    target("P4", "push to start of handler p50, against effectum", 0.5, 0.25, false),
    target("P5.effectum", "drain, against effectum", 6.0, 12.0, true),
    target("P5.graphile_worker", "drain, against graphile_worker", 3.0, 6.0, true),
    target("P5.rabbitmq", "drain, against a RabbitMQ quorum queue", 1.5, 3.0, true),
    target("P6.raw", "lifecycle on PostgreSQL at batch 100, against hand-written statements", 0.5, 0.8, true),
    target("P6.graphile_worker", "drain on PostgreSQL, against graphile_worker", 2.0, 4.0, true),
    target("P6.apalis", "drain on PostgreSQL, against apalis-postgres", 4.0, 8.0, true),
    informative("P6.pgmq", "drain on PostgreSQL, against pgmq's SQL in batches of 1000"),
    informative("P6.pgmq_100", "drain on PostgreSQL, against pgmq's SQL in batches of 100"),
    informative("P6.pg_boss", "drain on PostgreSQL, against pg-boss"),
    informative("P6.underway", "drain on PostgreSQL, against underway"),
    target("P7.backlog", "rate with 5 M waiting, against an empty store", 0.7, 0.9, true),
    target("P7.dead", "rate with 1 M dead letters, against an empty store", 0.9, 0.9, true),
    target("P7.stream", "rate with a blocked stream of 1 M, against an empty store", 0.9, 0.9, true),
    target("P7.processed", "rate after 1 M processed, against an empty store", 0.95, 0.9, true),
    target("P7_postgres.backlog", "the same on PostgreSQL with 5 M waiting", 0.7, 0.9, true),
    target("P7_postgres.dead", "the same on PostgreSQL with 1 M dead letters", 0.9, 0.9, true),
    target("P7_postgres.stream", "the same on PostgreSQL with a blocked stream of 1 M", 0.9, 0.9, true),
    target("P7_postgres.processed", "the same on PostgreSQL after 1 M processed", 0.95, 0.9, true),
    target("P7_postgres.pinned", "the same at the end of a minute with a transaction open", 0.7, 0.9, true),
    target("P8", "time with 10 % failing three times, against none", 1.3, 1.2, false),
    target("P8_postgres", "the same on PostgreSQL", 1.3, 1.2, false),
    target("P10.idle_mb", "memory of an idle worker, MB", 30.0, 30.0, false),
    target("P10.backlog_mb", "memory of a worker on 5 M waiting, MB", 150.0, 150.0, false),
];

const fn target(id: &'static str, what: &'static str, must: f64, aim: f64, more: bool) -> Target {
    Target { id, what, goal: Some(Goal { must, aim }), more }
}

const fn informative(id: &'static str, what: &'static str) -> Target {
    Target { id, what, goal: None, more: true }
}

/// Measures and prints a table, or with `--json` one document. `--quick` uses a tenth of the backlog.
pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--command") {
        return bench_command::command(root, arguments);
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let only: Vec<&str> = arguments.iter().filter(|a| a.starts_with('P')).map(String::as_str).collect();
    let unknown =
        arguments.iter().find(|a| !a.starts_with('P') && !["--json", "--quick"].contains(&a.as_str()));
    ensure!(
        unknown.is_none(),
        "bench takes --quick, --json, --command and ids such as P1, not {}",
        unknown.map_or("", |u| u)
    );
    let own = own(root, quick, &only)?;
    let peers = peers(&own, quick)?;
    let figures = figures(&own, &peers);
    let gaps = gaps(&peers);
    if json {
        println!("{}", serde_json::to_string_pretty(&document(&figures, &gaps, &own, &peers, quick))?);
    } else {
        print!("{}", table(&figures, &gaps, quick));
    }
    let is_met = figures.iter().all(|(target, value)| target.is_met(*value))
        && gaps.iter().all(|(target, _)| target.goal.is_none());
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Target {
    fn is_met(&self, value: f64) -> bool {
        let more = self.more;
        self.goal.as_ref().is_none_or(|goal| if more { value >= goal.must } else { value <= goal.must })
    }

    /// The measurement of a peer that the figure compares with, as a path in the peers' document.
    fn peer(&self) -> Option<String> {
        match self.id.split_once('.') {
            None if self.id == "P4" => Some("/latency/effectum".to_owned()),
            Some(("P6", "raw")) => None,
            Some(("P6", "apalis")) => Some("/drain/apalis_postgres".to_owned()),
            Some(("P5" | "P6", peer)) => Some(format!("/drain/{peer}")),
            _ => None,
        }
    }
}

/// Runs our own measurements.
fn own(root: &Path, quick: bool, only: &[&str]) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["run", "--release", "--quiet", "--package", "sickbay-bench", "--"]);
    if quick {
        command.arg("--quick");
    }
    let mut postgres = None;
    if only.is_empty() || ["P6", "P7_postgres", "P8_postgres"].iter().any(|id| only.contains(id)) {
        let server = postgres.insert(Postgres::start()?);
        command.env("SICKBAY_BENCH_POSTGRES", &server.url);
    }
    let output = command.args(only).stderr(Stdio::inherit()).output().context("the benchmark")?;
    ensure!(output.status.success(), "the benchmark: {}", output.status);
    serde_json::from_slice(&output.stdout).context("the benchmark printed no JSON")
}

/// Runs the peers that our figures are compared with.
fn peers(own: &Value, quick: bool) -> Result<Value> {
    let mut peers = Map::new();
    if own.get("P4").is_some() {
        let seconds = if quick { "4" } else { "10" };
        peers.insert("latency".to_owned(), bench_peers::run("latency", &["--seconds", seconds])?);
    }
    let wanted = |id: &str, names: &'static [&'static str]| if own.get(id).is_some() { names } else { &[] };
    let mut only = wanted("P5", &["effectum", "graphile_worker", "rabbitmq"]).to_vec();
    only.extend(wanted("P6", &bench_peers::ON_POSTGRES));
    only.sort_unstable();
    only.dedup();
    if !only.is_empty() {
        // With --quick as many as our own drain of PostgreSQL takes.
        let (count, rounds) = if quick { ("40000", "2") } else { ("100000", "3") };
        let only = &only.join(",");
        let options = ["--count", count, "--rounds", rounds, "--only", only];
        peers.insert("drain".to_owned(), bench_peers::run("drain", &options)?);
    }
    Ok(Value::Object(peers))
}

/// The value of each target that was measured.
fn figures(own: &Value, peers: &Value) -> Vec<(&'static Target, f64)> {
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_f64);
    let value = |target: &Target| match (target.id.split_once('.'), target.peer()) {
        (None, Some(peer)) => Some(number(own, "/P4/p50_ms")? / number(peers, &format!("{peer}/p50_ms"))?),
        (Some((id, _)), Some(peer)) => {
            Some(number(own, &format!("/{id}/drain_per_s"))? / number(peers, &format!("{peer}/drain_per_s"))?)
        }
        (Some(("P6", "raw")), None) => number(own, "/P6/ratio"),
        (Some((id, part)), None) => number(own, &format!("/{id}/{part}")),
        (None, None) => number(own, &format!("/{}/ratio", target.id)),
    };
    TARGETS.iter().filter_map(|target| Some((target, value(target)?))).collect()
}

/// The targets whose peer could not be measured, and why.
fn gaps(peers: &Value) -> Vec<(&'static Target, String)> {
    let error = |target: &Target| {
        Some(peers.pointer(&format!("{}/error", target.peer()?))?.as_str().unwrap_or("no reason").to_owned())
    };
    TARGETS.iter().filter_map(|target| Some((target, error(target)?))).collect()
}

fn document(
    figures: &[(&Target, f64)],
    gaps: &[(&Target, String)],
    own: &Value,
    peers: &Value,
    quick: bool,
) -> Value {
    let mut ratios = Map::new();
    for (target, value) in figures {
        let rounded = json!((value * 1000.0).round() / 1000.0);
        match target.id.split_once('.') {
            None => drop(ratios.insert(target.id.to_owned(), rounded)),
            Some((id, part)) => {
                let group = ratios.entry(id.to_owned()).or_insert_with(|| json!({}));
                group[part] = rounded;
            }
        }
    }
    let gaps: Map<_, _> = gaps.iter().map(|(target, why)| (target.id.to_owned(), json!(why))).collect();
    ratios.insert("not_measured".to_owned(), Value::Object(gaps));
    ratios.insert("quick".to_owned(), json!(quick));
    ratios.insert("measured".to_owned(), json!({"sickbay": own, "peers": peers}));
    Value::Object(ratios)
}

fn table(figures: &[(&Target, f64)], gaps: &[(&Target, String)], quick: bool) -> String {
    let mut text = format!("{:<22} {:>8} {:>7} {:>7}  \n", "", "measured", "must", "aim");
    for (target, value) in figures {
        let sign = if target.more { "≥" } else { "≤" };
        let mark = if target.is_met(*value) { "" } else { "  MISSED" };
        let goal = match &target.goal {
            Some(goal) => format!("{sign}{:>6} {sign}{:>6}", goal.must, goal.aim),
            None => format!("{:>7} {:>7}", "–", "–"),
        };
        text.push_str(&format!("{:<22} {value:>8.2} {goal}  {}{mark}\n", target.id, target.what));
    }
    for (target, why) in gaps {
        text.push_str(&format!("{:<22} NOT MEASURED: {why}\n", target.id));
    }
    if quick {
        text.push_str("quick: P7 and P10 with a tenth of what they ask for, P7_postgres with a fiftieth\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_ratios_of_what_was_measured() {
        let own = json!({"P1": {"ratio": 0.75}, "P4": {"p50_ms": 0.5}, "P5": {"drain_per_s": 300},
            "P6": {"ratio": 0.6, "drain_per_s": 100}});
        let peers = json!({"latency": {"effectum": {"p50_ms": 2.0}}, "drain": {"effectum": {"drain_per_s": 30},
            "apalis_postgres": {"drain_per_s": 20}}});
        let found: Vec<_> =
            figures(&own, &peers).into_iter().map(|(target, value)| (target.id, value)).collect();
        assert_eq!(
            found,
            [("P1", 0.75), ("P4", 0.25), ("P5.effectum", 10.0), ("P6.raw", 0.6), ("P6.apalis", 5.0)]
        );
        let document = document(&figures(&own, &peers), &gaps(&peers), &own, &peers, true);
        assert_eq!(document["P5"]["effectum"], 10.0);
    }

    #[test]
    fn a_missed_target_is_said_in_the_table() {
        let own = json!({"P1": {"ratio": 0.4}, "P8": {"ratio": 1.1}});
        let text = table(&figures(&own, &json!({})), &[], false);
        assert!(text.lines().any(|line| line.starts_with("P1") && line.ends_with("MISSED")), "{text}");
        assert!(text.lines().any(|line| line.starts_with("P8") && !line.ends_with("MISSED")), "{text}");
    }

    #[test]
    fn a_peer_that_could_not_be_measured_is_said_in_the_table() {
        let own = json!({"P6": {"ratio": 0.6, "drain_per_s": 100}});
        let peers = json!({"drain": {"pg_boss": {"error": "npm is missing"}, "pgmq": {"drain_per_s": 50}}});
        let (figures, gaps) = (figures(&own, &peers), gaps(&peers));
        let text = table(&figures, &gaps, false);
        assert!(text.contains("NOT MEASURED: npm is missing"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("P6.pgmq") && line.contains("2.00")), "{text}");
        let document = document(&figures, &gaps, &own, &peers, false);
        assert_eq!(document["not_measured"]["P6.pg_boss"], "npm is missing");
        assert!(document["P6"].get("pg_boss").is_none());
    }
}
