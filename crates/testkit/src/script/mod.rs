//! Lives of messages as short scripts, run against any store through one [`check`].
//!
//! ```text
//! push 42        -> m0
//! lease          -> m0 attempt 1
//! crash          -> suspect
//! lease          -> m0 attempt 2 alone
//! ```
//!
//! A line is a command and, after `->`, its answer; without one the answer must be `ok`. What begins
//! with `#` is a comment. Messages are called m0, m1, … in the order of their pushes. Every command
//! acts on the queue `q` unless it says `in=r`; both exist. [`Runner::run`] lists the commands.

mod act;
mod answer;
mod command;
mod lives;
mod runner;

pub use command::Command;
pub use lives::life;
pub use runner::Runner;

use crate::fixture::Fixture;

/// Runs a script. If an answer differs, the whole script is shown with the answers that were given.
///
/// # Panics
///
/// If an answer differs or a line cannot be read.
pub async fn check(fixture: &mut dyn Fixture, script: &str) {
    let mut runner = Runner::new(fixture).await;
    let (mut shown, mut differ) = (String::new(), 0);
    for line in script.lines() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            shown.push_str(&format!("  {line}\n"));
            continue;
        }
        let (command, expected) = text.split_once("->").map_or((text, "ok"), |(c, e)| (c.trim(), e.trim()));
        let parsed = command.parse::<Command>();
        let answer = match &parsed {
            Ok(command) => runner.run(command).await,
            Err(error) => error.clone(),
        };
        let same = answer == expected;
        differ += usize::from(!same);
        shown.push_str(&format!("{} {command:<44} -> {answer}\n", if same { ' ' } else { '!' }));
        if !same {
            shown.push_str(&format!("  {:<44}    {expected}   was expected\n", ""));
        }
    }
    assert!(differ == 0, "{differ} answers differ:\n\n{shown}");
}
