//! Nothing grows too long: files here, functions by clippy, whose threshold is looked at.

use super::Violation;
use super::tree::Tree;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.rust() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            violations.push(Violation::of_file(path, format!("{lines} lines; at most {FILE_LINES_MAX}")));
        }
    }
    let clippy = tree.text("clippy.toml").unwrap_or_default();
    let threshold = clippy.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "too-many-lines-threshold").then(|| value.trim().parse::<usize>().ok())?
    });
    if threshold.is_none_or(|lines| lines > FUNCTION_LINES_MAX) {
        let message = format!("too-many-lines-threshold must be set, and to at most {FUNCTION_LINES_MAX}");
        violations.push(Violation::of_file("clippy.toml", message));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::Violation;
    use super::super::tree::made_up;
    use super::check;

    const CLIPPY: (&str, &str) = ("clippy.toml", "too-many-lines-threshold = 70\n");

    #[test]
    fn a_file_of_500_lines_is_accepted_and_one_of_501_is_not() {
        let (fits, exceeds) = ("//\n".repeat(500), "//\n".repeat(501));
        let tree = made_up(&[CLIPPY, ("a.rs", &fits), ("b.rs", &exceeds), ("c.md", &exceeds)]);
        assert_eq!(check(&tree), [Violation::of_file("b.rs", "501 lines; at most 500")]);
    }

    #[test]
    fn the_threshold_of_clippy_must_be_there_and_not_be_raised() {
        assert_eq!(check(&made_up(&[CLIPPY])), []);
        for text in ["", "too-many-lines-threshold = 71", "# too-many-lines-threshold = 70"] {
            assert_eq!(check(&made_up(&[("clippy.toml", text)])).len(), 1, "{text}");
        }
        assert_eq!(check(&made_up(&[])).len(), 1);
    }
}
