//! What long runs have done: one document a line, never changed afterwards. The next one goes on with the next seed.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

const FILE: &str = "faults/ledger.jsonl";
/// The first seed of the first long run; those below are run by every commit.
const FIRST_SEED: u64 = 1_000_000;

/// The seed after the last one that a long run got to.
pub(super) fn next_seed(root: &Path) -> u64 {
    let ledger = std::fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let runs = ledger.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    runs.filter_map(|run| run["next_seed"].as_u64()).max().unwrap_or(FIRST_SEED)
}

/// Adds a run: when and of what it was, on what kind of machine, what was asked for, what came of it.
pub(super) fn add(
    root: &Path,
    asked: &[String],
    total: &Map<String, Value>,
    well: bool,
    took: Duration,
) -> Result<()> {
    let mut run = Map::new();
    run.insert("date".to_owned(), json!(date()));
    run.insert("commit".to_owned(), json!(commit(root)));
    run.insert("machine".to_owned(), machine());
    run.insert("asked".to_owned(), json!(asked.join(" ")));
    run.insert("outcome".to_owned(), json!(if well { "every promise held" } else { "a promise was broken" }));
    run.insert("seconds".to_owned(), json!(took.as_secs()));
    // How long a part itself took says less than the whole.
    let rest = total.iter().filter(|(name, _)| !["seconds", "quick"].contains(&name.as_str()));
    run.extend(rest.map(|(name, value)| (name.clone(), value.clone())));
    let mut line = Value::Object(run).to_string();
    line.push('\n');
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(root.join(FILE))?;
    file.write_all(line.as_bytes()).with_context(|| format!("{FILE} cannot be written"))
}

#[expect(clippy::disallowed_methods, reason = "a chore is dated by the machine's clock")]
fn date() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = sickbay_core::Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    time.to_string().chars().take("2026-01-01".len()).collect()
}

/// Which state of the project it was; `+` if something was changed since.
fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    format!("{}{}", git(&["rev-parse", "--short=10", "HEAD"]), if changed { "+" } else { "" })
}

/// What it was run on, and nothing that names it.
fn machine() -> Value {
    let number = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = memory.lines().find(|line| line.starts_with("MemTotal")).map(number);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    json!({
        "system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory_gb": kilobytes.and_then(Result::ok).map(|kilobytes| kilobytes.div_ceil(1 << 20)),
        "load": load.split(' ').next().and_then(|load| load.parse::<f64>().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_added_and_the_next_one_goes_on_after_it() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("faults")).unwrap();
        assert_eq!(next_seed(root.path()), FIRST_SEED);
        for seed in [1_000_040_u64, 1_000_090] {
            let Value::Object(total) = json!({"power_cuts": 5, "lost": 0, "next_seed": seed}) else { return };
            let asked = ["--minutes".to_owned(), "5".to_owned()];
            add(root.path(), &asked, &total, true, Duration::from_secs(300)).unwrap();
            assert_eq!(next_seed(root.path()), seed);
        }
        let ledger = std::fs::read_to_string(root.path().join(FILE)).unwrap();
        let last: Value = serde_json::from_str(ledger.lines().last().unwrap()).unwrap();
        assert_eq!(ledger.lines().count(), 2);
        assert_eq!((&last["power_cuts"], &last["seconds"]), (&json!(5), &json!(300)));
        assert_eq!((&last["outcome"], &last["asked"]), (&json!("every promise held"), &json!("--minutes 5")));
        assert!(last["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0));
        assert_eq!(last["date"].as_str().map(str::len), Some(10));
    }
}
