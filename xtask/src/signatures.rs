//! Measures how well signatures put together what belongs together: `cargo xtask signatures DIR [--json]`.
//!
//! Every `*.csv` of the folder has the columns `text` and `cause`. Grouping accuracy is the share of texts
//! whose group holds exactly the texts of their cause. P9 is its mean over the files, with one setting for all.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sickbay_core::signature::{Signature, Subject, signature, signatures};

/// The figures of one file.
struct Measured {
    name: String,
    texts: usize,
    causes: usize,
    /// Each text by itself, as the store does it.
    single: f64,
    /// All texts of the file together.
    batch: f64,
}

/// Measures the folder named in `args` and prints a table, or with `--json` one document.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let json = args.iter().any(|arg| arg == "--json");
    let [folder] = args.iter().filter(|arg| *arg != "--json").collect::<Vec<_>>()[..] else {
        bail!("which folder? usage: signatures DIR [--json]");
    };
    let files = csv_files(Path::new(folder))?;
    if files.is_empty() {
        bail!("no *.csv in {folder}");
    }
    let measured = files.iter().map(|file| measure(file)).collect::<Result<Vec<_>>>()?;
    if json {
        print_json(&measured);
    } else {
        print_table(&measured);
    }
    Ok(())
}

fn csv_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn measure(file: &Path) -> Result<Measured> {
    let rows = read(file).with_context(|| format!("in {}", file.display()))?;
    let subjects: Vec<Subject<'_>> = rows
        .iter()
        .map(|(text, _)| Subject {
            queue: "log",
            message_type: None,
            reason: "Unknown",
            text,
            schema_path: None,
        })
        .collect();
    let single: Vec<Signature> = subjects.iter().map(signature).collect();
    let batch: Vec<Signature> = signatures(&subjects).into_iter().map(|(signature, _)| signature).collect();
    let causes: Vec<&str> = rows.iter().map(|(_, cause)| cause.as_str()).collect();
    Ok(Measured {
        name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        texts: rows.len(),
        causes: places_of(&causes).len(),
        single: accuracy(&single, &causes),
        batch: accuracy(&batch, &causes),
    })
}

/// The pairs of text and cause.
fn read(file: &Path) -> Result<Vec<(String, String)>> {
    let mut reader = csv::Reader::from_path(file)?;
    let headers = reader.headers()?.clone();
    let column = |name: &str| {
        headers
            .iter()
            .position(|header| header == name)
            .with_context(|| format!("there is no column {name:?}"))
    };
    let (text, cause) = (column("text")?, column("cause")?);
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        rows.push((record[text].to_owned(), record[cause].to_owned()));
    }
    if rows.is_empty() {
        bail!("there are no rows");
    }
    Ok(rows)
}

/// For each key, where it stands.
fn places_of<K: std::hash::Hash + Eq + Copy>(keys: &[K]) -> HashMap<K, Vec<usize>> {
    let mut places: HashMap<K, Vec<usize>> = HashMap::new();
    for (place, key) in keys.iter().enumerate() {
        places.entry(*key).or_default().push(place);
    }
    places
}

fn accuracy(signatures: &[Signature], causes: &[&str]) -> f64 {
    let of_cause = places_of(causes);
    let right: usize = places_of(signatures)
        .values()
        .filter(|group| of_cause.get(causes[group[0]]) == Some(*group))
        .map(Vec::len)
        .sum();
    right as f64 / causes.len() as f64
}

fn mean(measured: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    measured.iter().map(figure).sum::<f64>() / measured.len() as f64
}

fn print_table(measured: &[Measured]) {
    println!("{:<16} {:>7} {:>7} {:>8} {:>8}", "file", "texts", "causes", "single", "batch");
    for file in measured {
        println!(
            "{:<16} {:>7} {:>7} {:>8.4} {:>8.4}",
            file.name, file.texts, file.causes, file.single, file.batch
        );
    }
    let (single, batch) = (mean(measured, |file| file.single), mean(measured, |file| file.batch));
    println!("{:<16} {:>7} {:>7} {single:>8.4} {batch:>8.4}", "mean (P9)", "", "");
}

fn print_json(measured: &[Measured]) {
    let files: serde_json::Map<String, serde_json::Value> = measured
        .iter()
        .map(|file| (file.name.clone(), serde_json::json!({ "single": file.single, "batch": file.batch })))
        .collect();
    let document = serde_json::json!({
        "P9": mean(measured, |file| file.single),
        "batch": mean(measured, |file| file.batch),
        "files": files,
    });
    println!("{document}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_only_if_it_holds_exactly_its_cause() {
        let signature = Signature::from_bits;
        let split = [1, 1, 2, 3, 3].map(signature);
        assert_eq!(accuracy(&split, &["a", "a", "a", "b", "b"]), 0.4);
        let mixed = [1, 1, 1, 1, 2].map(signature);
        assert_eq!(accuracy(&mixed, &["a", "a", "b", "b", "c"]), 0.2);
        assert_eq!(accuracy(&split, &["x", "x", "y", "z", "z"]), 1.0);
    }
}
