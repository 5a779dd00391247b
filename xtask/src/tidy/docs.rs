//! Decisions are numbered and dated; links between documents lead somewhere.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::Violation;
use super::modules::normal;
use super::tree::Tree;

const DECISIONS: &str = "docs/decisions/";

static DECISION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d{4})-[a-z0-9][a-z0-9-]*\.md$").unwrap());
static DATE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b20\d\d-[01]\d-[0-3]\d\b").unwrap());
/// `](target)` and `[name]: target`; a title after the target is ignored.
static LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\]\(<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s+<?([^\s>]+)").unwrap());
static CODE_SPAN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`]*`").unwrap());

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = decisions(tree);
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        violations.extend(links(tree, path, text));
    }
    violations
}

fn decisions(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut numbers: BTreeMap<String, &str> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let Some(name) = path.strip_prefix(DECISIONS) else { continue };
        let Some(parts) = DECISION.captures(name) else {
            violations.push(Violation::of_file(path, "a decision is named NNNN-what-was-decided.md"));
            continue;
        };
        if let Some(other) = numbers.insert(parts[1].to_owned(), path) {
            violations.push(Violation::of_file(path, format!("has the same number as {other}")));
        }
        if !DATE.is_match(text) {
            violations.push(Violation::of_file(path, "has no date (YYYY-MM-DD)"));
        }
    }
    violations
}

fn links(tree: &Tree, path: &str, text: &str) -> Vec<Violation> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut violations = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let line = CODE_SPAN.replace_all(line, "");
        for found in LINK.captures_iter(&line) {
            let target = found.get(1).or(found.get(2)).map_or("", |target| target.as_str());
            let file = target.split(['#', '?']).next().unwrap_or_default();
            if file.is_empty() || target.contains(':') {
                continue;
            }
            if !tree.has(&normal(&format!("{folder}/{file}"))) {
                violations.push(Violation::at(path, number, format!("the link {target} leads nowhere")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        check(&made_up(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_decision_has_a_number_a_name_and_a_date() {
        assert_eq!(told(&[("docs/decisions/0001-one-writer.md", "Date: 2026-11-15\n")]), [""; 0]);
        assert_eq!(told(&[("docs/decisions/0001-one-writer.md", "Date: soon\n")]).len(), 1);
        for name in ["1-one-writer.md", "0001.md", "one-writer.md", "0001-One Writer.md", "0001-one.txt"] {
            assert_eq!(told(&[(&format!("docs/decisions/{name}"), "2026-11-15")]).len(), 1, "{name}");
        }
    }

    #[test]
    fn two_decisions_do_not_share_a_number() {
        let files = [("docs/decisions/0001-a.md", "2026-11-15"), ("docs/decisions/0001-b.md", "2026-11-15")];
        assert_eq!(
            told(&files),
            ["docs/decisions/0001-b.md: has the same number as docs/decisions/0001-a.md"]
        );
    }

    #[test]
    fn a_link_that_leads_nowhere_is_caught() {
        let text = "x\n[a](missing.md) and [b](../gone.md#part \"title\")\n\n[c]: ./lost.md\n";
        let told = told(&[("docs/a.md", text)]);
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[0], "docs/a.md:2: the link missing.md leads nowhere");
    }

    #[test]
    fn links_to_files_folders_parts_and_other_places_are_fine() {
        let text = "[a](b.md) [b](b.md#part) [c](#here) [d](../docs/) [e](https://example.org/x) [f](mailto:a@b) ![g](<b.md>)";
        assert_eq!(told(&[("docs/a.md", text), ("docs/b.md", "")]), [""; 0]);
    }

    #[test]
    fn code_is_not_searched_for_links() {
        assert_eq!(told(&[("a.md", "```rust\nx[0](y.rs)\n```\nand `a[0](b)`\n")]), [""; 0]);
    }
}
