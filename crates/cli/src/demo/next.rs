//! What to type next, as it works in the shell that the demo was started from.

use std::path::{Path, PathBuf};

use crate::output::shell_word;

/// The three commands after the demo.
pub(super) fn commands(store: &Path, killer: &str, signature: &str) -> [(String, &'static str); 3] {
    let (program, store) = (program(), shell_word(&store.display().to_string()));
    let typed = |words: &str| format!("{program} {words} --store {store}");
    [
        (typed("quarantine list --limit 8"), "what could not be paid, and why"),
        (typed(&format!("quarantine show {killer}")), "the deadly one: every attempt, every death"),
        (
            typed(&format!("quarantine replay --signature {signature} --yes")),
            "one incident is solved: send its orders back",
        ),
    ]
}

/// How this program is called: by its name if the shell finds it by that, or else by its path.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "sickbay".to_owned() };
    let name = own.file_name().map(PathBuf::from).unwrap_or_default();
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(&name)).find(|path| path.is_file());
    let same = |path: PathBuf| path.canonicalize().ok() == own.canonicalize().ok();
    if found.is_some_and(same) {
        return shell_word(&name.display().to_string());
    }
    let here = std::env::current_dir().ok();
    let near = here.as_ref().and_then(|here| own.strip_prefix(here).ok());
    let path = match near {
        Some(near) if near.components().count() == 1 => Path::new(".").join(near),
        Some(near) => near.to_owned(),
        None => own.clone(),
    };
    shell_word(&path.display().to_string())
}
