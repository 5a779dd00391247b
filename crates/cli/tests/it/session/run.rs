//! Commands typed into a shell, in a folder of their own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Where a session takes place.
pub(super) struct Place {
    folder: TempDir,
    staying: Vec<Child>,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), staying: Vec::new() }
    }

    fn shell(&self, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_sickbay"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).current_dir(self.folder.path()).stdin(Stdio::null());
        shell.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
        shell.env("LC_ALL", "C").env("TMPDIR", self.folder.path()).env("COLUMNS", "100");
        for name in ["SICKBAY_STORE", "NO_COLOR", "CLICOLOR_FORCE", "RUST_BACKTRACE"] {
            shell.env_remove(name);
        }
        shell
    }

    /// What is printed, with the exit code in front if it is not 0.
    pub(super) fn run(&mut self, line: &str) -> String {
        if let Some(line) = line.strip_suffix(" &") {
            return self.stay(line);
        }
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut shell = self.shell(line);
        shell.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = shell.spawn().unwrap();
        // The pipe ends when nobody can write to it any more, this process included.
        drop(shell);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        let code = child.wait().unwrap().code().unwrap_or(-1);
        let mut said = String::from_utf8_lossy(&bytes).into_owned();
        if !said.is_empty() && !said.ends_with('\n') {
            said.push('\n');
        }
        if code == 0 { said } else { format!("? {code}\n{said}") }
    }

    /// Starts what stays, and answers what it says until it is ready.
    fn stay(&mut self, line: &str) -> String {
        let mut shell = self.shell(&format!("exec {line}"));
        let mut child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = lines.read_line(&mut line).unwrap();
            said.push_str(&line);
            if read == 0 || line.contains("ready:") {
                break;
            }
        }
        // What it says later is read by nobody, and must not stop it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        self.staying.push(child);
        said
    }

    /// What is written down of it.
    pub(super) fn masked(&self, said: &str) -> String {
        super::compare::masked(&said.replace(&self.folder.path().display().to_string(), "[FOLDER]"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in &mut self.staying {
            // It may have ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Every command there is, as it is typed.
pub(super) fn commands() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_sickbay")).arg("man").arg(folder.path()).status().unwrap();
    assert!(made.success());
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let has_children = |name: &str| names.iter().any(|other| other.starts_with(&format!("{name}-")));
    let words = ["dead-letter", "exit-codes"];
    let typed = |name: &String| {
        let mut text = name.replace('-', " ");
        for word in words {
            text = text.replace(&word.replace('-', " "), word);
        }
        text
    };
    names.iter().filter(|name| !has_children(name) && !name.ends_with("-help")).map(typed).collect()
}
