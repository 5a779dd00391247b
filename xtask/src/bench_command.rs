//! `cargo xtask bench --command`: what the command and its socket cost, with what must be reached.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// So many times a command is run; the middle counts.
const RUNS: usize = 15;

struct Figure {
    id: &'static str,
    what: &'static str,
    value: f64,
    must: f64,
    more: bool,
}

impl Figure {
    fn is_met(&self) -> bool {
        if self.more { self.value >= self.must } else { self.value <= self.must }
    }
}

/// Measures and prints a table, or with `--json` one document. `--quick` uses a tenth of the dead letters.
pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    let dead = if has("--quick") { 100_000 } else { 1_000_000 };
    let (alone, served) = list_times(root, dead)?;
    let socket = example(root, "sickbay-server", "socket_rate", &[])?;
    let pool = example(root, "sickbay-worker", "pool_rate", &["--features", "exec"])?;
    let number = |lines: &[Value], line: usize, name: &str| {
        lines.get(line).and_then(|line| line[name].as_f64()).with_context(|| format!("no {name} was printed"))
    };
    let figures = [
        Figure {
            id: "C1.alone_ms",
            what: "quarantine list, nobody owns the store",
            value: alone,
            must: 100.0,
            more: false,
        },
        Figure {
            id: "C1.served_ms",
            what: "quarantine list, a server owns it",
            value: served,
            must: 100.0,
            more: false,
        },
        Figure {
            id: "C2",
            what: "push of batches of 100 through the socket, against the library",
            value: number(&socket, 0, "ratio")?,
            must: 0.5,
            more: true,
        },
        Figure {
            id: "C2.four",
            what: "the same, four at a time",
            value: number(&socket, 1, "ratio")?,
            must: 0.5,
            more: true,
        },
        Figure {
            id: "C3",
            what: "messages a second through a pool of programs",
            value: number(&pool, 0, "per_second")?,
            must: 5000.0,
            more: true,
        },
    ];
    if has("--json") {
        let values: serde_json::Map<String, Value> =
            figures.iter().map(|figure| (figure.id.to_owned(), json!(figure.value))).collect();
        let document = json!({"dead_letters": dead, "figures": values, "socket": socket, "pool": pool});
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        println!("{:<13} {:>10} {:>9}  what ({dead} dead letters)", "", "measured", "must");
        for figure in &figures {
            let sign = if figure.more { "≥" } else { "≤" };
            let word = if figure.is_met() { "" } else { "  MISSED" };
            println!(
                "{:<13} {:>10.2} {sign} {:>7}  {}{word}",
                figure.id, figure.value, figure.must, figure.what
            );
        }
    }
    Ok(if figures.iter().all(Figure::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).stderr(Stdio::inherit());
    cargo
}

/// Runs an example with `--json`; it prints one document a line.
fn example(root: &Path, package: &str, name: &str, options: &[&str]) -> Result<Vec<Value>> {
    eprintln!("measuring {name} …");
    let mut cargo = cargo(root);
    cargo.args(["run", "--release", "--quiet", "--package", package, "--example", name]);
    let output = cargo.args(options).args(["--", "--json"]).output().with_context(|| name.to_owned())?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(|line| serde_json::from_str(line).with_context(|| format!("{name}: {line}"))).collect()
}

/// Milliseconds that `sickbay quarantine list` takes on so many dead letters: the whole command, alone and served.
fn list_times(root: &Path, dead: u32) -> Result<(f64, f64)> {
    eprintln!("making {dead} dead letters …");
    let program = built(root)?;
    let folder = tempfile::tempdir()?;
    let mut bench = cargo(root);
    bench.args(["run", "--release", "--quiet", "--package", "sickbay-bench", "--", "dead"]);
    let made = bench.arg(folder.path()).arg(dead.to_string()).status().context("the benchmark")?;
    ensure!(made.success(), "the dead letters: {made}");
    let store = folder.path().join("dead.db");
    eprintln!("measuring quarantine list …");
    let alone = list_time(&program, &store)?;
    let mut serving = Serving(
        Command::new(&program).arg("serve").arg("--store").arg(&store).stderr(Stdio::piped()).spawn()?,
    );
    let mut said = std::io::BufReader::new(serving.0.stderr.take().context("nothing to hear the server by")?);
    let mut line = String::new();
    while !line.contains("ready:") {
        line.clear();
        ensure!(std::io::BufRead::read_line(&mut said, &mut line)? > 0, "the server ended");
    }
    Ok((alone, list_time(&program, &store)?))
}

/// The program, built as people get it.
fn built(root: &Path) -> Result<PathBuf> {
    let status = cargo(root).args(["build", "--release", "--quiet", "--package", "sickbay-cli"]).status()?;
    ensure!(status.success(), "the build: {status}");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/sickbay"))
}

#[expect(clippy::disallowed_methods, reason = "it measures the machine")]
fn list_time(program: &Path, store: &Path) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        let output = Command::new(program).args(["quarantine", "list", "--store"]).arg(store).output()?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
        let rows = String::from_utf8_lossy(&output.stdout).lines().count();
        ensure!(rows == 51, "{rows} lines: {}", String::from_utf8_lossy(&output.stderr));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// A server that is stopped when it is no longer needed.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
