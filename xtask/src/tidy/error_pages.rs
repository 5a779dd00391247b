//! Every code that an operator can meet has a page in `docs/errors/`, and every page a code.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::Violation;
use super::tree::Tree;

/// Never given to an error, so that tests have a code that does not exist.
const NEVER_GIVEN: &str = "SB9999";

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""(SB\d{4})""#).unwrap());
static PAGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^docs/errors/(SB\d{4})\.md$").unwrap());

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut codes: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (path, text) in tree.rust().filter(|(path, _)| is_source(path)) {
        // A comment may give an example.
        let code = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            for found in CODE.captures_iter(line).filter_map(|found| found.get(1)) {
                codes.entry(found.as_str()).or_insert((path, number));
            }
        }
    }
    codes.remove(NEVER_GIVEN);
    let mut violations = Vec::new();
    for (code, (path, line)) in &codes {
        let page = format!("docs/errors/{code}.md");
        if !tree.has(&page) {
            violations.push(Violation::at(path, *line, format!("{code} has no page {page}")));
        }
    }
    for path in tree.paths().filter(|path| path.starts_with("docs/errors/SB")) {
        match PAGE.captures(path) {
            Some(page) if codes.contains_key(&page[1]) => {}
            Some(page) => {
                violations.push(Violation::of_file(path, format!("no code in crates is {}", &page[1])));
            }
            None => violations.push(Violation::of_file(path, "a page is named after its code: SBnnnn.md")),
        }
    }
    violations
}

fn is_source(path: &str) -> bool {
    path.strip_prefix("crates/").and_then(|rest| rest.split('/').nth(1)) == Some("src")
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        check(&made_up(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_code_and_its_page_belong_together() {
        let code = ("crates/core/src/code.rs", "\nconst FULL: &str = \"SB0007\";");
        let page = ("docs/errors/SB0007.md", "");
        assert_eq!(told(&[code, page]), [""; 0]);
        assert_eq!(told(&[code]), ["crates/core/src/code.rs:2: SB0007 has no page docs/errors/SB0007.md"]);
        assert_eq!(told(&[page]), ["docs/errors/SB0007.md: no code in crates is SB0007"]);
    }

    #[test]
    fn a_page_with_another_name_is_caught_but_an_overview_is_not() {
        assert_eq!(told(&[("docs/errors/SB07.md", "")]).len(), 1);
        assert_eq!(told(&[("docs/errors/README.md", "")]), [""; 0]);
    }

    #[test]
    fn codes_outside_the_product_and_the_one_never_given_need_no_page() {
        assert_eq!(
            told(&[("crates/core/tests/it/a.rs", "\"SB1234\""), ("xtask/src/a.rs", "\"SB1234\"")]),
            [""; 0]
        );
        assert_eq!(told(&[("crates/core/src/a.rs", "\"SB9999\";\n    /// The code (\"SB1234\").")]), [""; 0]);
    }
}
