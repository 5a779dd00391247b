//! Nothing that is true on one machine only: its paths, the registry it downloads from.

use std::sync::LazyLock;

use regex::Regex;

use super::Violation;
use super::tree::Tree;

/// An absolute path below a folder of one machine; not the middle of a relative path or of an address.
static PATHS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\w.}\-])((?:/work|/root|/home|/tmp)/\w[\w./-]*)").unwrap());
static REGISTRIES: LazyLock<Regex> = LazyLock::new(|| {
    let hosts = [r"crates\.io", r"rsproxy\.cn", r"registry\.npmjs\.org", r"pypi\.org", r"pythonhosted\.org"];
    let images = [r"docker\.io", r"ghcr\.io", r"quay\.io", r"gcr\.io", r"public\.ecr\.aws"];
    Regex::new(&format!(r"\b(?:{}|{})\b", hosts.join("|"), images.join("|"))).unwrap()
});

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    // Lock files name their registry, and recorded data (logs in CSV) is other people's text.
    let ours = |path: &str| !path.ends_with(".csv") && path.rsplit('/').next() != Some("Cargo.lock");
    for (path, text) in tree.texts().filter(|(path, _)| ours(path)) {
        for (number, line) in (1..).zip(text.lines()) {
            for found in PATHS.captures_iter(line) {
                let message = format!("{} is a path of one machine", &found[1]);
                violations.push(Violation::at(path, number, message));
            }
            for found in REGISTRIES.find_iter(line) {
                let message = format!("{} is the host of a registry", found.as_str());
                violations.push(Violation::at(path, number, message));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tree::made_up;
    use super::check;

    /// What the line is told; `~` stands for the slash, so that this file keeps its own rule.
    fn told(path: &str, line: &str) -> Vec<String> {
        let text =
            format!("first\n{}\n", line.replace('~', "/").replace("crates-io", concat!("crates", ".io")));
        check(&made_up(&[(path, &text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_of_one_machine_are_caught_wherever_they_stand() {
        for line in [
            "~home~ada",
            "cd ~tmp~x",
            "\"~root~.cargo\" ~root~y",
            "(~work~main)",
            "file:~~~tmp~a",
            "a=~tmp~b",
        ] {
            let told = told("docs/a.md", line);
            assert_eq!(told.len(), 1, "{line}: {told:?}");
            assert!(told[0].starts_with("docs/a.md:2: /"), "{told:?}");
        }
    }

    #[test]
    fn relative_paths_and_addresses_are_not_paths_of_a_machine() {
        for line in
            ["docs~work~a", ".~tmp~x", "https:~~example.org~home~x", "{root}~tmp~x", "~workers~a", "~tmp"]
        {
            assert_eq!(told("docs/a.md", line), [""; 0], "{line}");
        }
    }

    #[test]
    fn hosts_of_registries_are_caught_except_in_lock_files() {
        assert_eq!(told("a.toml", "x = \"https:~~index.crates-io~a\"").len(), 1);
        assert_eq!(told("Cargo.lock", "registry+https:~~github.com~rust-lang~crates-io-index"), [""; 0]);
        assert_eq!(told("bench/peers/Cargo.lock", "crates-io"), [""; 0]);
        assert_eq!(told("a.md", "crates, io"), [""; 0]);
    }

    #[test]
    fn recorded_data_may_say_what_it_says() {
        assert_eq!(told("data/a.csv", "~tmp~hadoop"), [""; 0]);
    }
}
