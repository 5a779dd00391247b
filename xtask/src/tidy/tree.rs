//! The files of the project, as git would commit them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Paths relative to the root, with `/` between their parts, and the text of those that are text.
pub(super) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the files that git tracks or would add; without git, everything but build output.
    pub(super) fn read(root: &Path) -> Result<Tree> {
        let mut paths = BTreeSet::new();
        match listed_by_git(root) {
            Some(listed) => paths = listed,
            None => walk(root, "", &mut paths)?,
        }
        let mut files = BTreeMap::new();
        for path in paths {
            // A file that was deleted but is still in git's index, or a link that leads nowhere.
            let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
            files.insert(path, String::from_utf8(bytes).ok());
        }
        Ok(Tree { files })
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Every file that is text, with its text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Every Rust file, with its text.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is a file, or a folder with files, at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(inside.clone()..).next().is_some_and(|(next, _)| next.starts_with(&inside))
    }

    /// The folders of the packages that the rules hold for: `crates/*` and `xtask`.
    pub(super) fn packages(&self) -> impl Iterator<Item = &str> {
        self.paths().filter_map(|path| path.strip_suffix("/Cargo.toml")).filter(|folder| {
            *folder == "xtask" || folder.strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
        })
    }
}

fn listed_by_git(root: &Path) -> Option<BTreeSet<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    let listed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| listed.split_terminator('\0').map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &str, paths: &mut BTreeSet<String>) -> Result<()> {
    let entries = std::fs::read_dir(root.join(folder)).with_context(|| format!("{folder} cannot be read"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type()?.is_dir() {
            paths.insert(path);
        } else if name != ".git" && name != "target" {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

/// A made-up tree, written into a temporary folder and read from there.
#[cfg(test)]
pub(super) fn made_up(files: &[(&str, &str)]) -> Tree {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("sickbay-tidy-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let root = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&root).unwrap();
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let tree = Tree::read(&root).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    tree
}

#[cfg(test)]
mod tests {
    use super::made_up;

    #[test]
    fn build_output_is_not_part_of_the_tree() {
        let tree = made_up(&[("a/b.rs", ""), ("target/x.rs", ""), ("bench/target/y.rs", ""), (".git/z", "")]);
        assert_eq!(tree.paths().collect::<Vec<_>>(), ["a/b.rs"]);
    }

    #[test]
    fn files_and_folders_are_there_but_not_beginnings_of_names() {
        let tree = made_up(&[("docs/errors/SB0001.md", "")]);
        for path in ["docs", "docs/", "docs/errors", "docs/errors/SB0001.md", ""] {
            assert!(tree.has(path), "{path}");
        }
        for path in ["doc", "docs/err", "docs/errors/SB0002.md"] {
            assert!(!tree.has(path), "{path}");
        }
    }

    #[test]
    fn packages_are_the_crates_and_xtask() {
        let manifests =
            [("crates/core/Cargo.toml", ""), ("xtask/Cargo.toml", ""), ("bench/peers/Cargo.toml", "")];
        assert_eq!(made_up(&manifests).packages().collect::<Vec<_>>(), ["crates/core", "xtask"]);
    }
}
