//! Sessions as they are written: files of their own, or the `console` blocks of a page.

use std::path::{Path, PathBuf};

/// One command and what is expected of it.
pub(super) struct Step {
    pub(super) command: String,
    pub(super) expected: String,
}

enum Part {
    /// Words around the steps, kept as they are.
    Words(String),
    Step(Step),
}

impl Part {
    fn is_step(&self) -> bool {
        matches!(self, Self::Step(_))
    }
}

/// A file with sessions in it.
pub(super) struct Page {
    path: PathBuf,
    parts: Vec<Part>,
}

impl Page {
    pub(super) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        let (mut parts, mut inside) = (Vec::new(), !is_page);
        for line in text.split_inclusive('\n') {
            let bare = line.trim_end_matches('\n');
            if is_page && bare.starts_with("```") {
                inside = bare == "```console";
                parts.push(Part::Words(line.to_owned()));
                continue;
            }
            // Words at the beginning of a file, before anything is typed, say what it is about.
            let is_about = !is_page && bare.starts_with('#') && !parts.iter().any(Part::is_step);
            if !inside || is_about {
                parts.push(Part::Words(line.to_owned()));
            } else if let Some(command) = bare.strip_prefix("$ ") {
                parts.push(Part::Step(Step { command: command.to_owned(), expected: String::new() }));
            } else if let Some(Part::Step(step)) = parts.last_mut() {
                match bare.strip_prefix("> ") {
                    Some(more) if step.expected.is_empty() => {
                        step.command.push('\n');
                        step.command.push_str(more);
                    }
                    _ => step.expected.push_str(line),
                }
            } else {
                parts.push(Part::Words(line.to_owned()));
            }
        }
        Self { path: path.to_owned(), parts }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().filter_map(|part| match part {
            Part::Step(step) => Some(step),
            Part::Words(_) => None,
        })
    }

    pub(super) fn steps_mut(&mut self) -> impl Iterator<Item = &mut Step> {
        self.parts.iter_mut().filter_map(|part| match part {
            Part::Step(step) => Some(step),
            Part::Words(_) => None,
        })
    }

    pub(super) fn into_steps(self) -> impl Iterator<Item = Step> {
        self.parts.into_iter().filter_map(|part| match part {
            Part::Step(step) => Some(step),
            Part::Words(_) => None,
        })
    }

    pub(super) fn write(&self) {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Words(words) => text.push_str(words),
                Part::Step(step) => {
                    let mut lines = step.command.lines();
                    text.push_str(&format!("$ {}\n", lines.next().unwrap_or_default()));
                    lines.for_each(|line| text.push_str(&format!("> {line}\n")));
                    text.push_str(&step.expected);
                }
            }
        }
        std::fs::write(&self.path, text).unwrap();
    }
}
