//! `cargo xtask faults`: disks, files and processes are broken, and what was promised must hold.

mod ledger;
mod programs;
mod side_by_side;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use self::programs::{Program, Programs};
use self::side_by_side::side_by_side;
use crate::needs::{self, NEEDS};
use crate::steps::Ending;

/// A call of a program that breaks something and prints one document. What two of them count under one name is added
/// up. Two run beside each other: nothing in them is measured in time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    program: Program,
    arguments: Vec<String>,
}

impl Part {
    fn of(program: Program, arguments: &[&str]) -> Self {
        Self { program, arguments: arguments.iter().map(|&word| word.to_owned()).collect() }
    }
}

/// The parts of the first program: what is cut, what is damaged, and what is killed.
const FAULTS: [&[&str]; 3] =
    [&["controls", "power"], &["postgres", "processes", "kills"], &["disk", "flips", "interleavings"]];

/// What was asked for, in calls, the longest first. `whole` adds the simulator and the known defects.
fn parts(passed: &[String], whole: bool) -> Vec<Part> {
    let names: Vec<&str> = FAULTS.concat();
    let faults = |arguments: &[&str]| {
        let mut part = Part::of(Program::FAULTS, arguments);
        part.arguments.extend_from_slice(passed);
        part
    };
    if passed.iter().any(|word| names.contains(&word.as_str())) {
        return vec![faults(&[])];
    }
    let mut parts: Vec<Part> = FAULTS.iter().map(|arguments| faults(arguments)).collect();
    if whole {
        parts.insert(1, schedules(passed));
    }
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    for (nth, part) in parts.iter_mut().enumerate() {
        // The longest of them goes on alone at the end: it may use what the others leave.
        let threads = if nth == 0 { 2 * threads } else { threads };
        part.arguments.extend(["--threads".to_owned(), threads.to_string()]);
    }
    if whole {
        parts.push(Part::of(Program::SEEDED_SIM, &["bugs", "--json"]));
        parts.push(Part::of(Program::SEEDED_FAULTS, &["bugs"]));
    }
    parts
}

/// The simulator's part. A long run goes on with the seed of the others, and has as many schedules as one without.
fn schedules(passed: &[String]) -> Part {
    let mut part = Part::of(Program::SIM, &["schedules", "--json"]);
    let seed = passed.iter().position(|word| word == "--seed").and_then(|at| passed.get(at + 1));
    if let Some(seed) = seed {
        part.arguments.extend(["--seed", seed, "--seeds", SCHEDULES].map(str::to_owned));
    }
    part
}

/// Seeds of a long run.
const SCHEDULES: &str = "1000";

/// The keys of the document, in their order.
const KEYS: [&str; 10] = [
    "power_cuts",
    "schedules",
    "kills",
    "bit_flips",
    "lost",
    "unexplained",
    "bystanders_blamed",
    "silently_wrong",
    "seeded_bugs",
    "seeded_bugs_found",
];

/// Runs every part and prints a table, or with `--json` one document. Without `--quick` that is a long run, and so is one
/// of `--minutes N`: it begins where the last one ended, and the ledger keeps what came of it.
pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let json = arguments.iter().any(|argument| argument == "--json");
    let mut passed: Vec<String> = arguments.iter().filter(|a| a.as_str() != "--json").cloned().collect();
    let asked = passed.clone();
    let whole = passed.iter().all(|argument| argument == "--quick");
    let long = passed.is_empty() || passed.iter().any(|argument| argument == "--minutes");
    if long && !passed.iter().any(|argument| argument == "--seed") {
        passed.extend(["--seed".to_owned(), ledger::next_seed(root).to_string()]);
    }
    let start = now();
    let (total, well) = run_parts(root, &passed, whole)?;
    if long {
        ledger::add(root, &asked, &total, well, start.elapsed())?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&ordered(&total))?);
    } else {
        print!("{}", table(&total));
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What every commit must pass. True if it did.
pub(crate) fn quick(root: &Path) -> Result<bool> {
    let (total, well) = run_parts(root, &["--quick".to_owned()], true)?;
    print!("{}", table(&total));
    Ok(well)
}

fn run_parts(root: &Path, passed: &[String], whole: bool) -> Result<(Map<String, Value>, bool)> {
    let parts = parts(passed, whole);
    let wants = |word: &str| parts.iter().any(|part| part.arguments.iter().any(|known| known == word));
    let needs = NEEDS
        .iter()
        .filter(|need| need.tests == "postgres::" && (wants("postgres") || wants("interleavings")));
    // Without it that part is skipped, and says so.
    let missing = needs::missing(needs.chain(wants("processes").then_some(&needs::FAKETIME)), needs::install);
    let programs = Programs::build(root, parts.iter().map(|part| part.program))?;
    let ran = side_by_side(&parts, |part| run(root, &programs, part), |_, ran| tell(ran));
    let (mut total, mut well) =
        (Map::new(), !matches!(needs::report(&missing, needs::in_ci())?, Ending::Failed(_)));
    for ran in ran {
        let ran = ran?;
        well &= ran.well;
        merge(&mut total, ran.document);
    }
    Ok((total, well))
}

/// What came of a part.
struct Ran {
    call: String,
    document: Map<String, Value>,
    well: bool,
    words: String,
    seconds: f64,
}

fn run(root: &Path, programs: &Programs, part: &Part) -> Result<Ran> {
    let call = format!("{} {}", part.program.name(), part.arguments.join(" "));
    eprintln!("{call} …");
    let start = now();
    let mut command = Command::new(programs.path(part.program)?);
    let output = command.current_dir(root).args(&part.arguments).output();
    let output = output.with_context(|| format!("{call} cannot be started"))?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout);
    let document = document.with_context(|| format!("{call} printed no document\n{words}"))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Ran { call, document, well: output.status.success(), words, seconds })
}

/// All that a part said, in one piece.
fn tell(ran: &Result<Ran>) {
    match ran {
        Ok(ran) => eprint!("\n{}: {:.1} s\n{}", ran.call, ran.seconds, ran.words),
        Err(error) => eprintln!("\n{error:#}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a chore is timed by the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

/// Seeds are no amounts: the furthest counts.
const SEEDS: [&str; 2] = ["first_seed", "next_seed"];

/// Numbers are added up, lists joined, and the rest is taken as it is.
fn merge(total: &mut Map<String, Value>, document: Map<String, Value>) {
    for (name, value) in document {
        match (total.get_mut(&name), value) {
            (Some(known), value) if SEEDS.contains(&name.as_str()) => {
                *known = json!(known.as_u64().max(value.as_u64()));
            }
            (Some(Value::Number(known)), Value::Number(more)) if known.is_u64() && more.is_u64() => {
                let sum = known.as_u64().unwrap_or(0) + more.as_u64().unwrap_or(0);
                total.insert(name, json!(sum));
            }
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (_, value) => drop(total.insert(name, value)),
        }
    }
}

/// The promised keys first; null where nothing was counted.
fn ordered(total: &Map<String, Value>) -> Value {
    let mut document = Map::new();
    for key in KEYS {
        document.insert(key.to_owned(), total.get(key).cloned().unwrap_or(Value::Null));
    }
    let rest = total.iter().filter(|(name, _)| !KEYS.contains(&name.as_str()));
    document.extend(rest.map(|(name, value)| (name.clone(), value.clone())));
    Value::Object(document)
}

fn table(total: &Map<String, Value>) -> String {
    let Value::Object(document) = ordered(total) else { return String::new() };
    let rows = document.iter().filter(|(_, value)| !value.is_null());
    rows.map(|(name, value)| match value {
        Value::Array(list) => list.iter().map(|one| format!("{name}: {one}\n")).collect(),
        value => format!("{name:<24} {value}\n"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        if let Value::Object(map) = value { map } else { Map::new() }
    }

    #[test]
    fn documents_of_parts_are_added_up() {
        let mut total = map(json!({"lost": 1, "power_cuts": 10, "findings": ["a"]}));
        merge(&mut total, map(json!({"lost": 2, "schedules": 5, "findings": ["b"], "quick": true})));
        assert_eq!(total["lost"], 3);
        assert_eq!(total["findings"], json!(["a", "b"]));
        assert_eq!((&total["schedules"], &total["quick"]), (&json!(5), &json!(true)));
    }

    #[test]
    fn seeds_of_parts_are_not_added_up() {
        let mut total = map(json!({"first_seed": 7, "next_seed": 90}));
        merge(&mut total, map(json!({"first_seed": 7, "next_seed": 7})));
        assert_eq!((&total["first_seed"], &total["next_seed"]), (&json!(7), &json!(90)));
    }

    #[test]
    fn a_whole_run_calls_every_part_once() {
        let quick = ["--quick".to_owned()];
        let whole = parts(&quick, true);
        let words: Vec<&str> = whole.iter().flat_map(|part| &part.arguments).map(String::as_str).collect();
        for part in FAULTS.concat().into_iter().chain(["schedules"]) {
            assert_eq!(words.iter().filter(|word| **word == part).count(), 1, "{part}: {words:?}");
        }
        assert_eq!(words.iter().filter(|word| **word == "bugs").count(), 2);
        let of_faults = whole.iter().filter(|part| part.program == Program::FAULTS);
        assert!(of_faults.clone().all(|part| part.arguments.contains(&quick[0])));
        assert_eq!(of_faults.count(), FAULTS.len());
    }

    #[test]
    fn a_long_run_passes_its_seed_on_to_the_simulator() {
        let passed = ["--seed", "1000090"].map(str::to_owned);
        let whole = parts(&passed, true);
        let part = whole.iter().find(|part| part.program == Program::SIM).unwrap();
        assert!(part.arguments.join(" ").starts_with("schedules --json --seed 1000090 --seeds "), "{part:?}");
        let quick = schedules(&["--quick".to_owned()]);
        assert_eq!(quick.arguments, ["schedules", "--json"]);
    }

    #[test]
    fn a_part_that_was_asked_for_is_the_only_one_called() {
        let passed = ["power", "--seed", "7"].map(str::to_owned);
        assert_eq!(parts(&passed, false), [Part { program: Program::FAULTS, arguments: passed.to_vec() }]);
    }

    #[test]
    fn every_promised_key_is_in_the_document() {
        let document = ordered(&map(json!({"lost": 0, "zebra": 1})));
        let names: Vec<&String> = document.as_object().unwrap().keys().collect();
        assert!(KEYS.iter().all(|key| names.iter().any(|name| name == key)), "{names:?}");
        assert_eq!((&document["lost"], &document["schedules"]), (&json!(0), &Value::Null));
    }

    #[test]
    fn a_finding_has_a_line_of_its_own() {
        let text = table(&map(json!({"lost": 1, "findings": ["gone", "lost"]})));
        assert_eq!(text.lines().filter(|line| line.starts_with("findings: ")).count(), 2, "{text}");
    }
}
