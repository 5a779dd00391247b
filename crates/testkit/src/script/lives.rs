//! The scripts that every store runs, one file each in `scripts/`.

use std::path::Path;

/// The script of this name.
///
/// # Panics
///
/// If there is none.
pub fn life(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name).with_extension("txt");
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
