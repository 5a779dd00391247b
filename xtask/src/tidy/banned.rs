//! Calls that product code and its tests may not make: the machine's time, sleeps, loose ends.

use std::sync::LazyLock;

use regex::Regex;

use super::Violation;
use super::source::{code_only, line_of};
use super::tree::Tree;

/// The files whose purpose it is to read the machine's clock or to wait.
const MAY_USE_TIME: &[&str] = &["crates/store/src/system_clock.rs", "crates/worker/src/time.rs"];

/// How many lines above a call its `#[expect(clippy::disallowed_methods, reason = …)]` may begin.
const EXPECT_LINES_MAX: usize = 6;

static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:SystemTime::now|Instant::now|(?:time|thread)::sleep)\b").unwrap());
static LOOSE_ENDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:todo|unimplemented|dbg)!").unwrap());
static EXPECT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#\[expect\([^\]]*clippy::disallowed_methods[^\]]*\breason\s*=[^\]]*\]").unwrap()
});

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| is_product(path)) {
        let code = code_only(text);
        for found in LOOSE_ENDS.find_iter(&code) {
            let message = format!("{} does not go into a commit", found.as_str());
            violations.push(Violation::at(path, line_of(&code, found.start()), message));
        }
        if MAY_USE_TIME.contains(&path) {
            continue;
        }
        for found in TIME.find_iter(&code) {
            let line = line_of(&code, found.start());
            if !is_expected(&code, line) {
                let message = format!("{}: time comes from the injected clock", found.as_str());
                violations.push(Violation::at(path, line, message));
            }
        }
    }
    violations
}

/// `crates/*/src` and `crates/*/tests`.
fn is_product(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates") && parts.next().is_some() && matches!(parts.next(), Some("src" | "tests"))
}

fn is_expected(code: &str, line: usize) -> bool {
    let first = line.saturating_sub(1 + EXPECT_LINES_MAX);
    let before: Vec<&str> = code.lines().skip(first).take(line - first).collect();
    EXPECT.is_match(&before.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    fn told(path: &str, text: &str) -> Vec<String> {
        check(&made_up(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn the_machines_time_and_sleeps_are_caught_in_code_and_tests() {
        for call in
            ["std::time::SystemTime::now()", "Instant::now()", "tokio::time::sleep(d)", "thread::sleep(d)"]
        {
            for path in ["crates/core/src/a.rs", "crates/core/src/a/b.rs", "crates/core/tests/it/a.rs"] {
                let told = told(path, &format!("fn f() {{\n    {call};\n}}\n"));
                assert_eq!(told.len(), 1, "{call} in {path}");
                assert!(told[0].starts_with(&format!("{path}:2: ")), "{told:?}");
            }
        }
    }

    #[test]
    fn loose_ends_are_caught_even_where_time_is_allowed() {
        for call in ["todo!()", "unimplemented!()", "dbg!(x)"] {
            assert_eq!(told("crates/worker/src/time.rs", call).len(), 1, "{call}");
        }
    }

    #[test]
    fn the_files_made_for_time_and_the_chores_are_free() {
        for path in
            ["crates/store/src/system_clock.rs", "crates/worker/src/time.rs", "xtask/src/a.rs", "bench/a.rs"]
        {
            assert_eq!(told(path, "SystemTime::now(); thread::sleep(d);"), NOTHING, "{path}");
        }
    }

    #[test]
    fn prose_about_a_call_is_not_a_call() {
        assert_eq!(
            told("crates/core/src/a.rs", "/// `SystemTime::now` is banned.\n\"todo!\"; // dbg!\n"),
            NOTHING
        );
        assert_eq!(
            told("crates/core/src/a.rs", "clock.now(); my_todo!(); Instant::nowhere(); time::sleeper()"),
            NOTHING
        );
    }

    #[test]
    fn a_call_right_below_an_expectation_with_its_reason_is_allowed() {
        let with = |attribute: &str, blank: usize| {
            told("crates/core/src/a.rs", &format!("{attribute}{}Instant::now();", "\n".repeat(blank)))
        };
        let good = "#[expect(clippy::disallowed_methods, reason = \"why\")]";
        assert_eq!(with(good, 1), NOTHING);
        assert_eq!(with(good, 6), NOTHING);
        assert_eq!(with("#[expect(\n    clippy::disallowed_methods,\n    reason = \"why\"\n)]", 1), NOTHING);
        assert_eq!(with(good, 7).len(), 1);
        assert_eq!(with("#[expect(clippy::disallowed_methods)]", 1).len(), 1);
        assert_eq!(with("#[allow(clippy::disallowed_methods, reason = \"why\")]", 1).len(), 1);
    }
}
