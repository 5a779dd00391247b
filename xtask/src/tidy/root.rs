//! The first impression: a short list of files in the root and a README that is read to its end.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

const ENTRIES_MAX: usize = 20;
const README_LINES_MAX: usize = 150;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let entries: BTreeSet<&str> = tree.paths().filter_map(|path| path.split('/').next()).collect();
    if entries.len() > ENTRIES_MAX {
        let list: Vec<&str> = entries.iter().copied().collect();
        let message = format!("{} entries, at most {ENTRIES_MAX}: {}", entries.len(), list.join(" "));
        violations.push(Violation::of_file(".", message));
    }
    let lines = tree.text("README.md").unwrap_or_default().lines().count();
    if lines > README_LINES_MAX {
        violations
            .push(Violation::of_file("README.md", format!("{lines} lines; at most {README_LINES_MAX}")));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    #[test]
    fn the_root_holds_at_most_20_entries_and_a_folder_is_one() {
        let names: Vec<String> = (0..21).map(|n| format!("entry{n}")).collect();
        let mut files: Vec<(&str, &str)> = names.iter().take(19).map(|name| (name.as_str(), "")).collect();
        files.extend([("docs/a", ""), ("docs/b", "")]);
        assert_eq!(check(&made_up(&files)), []);
        files.push((&names[20], ""));
        let violations = check(&made_up(&files));
        assert!(violations[0].message.starts_with("21 entries, at most 20: docs entry0"), "{violations:?}");
    }

    #[test]
    fn the_readme_has_at_most_150_lines() {
        assert_eq!(check(&made_up(&[("README.md", &"line\n".repeat(150))])), []);
        assert_eq!(check(&made_up(&[("README.md", &"line\n".repeat(151))])).len(), 1);
    }
}
