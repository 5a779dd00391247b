//! Random scripts that drive two stores alike: what can be seen of them must be the same after every
//! command. A difference is reduced to the shortest script that still shows it.

mod random;

pub use random::random_script;

use crate::fixture::Fixture;
use crate::script::{Command, Runner};

/// What a transcript says of counts that do not add up.
const WRONG_COUNTS: &str = "DOES NOT ADD UP";

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
/// If the stores differ, or if the counts of one do not add up; shows the seed, the shortest script found, and both transcripts' last step.
pub fn compare<A: Fixture, B: Fixture>(a: impl Fn() -> A, b: impl Fn() -> B, seed: u64, steps: usize) {
    let difference = |commands: &[Command]| {
        let (left, right) = (transcript(a(), commands), transcript(b(), commands));
        first_wrong(&left, &right).map(|at| (at, left[at].clone(), right[at].clone()))
    };
    let mut script = random_script(seed, steps);
    let Some((at, ..)) = difference(&script) else { return };
    script.truncate(at + 1);
    let script = shrink(script, |shorter| difference(shorter).is_some());
    let (at, left, right) = difference(&script).unwrap_or_default();
    let lines: Vec<String> = script.iter().take(at + 1).map(ToString::to_string).collect();
    panic!(
        "seed {seed}: the stores differ, or both are wrong, after\n\n{}\n\n{}",
        lines.join("\n"),
        show_difference(&left, &right)
    );
}

/// The first step after which the stores differ or, alike or not, have counts that do not add up.
fn first_wrong(left: &[String], right: &[String]) -> Option<usize> {
    left.iter().zip(right).position(|(left, right)| left != right || left.contains(WRONG_COUNTS))
}

fn transcript(mut fixture: impl Fixture, commands: &[Command]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    runtime.block_on(run(&mut fixture, commands))
}

/// Drops commands, first many at once and then one by one, as long as `fails` still holds. Where a push
/// is dropped, the names of later messages may move up with it.
pub fn shrink(mut script: Vec<Command>, fails: impl Fn(&[Command]) -> bool) -> Vec<Command> {
    let plain = with_plain_names(&script);
    if fails(&plain) {
        script = plain;
    }
    let mut size = (script.len() / 2).max(1);
    loop {
        let before = script.len();
        let mut at = 0;
        while at < script.len() {
            let end = (at + size).min(script.len());
            match [without(&script, at, end, true), without(&script, at, end, false)]
                .into_iter()
                .find(|s| fails(s))
            {
                Some(shorter) => script = shorter,
                None => at = end,
            }
        }
        if size == 1 && script.len() == before {
            return script;
        }
        size = (size / 2).max(1);
    }
}

fn makes_a_message(command: &Command) -> bool {
    matches!(command.verb.as_str(), "push" | "adopt")
}

/// Gives every message that a command is about another number.
fn rename(command: &Command, number: impl Fn(usize) -> usize) -> Command {
    let mut renamed = command.clone();
    if let Some(word) = renamed.words.first_mut()
        && let Some(index) = word.strip_prefix('m').and_then(|digits| digits.parse().ok())
    {
        *word = format!("m{}", number(index));
    }
    renamed
}

/// Calls messages by the numbers they have, as far as the script alone tells, instead of by larger ones
/// that begin again from m0.
fn with_plain_names(script: &[Command]) -> Vec<Command> {
    let mut made = 0;
    let plain = |command: &Command| {
        let renamed = rename(command, |index| index.checked_rem(made).unwrap_or(index));
        made += usize::from(makes_a_message(command));
        renamed
    };
    script.iter().map(plain).collect()
}

/// The script without some of its lines.
fn without(script: &[Command], from: usize, to: usize, move_up: bool) -> Vec<Command> {
    let count = |commands: &[Command]| commands.iter().filter(|command| makes_a_message(command)).count();
    let (kept, gone) = (count(&script[..from]), count(&script[from..to]));
    let name = |index: usize| if move_up && index >= kept + gone { index - gone } else { index };
    script[..from].iter().cloned().chain(script[to..].iter().map(|command| rename(command, name))).collect()
}

/// The lines that differ, or are wrong in both, one above the other.
fn show_difference(left: &str, right: &str) -> String {
    let shown = |(left, right): &(&str, &str)| left != right || left.contains(WRONG_COUNTS);
    let lines = left.lines().zip(right.lines()).filter(shown);
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
    fn counts_that_do_not_add_up_are_wrong_even_if_both_stores_agree() {
        let step = |text: &str| vec!["push q -> m0".to_owned(), format!("claim q -> m0\n    q: {text}")];
        assert_eq!(first_wrong(&step("pushed 1, active 1"), &step("pushed 1, active 1")), None);
        let wrong = step(&format!("pushed 1, {WRONG_COUNTS}"));
        assert_eq!(first_wrong(&wrong, &wrong), Some(1));
        assert!(show_difference(&wrong[1], &wrong[1]).contains(WRONG_COUNTS));
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
        let needed: Vec<Command> =
            script.iter().filter(|command| command.verb == "advance").cloned().collect();
        assert!(needed.len() > 1);
        let shrunk = shrink(script, |shorter| {
            shorter.iter().filter(|command| command.verb == "advance").count() == needed.len()
        });
        assert_eq!(shrunk, needed);
    }
}
