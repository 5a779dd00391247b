//! Names that say nothing, for crates and modules.

use super::Violation;
use super::modules::declared;
use super::tree::Tree;

const EMPTY_NAMES: &[&str] = &["common", "utils", "util", "types", "helpers", "helper"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in tree.packages() {
        let manifest = format!("{package}/Cargo.toml");
        let text = tree.text(&manifest).unwrap_or_default();
        let folder = package.rsplit('/').next().unwrap_or(package);
        for name in text.lines().filter_map(package_name).chain([folder]) {
            if name.split(['-', '_']).any(|part| EMPTY_NAMES.contains(&part)) {
                violations
                    .push(Violation::of_file(&manifest, format!("a crate named {name} can hold anything")));
            }
        }
    }
    for (path, text) in tree.rust() {
        // The root or not only matters for where the files are.
        for module in declared(path, text, true) {
            if EMPTY_NAMES.contains(&module.name.as_str()) {
                let message = format!("a module named {} can hold anything", module.name);
                violations.push(Violation::at(path, module.line, message));
            }
        }
    }
    violations
}

fn package_name(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    (key.trim() == "name").then(|| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        check(&made_up(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_with_an_empty_name_is_caught_with_and_without_a_body() {
        for name in ["common", "utils", "types", "helpers"] {
            let told =
                told(&[("crates/a/tests/it/main.rs", &format!("\nmod {name};\npub mod {name} {{}}\n"))]);
            assert_eq!(told.len(), 2, "{name}");
            assert_eq!(
                told[0],
                format!("crates/a/tests/it/main.rs:2: a module named {name} can hold anything")
            );
        }
    }

    #[test]
    fn a_crate_with_an_empty_name_is_caught_by_folder_and_by_name() {
        assert_eq!(told(&[("crates/common/Cargo.toml", "[package]\nname = \"sickbay-sound\"")]).len(), 1);
        assert_eq!(told(&[("crates/sound/Cargo.toml", "[package]\nname = \"sickbay-utils\"")]).len(), 1);
    }

    #[test]
    fn names_that_merely_contain_one_are_fine() {
        let files =
            [("crates/a/Cargo.toml", "name = \"sickbay-core\""), ("crates/a/src/lib.rs", "mod commonplace;")];
        assert!(told(&files).is_empty());
    }
}
