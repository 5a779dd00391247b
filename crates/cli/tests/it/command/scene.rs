//! A folder to run commands in.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

/// So often something is looked at that must happen soon. A look is a process of its own and takes its time.
const LOOKS_MAX: usize = 3000;

pub(crate) struct Scene {
    folder: TempDir,
}

/// What a command printed, and its exit code.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// With a queue "orders" that tries twice.
    pub(crate) fn with_queue() -> Self {
        let scene = Self::new();
        scene.ok("queue define orders --attempts 2 --cooldown 1h");
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A script that can be run.
    #[cfg(unix)]
    pub(crate) fn script(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(name, text);
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sickbay"));
        command.args(arguments).current_dir(self.folder.path());
        command.env_remove("SICKBAY_STORE").env("COLUMNS", "100");
        command
    }

    pub(crate) fn run_fed(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing closes its end.
        drop(child.stdin.take().unwrap().write_all(input));
        let output = child.wait_with_output().unwrap();
        Ran {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap(),
        }
    }

    /// Runs a line of words.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_fed(&line.split_whitespace().collect::<Vec<_>>(), b"")
    }

    /// Runs what must work, and answers what it printed.
    pub(crate) fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran.out
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// Looks until it is as it should be.
    pub(crate) fn until(&self, line: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..LOOKS_MAX {
            let value = self.json(line);
            if is_right(&value) {
                return value;
            }
        }
        panic!("{line}: {}", self.json(line));
    }

    /// Starts a command that stays, and waits until it is ready.
    pub(crate) fn start(&self, line: &str) -> Staying {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let mut command = self.command(&arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let mut staying = Staying { child, lines, said: String::new() };
        staying.hear("ready:");
        staying
    }
}

/// A command that stays until it is told to stop. It is killed with the test.
pub(crate) struct Staying {
    child: Child,
    lines: BufReader<ChildStderr>,
    pub(crate) said: String,
}

impl Staying {
    /// Waits until it has said this, and answers the line.
    pub(crate) fn hear(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            self.said.push_str(&line);
            assert!(read > 0, "it ended without {words:?}: {}", self.said);
            if line.contains(words) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for its end and answers its exit code; `None` if it was killed.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The text without what differs from run to run.
pub(crate) fn masked(text: &str, folder: &Path) -> String {
    static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT[\d:.]+Z").unwrap());
    let text = text.replace(&folder.display().to_string(), "<folder>");
    TIME.replace_all(&text, "<time>").into_owned()
}

impl Scene {
    pub(crate) fn masked(&self, text: &str) -> String {
        masked(text, self.folder.path())
    }
}
