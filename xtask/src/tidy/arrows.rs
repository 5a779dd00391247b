//! Crates depend on each other only along the arrows of `docs/architecture.md`.
//!
//! The arrows hold for what is built into the product: normal and build dependencies. Tests of a crate
//! may bring in siblings, as examples and benches do.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Violation;
use crate::cargo::cargo;

/// Which crates of the workspace a crate may depend on.
enum Arrows {
    /// These and no others.
    Only(&'static [&'static str]),
    /// All that are part of the product: everything but the testkit.
    Product,
}

const TESTKIT: &str = "sickbay-testkit";

/// Packages outside the product that may use the testkit as a normal dependency.
const TESTKIT_USERS: &[&str] = &["sickbay-faults", "sickbay-sim", "xtask"];

const CORE: Arrows = Arrows::Only(&["sickbay-core"]);

const ARROWS: &[(&str, Arrows)] = &[
    ("sickbay-core", Arrows::Only(&[])),
    ("sickbay-store", CORE),
    ("sickbay-worker", CORE),
    ("sickbay-desk", CORE),
    ("sickbay-sources", CORE),
    ("sickbay-duroxide", CORE),
    ("sickbay-testkit", CORE),
    ("sickbay-server", Arrows::Only(&["sickbay-core", "sickbay-desk"])),
    ("sickbay", Arrows::Product),
    ("sickbay-cli", Arrows::Product),
];

/// Asks cargo for the packages of the workspace.
pub(super) fn metadata(root: &Path) -> Result<Value> {
    let output = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cargo metadata cannot be started")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")
}

pub(super) fn check(metadata: &Value) -> Result<Vec<Violation>> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let members: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut violations = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package without a name")?;
        let manifest = manifest_path(metadata, package);
        let rule = ARROWS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, arrows)| arrows);
        if rule.is_none() && manifest.starts_with("crates/") {
            let message =
                format!("{name} has no arrows yet: say in xtask/src/tidy/arrows.rs what it may use");
            violations.push(Violation::of_file(&manifest, message));
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let is_for_tests = dependency["kind"].as_str() == Some("dev");
            if members.contains(&used) && !is_for_tests && !allows(rule, name, used) {
                violations.push(Violation::of_file(&manifest, format!("{name} must not depend on {used}")));
            }
        }
    }
    Ok(violations)
}

fn allows(rule: Option<&Arrows>, name: &str, used: &str) -> bool {
    match rule {
        Some(Arrows::Only(list)) => list.contains(&used),
        Some(Arrows::Product) => used != TESTKIT,
        None => used != TESTKIT || TESTKIT_USERS.contains(&name),
    }
}

fn manifest_path(metadata: &Value, package: &Value) -> String {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let path = package["manifest_path"].as_str().unwrap_or_default().replace('\\', "/");
    path.strip_prefix(&root.replace('\\', "/")).unwrap_or(&path).trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check;

    /// Name, folder, and dependencies as (name, kind).
    type Package<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn workspace(packages: &[Package<'_>]) -> Value {
        let packages: Vec<Value> = packages
            .iter()
            .map(|(name, folder, dependencies)| {
                let kind = |kind: &str| if kind == "normal" { Value::Null } else { kind.into() };
                let dependencies: Vec<Value> =
                    dependencies.iter().map(|(name, of)| json!({"name": name, "kind": kind(of)})).collect();
                let manifest = format!("/w/{folder}/Cargo.toml");
                json!({"name": name, "manifest_path": manifest, "dependencies": dependencies})
            })
            .collect();
        json!({"workspace_root": "/w", "packages": packages})
    }

    /// What `from` is told when it depends on `to`.
    fn told(from: &str, to: &str, kind: &str) -> Vec<String> {
        let folder = |name: &str| match name {
            "xtask" | "examples" => name.to_owned(),
            _ => format!("crates/{}", name.trim_start_matches("sickbay-")),
        };
        let metadata = workspace(&[(from, &folder(from), &[(to, kind)]), (to, &folder(to), &[])]);
        check(&metadata).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_may_point_at_core_and_core_at_nothing() {
        for name in ["store", "worker", "desk", "sources", "duroxide", "server", "testkit", "cli"] {
            assert_eq!(told(&format!("sickbay-{name}"), "sickbay-core", "normal"), Vec::<String>::new());
        }
        let expected = ["crates/core/Cargo.toml: sickbay-core must not depend on sickbay-store"];
        assert_eq!(told("sickbay-core", "sickbay-store", "normal"), expected);
        assert_eq!(told("sickbay-core", "sickbay-store", "build"), expected);
    }

    #[test]
    fn siblings_do_not_see_each_other() {
        for (from, to) in
            [("store", "worker"), ("worker", "store"), ("server", "store"), ("testkit", "store")]
        {
            let (from, to) = (format!("sickbay-{from}"), format!("sickbay-{to}"));
            assert_eq!(told(&from, &to, "normal").len(), 1, "{from} on {to}");
        }
        assert_eq!(told("sickbay-worker", "sickbay-store", "dev"), Vec::<String>::new());
    }

    #[test]
    fn the_server_sits_on_the_desk_and_the_desk_not_on_the_server() {
        assert_eq!(told("sickbay-server", "sickbay-desk", "normal"), Vec::<String>::new());
        assert_eq!(told("sickbay-desk", "sickbay-server", "normal").len(), 1);
    }

    #[test]
    fn the_testkit_is_never_built_into_the_product() {
        for name in ["sickbay", "sickbay-cli", "sickbay-core", "sickbay-store", "examples"] {
            assert_eq!(told(name, "sickbay-testkit", "normal").len(), 1, "{name}");
            assert_eq!(told(name, "sickbay-testkit", "dev"), Vec::<String>::new(), "{name}");
        }
        assert_eq!(told("xtask", "sickbay-testkit", "normal"), Vec::<String>::new());
    }

    #[test]
    fn the_facade_the_cli_and_what_is_outside_the_product_wire_siblings_together() {
        for name in ["sickbay", "sickbay-cli", "xtask", "examples"] {
            assert_eq!(told(name, "sickbay-store", "normal"), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn a_new_crate_must_say_what_it_may_use() {
        let metadata = workspace(&[("sickbay-moon", "crates/moon", &[])]);
        assert!(check(&metadata).unwrap()[0].message.contains("has no arrows yet"));
    }

    #[test]
    fn crates_from_elsewhere_are_no_business_of_this_rule() {
        let metadata = workspace(&[("sickbay-core", "crates/core", &[("serde", "normal")])]);
        assert_eq!(check(&metadata).unwrap(), []);
    }
}
