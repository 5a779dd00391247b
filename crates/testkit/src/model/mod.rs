//! Random scripts that drive two stores alike: what can be seen of them must be the same after every
//! command. A difference is reduced to the shortest script that still shows it.

mod random;

pub use random::random_script;

use crate::fixture::Fixture;
use crate::script::{Command, Runner};

/// Runs commands and writes down all that can be seen: each answer, then the figures, streams and
/// dead letters of both queues, every message, and the history of the one the command was about.
pub async fn run(fixture: &mut dyn Fixture, commands: &[Command]) -> Vec<String> {
    let mut runner = Runner::new(fixture).await;
    let mut transcript = Vec::with_capacity(commands.len());
    for command in commands {
        let mut seen = vec![format!("{command} -> {}", runner.run(command).await)];
        seen.extend(runner.observe(command).await);
        transcript.push(seen.join("\n    "));
    }
    transcript
}

/// Drives two stores through the random script of this seed. `a` and `b` make a fresh, empty fixture
/// each time they are called.
///
/// # Panics
///
/// If the stores differ; shows the seed, the shortest script found, and both transcripts' last step.
pub fn compare<A: Fixture, B: Fixture>(a: impl Fn() -> A, b: impl Fn() -> B, seed: u64, steps: usize) {
    let difference = |commands: &[Command]| {
        let (left, right) = (transcript(a(), commands), transcript(b(), commands));
        let at = left.iter().zip(&right).position(|(left, right)| left != right);
        at.map(|at| (at, left[at].clone(), right[at].clone()))
    };
    let mut script = random_script(seed, steps);
    let Some((at, ..)) = difference(&script) else { return };
    script.truncate(at + 1);
    let script = shrink(script, |shorter| difference(shorter).is_some());
    let (at, left, right) = difference(&script).unwrap_or_default();
    let lines: Vec<String> = script.iter().take(at + 1).map(ToString::to_string).collect();
    panic!(
        "seed {seed}: the stores differ after\n\n{}\n\n{}",
        lines.join("\n"),
        show_difference(&left, &right)
    );
}

fn transcript(mut fixture: impl Fixture, commands: &[Command]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    runtime.block_on(run(&mut fixture, commands))
}

/// Drops commands, first many at once and then one by one, as long as `fails` still holds.
pub fn shrink(mut script: Vec<Command>, fails: impl Fn(&[Command]) -> bool) -> Vec<Command> {
    let mut size = (script.len() / 2).max(1);
    loop {
        let before = script.len();
        let mut at = 0;
        while at < script.len() {
            let mut shorter = script.clone();
            shorter.drain(at..(at + size).min(script.len()));
            if fails(&shorter) {
                script = shorter;
            } else {
                at += size;
            }
        }
        if size == 1 && script.len() == before {
            return script;
        }
        size = (size / 2).max(1);
    }
}

/// The lines that differ, one above the other.
fn show_difference(left: &str, right: &str) -> String {
    let lines = left.lines().zip(right.lines()).filter(|(left, right)| left != right);
    lines.map(|(left, right)| format!("a: {}\nb: {}\n", left.trim(), right.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_script_and_another_seed_another() {
        assert_eq!(random_script(7, 50), random_script(7, 50));
        assert_ne!(random_script(7, 50), random_script(8, 50));
        assert_eq!(random_script(7, 50).len(), 50);
    }

    #[test]
    fn scripts_survive_being_written_down() {
        for command in random_script(3, 200) {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
    }

    #[test]
    fn shrinking_keeps_only_what_matters() {
        let script = random_script(5, 100);
        let needed: Vec<Command> = script.iter().filter(|command| command.verb == "advance").cloned().collect();
        assert!(needed.len() > 1);
        let shrunk = shrink(script, |shorter| {
            shorter.iter().filter(|command| command.verb == "advance").count() == needed.len()
        });
        assert_eq!(shrunk, needed);
    }
}
