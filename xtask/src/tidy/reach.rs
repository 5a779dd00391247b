//! No forgotten files: every Rust file is reached by a `mod`, every crate has one test binary.

use std::collections::BTreeSet;

use super::Violation;
use super::modules::{declared, included};
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in tree.packages() {
        let files: Vec<&str> = tree
            .rust()
            .map(|(path, _)| path)
            .filter(|path| {
                path.starts_with(&format!("{package}/src/")) || path.starts_with(&format!("{package}/tests/"))
            })
            .collect();
        let (roots, misplaced): (Vec<&str>, Vec<&str>) = files
            .iter()
            .copied()
            .filter(|path| is_root(package, path))
            .partition(|path| is_welcome(package, path));
        for path in &misplaced {
            let message = "a second test binary: tests are modules of tests/it/main.rs";
            violations.push(Violation::of_file(path, message));
        }
        let reached = reached(tree, roots.iter().chain(&misplaced).copied());
        for path in files.into_iter().filter(|path| !reached.contains(*path)) {
            violations.push(Violation::of_file(path, "forgotten: no `mod` leads here"));
        }
    }
    violations
}

/// What cargo would compile on its own.
fn is_root(package: &str, path: &str) -> bool {
    let inside = path.strip_prefix(package).unwrap_or(path).trim_start_matches('/');
    matches!(
        inside.split('/').collect::<Vec<_>>()[..],
        ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
            | ["tests", _]
            | ["tests", _, "main.rs"]
    )
}

fn is_welcome(package: &str, path: &str) -> bool {
    !path.starts_with(&format!("{package}/tests/")) || path == format!("{package}/tests/it/main.rs")
}

fn reached<'a>(tree: &Tree, roots: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<(String, bool)> = roots.map(|root| (root.to_owned(), true)).collect();
    while let Some((path, is_root)) = waiting.pop() {
        let Some(text) = tree.text(&path).filter(|_| !reached.contains(&path)) else { continue };
        let modules = declared(&path, text, is_root).into_iter().flat_map(|module| module.files);
        waiting.extend(modules.chain(included(&path, text)).map(|file| (file, false)));
        reached.insert(path);
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("crates/a/Cargo.toml", "")];
        all.extend(files);
        check(&made_up(&all)).iter().map(ToString::to_string).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn files_that_a_mod_leads_to_are_accepted() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;"),
            ("crates/a/src/b.rs", "mod c; #[cfg(test)] mod tests;"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/tests/it/main.rs", "mod lease;"),
            ("crates/a/tests/it/lease.rs", "mod lost;"),
            ("crates/a/tests/it/lease/lost.rs", ""),
        ];
        assert_eq!(told(&files), NOTHING);
    }

    #[test]
    fn a_file_without_a_mod_is_forgotten_in_src_and_in_tests() {
        let files = [
            ("crates/a/src/lib.rs", "// mod b;"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/tests/it/main.rs", ""),
            ("crates/a/tests/it/lease.rs", "mod lost;"),
            ("crates/a/tests/it/lease/lost.rs", ""),
        ];
        let told = told(&files);
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[0], "crates/a/src/b.rs: forgotten: no `mod` leads here");
    }

    #[test]
    fn a_second_test_binary_is_refused_in_both_its_forms() {
        let files = [
            ("crates/a/tests/it/main.rs", ""),
            ("crates/a/tests/lease.rs", ""),
            ("crates/a/tests/slow/main.rs", "mod b;"),
            ("crates/a/tests/slow/b.rs", ""),
        ];
        let told = told(&files);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|told| told.contains("a second test binary")), "{told:?}");
    }

    #[test]
    fn tests_without_a_main_are_forgotten() {
        assert_eq!(told(&[("crates/a/tests/it/lease.rs", "")]).len(), 1);
    }

    #[test]
    fn files_that_name_each_other_end_the_search() {
        let circle =
            [("crates/a/src/lib.rs", "mod b;"), ("crates/a/src/b.rs", "#[path = \"lib.rs\"] mod again;")];
        assert_eq!(told(&circle), NOTHING);
    }
}
