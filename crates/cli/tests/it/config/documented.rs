//! The page about the configuration is complete and right.

use sickbay_cli::config::{Config, SHAPES, Shape};

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

/// The part of the page under the heading that names the block.
fn part_about(shape: &Shape) -> &'static str {
    let heading = match shape.path {
        "" => "# ".to_owned(),
        path => format!("## `{path}`"),
    };
    let start = PAGE.find(&heading).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let part = &PAGE[start..];
    part.find("\n## ").map_or(part, |end| &part[..end])
}

#[test]
fn every_key_is_documented_in_the_part_about_its_block() {
    let mut missing = Vec::new();
    for shape in SHAPES {
        // The defaults have the keys of a queue, and are described with them.
        if shape.path == "defaults" {
            continue;
        }
        let part = part_about(shape);
        let absent = shape.keys.iter().filter(|key| !part.contains(&format!("| `{key}` |")));
        missing.extend(absent.map(|key| format!("{}.{key}", shape.path)));
    }
    assert!(missing.is_empty(), "not in docs/configuration.md: {missing:?}");
}

#[test]
fn every_key_that_is_documented_exists() {
    for shape in SHAPES.iter().filter(|shape| shape.path != "defaults") {
        let rows = part_about(shape).lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let strangers: Vec<&str> = rows.filter(|key| !shape.keys.contains(key)).collect();
        assert!(strangers.is_empty(), "{:?} has no {strangers:?}", shape.path);
    }
}

#[test]
fn the_defaults_have_every_key_of_a_queue_but_the_source() {
    let keys_of = |path| SHAPES.iter().find(|shape| shape.path == path).unwrap().keys.to_vec();
    let mut queue = keys_of("queues.NAME");
    queue.retain(|key| *key != "source");
    assert_eq!(queue, keys_of("defaults"));
}

#[test]
fn every_example_of_the_page_is_right() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("schemas")).unwrap();
    std::fs::write(folder.path().join("schemas/order-paid.json"), "{}").unwrap();
    std::fs::copy("tests/configs/pay.sh", folder.path().join("pay.sh")).unwrap();
    let variable = |name: &str| match name {
        "PAY_KEY" => Some("secret".to_owned()),
        other => std::env::var(other).ok(),
    };
    let blocks: Vec<&str> =
        PAGE.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert!(blocks.len() >= 10, "only {} examples", blocks.len());
    for block in blocks {
        let read = Config::parse(&folder.path().join("sickbay.toml"), block, variable);
        assert!(read.is_ok(), "{}\n{block}", read.unwrap_err());
    }
}
