//! The modules that a Rust file declares, and the files they may live in.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{code_only, line_of};

/// A module, with or without a body in place.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) line: usize,
    /// Where its file may be; empty for a module with its body in place.
    pub(super) files: Vec<String>,
}

static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    // The value of `path` is blank here, because it is a string.
    let path = r"(?<path>#\[path\s*=\s*\](?:\s*#\[[^\]]*\])*\s*(?:pub(?:\s*\([^)]*\))?\s+)?)?";
    Regex::new(&format!(r"{path}\bmod\s+(?<name>\w+)\s*(?<end>[;{{])|[{{}}]")).unwrap()
});
static QUOTED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""([^"]*)""#).unwrap());
static INCLUDE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"include!\s*\(\s*"([^"]+\.rs)"\s*\)"#).unwrap());

/// The modules of the file at `path`. `is_root` is true for `lib.rs`, `main.rs` and other crate roots.
pub(super) fn declared(path: &str, text: &str, is_root: bool) -> Vec<Module> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let own = if is_root || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") };
    let code = code_only(text);
    let mut modules = Vec::new();
    // The blocks around the current place; those of modules with their names.
    let mut around: Vec<Option<&str>> = Vec::new();
    for found in TOKEN.captures_iter(&code) {
        let Some(name) = found.name("name") else {
            match &found[0] {
                "{" => around.push(None),
                _ => around.truncate(around.len().saturating_sub(1)),
            }
            continue;
        };
        let line = line_of(&code, name.start());
        let inside: String = around.iter().flatten().map(|outer| format!("/{outer}")).collect();
        let mut files = Vec::new();
        if &found["end"] == "{" {
            around.push(Some(name.as_str()));
        } else if let Some(attribute) = found.name("path") {
            let base = if inside.is_empty() { folder.to_owned() } else { format!("{own}{inside}") };
            let value = QUOTED.captures(&text[attribute.range()]);
            files.extend(value.map(|value| normal(&format!("{base}/{}", &value[1]))));
        } else {
            let name = name.as_str();
            files = vec![format!("{own}{inside}/{name}.rs"), format!("{own}{inside}/{name}/mod.rs")];
        }
        modules.push(Module { name: name.as_str().to_owned(), line, files });
    }
    modules
}

/// The Rust files that `include!` pulls into the file at `path`.
pub(super) fn included(path: &str, text: &str) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    INCLUDE.captures_iter(text).map(|found| normal(&format!("{folder}/{}", &found[1]))).collect()
}

/// The path without its `.` and `..`.
pub(super) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => parts.truncate(parts.len() - 1),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::{declared, included, normal};

    fn files(path: &str, text: &str, is_root: bool) -> Vec<String> {
        declared(path, text, is_root)
            .into_iter()
            .filter_map(|module| module.files.into_iter().next())
            .collect()
    }

    #[test]
    fn a_module_of_a_root_is_beside_it_and_one_of_another_file_below_it() {
        assert_eq!(
            files("c/src/lib.rs", "pub mod a;\npub(crate) mod b;", true),
            ["c/src/a.rs", "c/src/b.rs"]
        );
        assert_eq!(files("c/src/a.rs", "#[cfg(test)]\nmod tests;", false), ["c/src/a/tests.rs"]);
        assert_eq!(files("c/src/a/mod.rs", "mod b;", false), ["c/src/a/b.rs"]);
    }

    #[test]
    fn modules_inside_modules_are_below_them() {
        let text = "mod a { fn f() { if x {} }  mod b; mod c { mod d; } } mod e;";
        assert_eq!(files("s/lib.rs", text, true), ["s/a/b.rs", "s/a/c/d.rs", "s/e.rs"]);
    }

    #[test]
    fn a_path_attribute_decides() {
        let text = "#[path = \"../x/y.rs\"]\n#[cfg(unix)]\npub(crate) mod a; mod b;";
        assert_eq!(files("c/src/m.rs", text, false), ["c/x/y.rs", "c/src/m/b.rs"]);
    }

    #[test]
    fn modules_in_prose_and_strings_are_none() {
        assert!(files("s/lib.rs", "// mod a;\n\"mod b;\"; r#\"mod c;\"#; x.mod_d;", true).is_empty());
    }

    #[test]
    fn lines_and_names_are_reported_for_bodies_too() {
        let modules = declared("s/lib.rs", "\nmod a {}\n", true);
        assert_eq!((modules[0].name.as_str(), modules[0].line, modules[0].files.len()), ("a", 2, 0));
    }

    #[test]
    fn includes_are_relative_to_their_file() {
        assert_eq!(included("s/a/b.rs", "include!(\"../c.rs\"); include!(\"t.txt\")"), ["s/c.rs"]);
    }

    #[test]
    fn dots_are_resolved() {
        assert_eq!(normal("a/./b/../c//d"), "a/c/d");
        assert_eq!(normal("../a"), "../a");
    }
}
