//! Scripts from seeds. Each seed first draws a character (which kinds of steps are frequent, rare or
//! absent), then the steps: what producers, workers, operators, time and misfortune do.

use sickbay_testkit::script::Command;

use crate::dice::Dice;
use crate::world::QUEUES;

/// The message types that are used.
pub const TYPES: [&str; 2] = ["mail", "bill"];
const STREAMS: [&str; 4] = ["s", "s", "t", "u"];

/// One kind of step.
#[derive(Clone, Copy)]
enum What {
    Push,
    Adopt,
    Claim,
    Done,
    Fail,
    Release,
    Renew,
    Advance,
    Back,
    Die,
    Crash,
    Reopen,
    Act,
    Replay,
    Gate,
    Purge,
    Followers,
    Policy,
    Work,
    Kill,
    Stop,
    Break,
    Damage,
}

/// Every kind of step, and how often it comes among a thousand by default.
const BASE: [(What, u64); 23] = [
    (What::Push, 220),
    (What::Adopt, 12),
    (What::Claim, 230),
    (What::Done, 210),
    (What::Fail, 70),
    (What::Release, 35),
    (What::Renew, 15),
    (What::Advance, 90),
    (What::Back, 3),
    (What::Die, 18),
    (What::Crash, 4),
    (What::Reopen, 3),
    (What::Act, 45),
    (What::Replay, 25),
    (What::Gate, 14),
    (What::Purge, 6),
    (What::Followers, 12),
    (What::Policy, 6),
    (What::Work, 0),
    (What::Kill, 0),
    (What::Stop, 0),
    (What::Break, 0),
    (What::Damage, 2),
];

/// What a schedule is made of.
struct Character {
    weights: Vec<(What, u64)>,
    sum: u64,
    streams_in: u64,
    keys_in: u64,
    types_in: u64,
    processes: u64,
    second_queue_in: u64,
}

impl Character {
    fn draw(dice: &mut Dice) -> Self {
        let crews = dice.once_in(4);
        let mut weights: Vec<(What, u64)> = BASE.to_vec();
        for (what, weight) in &mut weights {
            *weight = match what {
                // Without these nothing happens at all.
                What::Push | What::Claim | What::Done | What::Advance => *weight,
                What::Work if crews => 60,
                What::Kill if crews => 5,
                What::Stop | What::Break if crews => 6,
                _ => *weight * [0, 1, 1, 1, 2, 4][dice.roll(6) as usize],
            };
        }
        let sum = weights.iter().map(|(_, weight)| weight).sum();
        Self {
            weights,
            sum,
            streams_in: 1 + dice.roll(4),
            keys_in: 2 + dice.roll(6),
            types_in: 2 + dice.roll(4),
            processes: 1 + dice.roll(3),
            second_queue_in: 2 + dice.roll(5),
        }
    }

    fn what(&self, dice: &mut Dice) -> What {
        let mut left = dice.roll(self.sum);
        for (what, weight) in &self.weights {
            match left.checked_sub(*weight) {
                None => return *what,
                Some(rest) => left = rest,
            }
        }
        What::Push
    }
}

/// So many steps. The same seed always gives the same script.
pub fn script(seed: u64, steps: usize) -> Vec<Command> {
    let mut dice = Dice::new(seed);
    let character = Character::draw(&mut dice);
    let mut script: Vec<Command> = QUEUES.iter().map(|queue| policy(&mut dice, queue)).collect();
    while script.len() < steps {
        script.push(step(&mut dice, &character));
    }
    script.truncate(steps);
    script
}

fn step(dice: &mut Dice, character: &Character) -> Command {
    match character.what(dice) {
        What::Push => push(dice, character),
        What::Adopt => adopt(dice, character),
        What::Claim => claim(dice, character),
        What::Done => done(dice, character),
        What::Fail => fail(dice, character),
        What::Release => {
            let verb = dice.pick(&["release", "release", "defer"]);
            settled(dice, character, verb).with("after", dice.pick(&["0s", "3s", "20s"]))
        }
        What::Renew => settled(dice, character, "renew").with("for", dice.pick(&["10s", "60s"])),
        What::Advance => Command::new(
            "advance",
            dice.pick(&["0s", "1s", "1s", "5s", "10s", "31s", "90s", "1500ms", "10m"]),
        ),
        What::Back => Command::new("back", dice.pick(&["1s", "30s", "1h"])),
        What::Die => Command::bare("die").with("by", 1 + dice.roll(character.processes)),
        What::Crash => Command::bare("crash"),
        What::Reopen => Command::bare("reopen"),
        What::Act => act(dice),
        What::Replay => replay(dice),
        What::Gate => gate(dice, character),
        What::Purge => {
            let command = Command::new("purge", queue(dice, character)).word((1 + dice.roll(4)).to_string());
            command.with("age", dice.pick(&["0s", "0s", "10s", "1h"]))
        }
        What::Followers => {
            Command::new("release-followers", queue(dice, character)).word(dice.pick(&STREAMS))
        }
        What::Policy => {
            let queue = queue(dice, character);
            policy(dice, queue)
        }
        What::Work => work(dice, character),
        What::Kill => crew(dice, "kill"),
        What::Stop => crew(dice, "stop"),
        What::Break => crew(dice, "break").word(dice.pick(&["turns", "answers", "renewals"])),
        What::Damage => {
            Command::new("damage", dice.pick(&["waiting", "dead"])).word(dice.roll(16).to_string())
        }
    }
}

fn queue(dice: &mut Dice, character: &Character) -> &'static str {
    QUEUES[usize::from(dice.once_in(character.second_queue_in))]
}

fn policy(dice: &mut Dice, queue: &str) -> Command {
    let command = Command::new("queue", queue)
        .with("attempts", dice.roll(5))
        .with("ordering", dice.pick(&["strict", "strict", "available"]))
        .with("head", dice.pick(&["hold", "hold", "pass"]))
        .with("run_max", 1 + dice.roll(4))
        .with("crash_budget", 1 + dice.roll(3))
        .with("key_window", dice.pick(&["0s", "20s", "1h"]))
        .with("keep", dice.pick(&["0s", "0s", "40s"]));
    match dice.once_in(4) {
        true => command.with("exponential", "2s"),
        false => command.with("cooldown", dice.pick(&["0s", "1s", "10s", "60s"])),
    }
}

fn push(dice: &mut Dice, character: &Character) -> Command {
    let mut command = Command::new("push", queue(dice, character));
    if dice.once_in(character.streams_in) {
        command = command.with("stream", dice.pick(&STREAMS));
    }
    if dice.once_in(character.keys_in) {
        command = command.with("key", dice.pick(&["k", "l", "m"]));
    }
    if dice.once_in(character.types_in) {
        command = command.with("type", dice.pick(&TYPES));
    }
    if dice.once_in(4) {
        command = command.with("priority", dice.pick(&["0", "5", "9"]));
    }
    if dice.once_in(5) {
        command = command.with("delay", dice.pick(&["1s", "10s", "45s"]));
    }
    if dice.once_in(8) {
        command = command.with("deadline", dice.pick(&["1s", "30s", "5m"]));
    }
    if dice.once_in(8) {
        command = command.with("size", dice.pick(&["1", "2", "40", "5000"]));
    }
    if dice.once_in(10) {
        command = command.with("count", 2 + dice.roll(3));
    }
    command
}

fn adopt(dice: &mut Dice, character: &Character) -> Command {
    let command = Command::new("adopt", queue(dice, character))
        .with("origin", format!("o{}", dice.roll(12)))
        .with("deliveries", dice.roll(3))
        .with("decision", dice.pick(&["retry", "release", "quarantine"]));
    if dice.once_in(3) { command.with("stream", dice.pick(&STREAMS)) } else { command }
}

fn by(dice: &mut Dice, character: &Character, command: Command) -> Command {
    command.with("by", dice.roll(character.processes + 1))
}

fn claim(dice: &mut Dice, character: &Character) -> Command {
    let command = Command::new("claim", queue(dice, character))
        .with("max", 1 + dice.roll(5))
        .with("for", dice.pick(&["10s", "30s", "90s"]));
    by(dice, character, command)
}

fn settled(dice: &mut Dice, character: &Character, verb: &str) -> Command {
    let mut command = Command::new(verb, dice.roll(8).to_string());
    if dice.once_in(15) {
        command = command.word("late");
    }
    by(dice, character, command)
}

fn done(dice: &mut Dice, character: &Character) -> Command {
    let command = settled(dice, character, "done");
    match dice.roll(10) {
        0 => command.with("effect", dice.pick(&["row", "row", "fail"])),
        1..4 => command.with("then", queue(dice, character)),
        _ => command,
    }
}

fn fail(dice: &mut Dice, character: &Character) -> Command {
    let verb = dice.pick(&["fail", "fail", "unknown", "poison"]);
    let mut command = settled(dice, character, verb);
    if dice.once_in(4) {
        command = command.word("cascade");
    }
    if dice.once_in(6) {
        command = command.with("after", dice.pick(&["0s", "7s"]));
    }
    if dice.once_in(5) {
        command = command.with("stages", dice.roll(64));
    }
    command
}

fn act(dice: &mut Dice) -> Command {
    let (verb, place) = match dice.roll(13) {
        0 => ("dead-letter", "leased"),
        1 => ("dead-letter", "waiting"),
        2..5 => ("discard", "dead"),
        5..7 => ("restore", "discarded"),
        7 => ("cancel", "waiting"),
        8..11 => ("hasten", "scheduled"),
        11 => ("reset", "waiting"),
        _ => {
            (dice.pick(&["dead-letter", "discard", "restore", "cancel", "hasten", "replay", "reset"]), "any")
        }
    };
    Command::new(verb, place).word(dice.roll(64).to_string())
}

fn replay(dice: &mut Dice) -> Command {
    let mut command = Command::new("replay", "dead").word(dice.roll(64).to_string());
    if dice.once_in(5) {
        command = command.with("to", dice.pick(&QUEUES));
    }
    if dice.once_in(4) {
        command = command.with("payload", dice.pick(&["fixed", "mended"]));
    }
    command
}

fn gate(dice: &mut Dice, character: &Character) -> Command {
    let queue = queue(dice, character);
    match dice.roll(7) {
        0 => Command::new("pause", queue),
        1..3 => Command::new("resume", queue),
        roll => {
            let command = Command::new("gate", queue).word(dice.pick(&TYPES));
            match roll {
                3 => command.word("paused"),
                4 => command.word("probing").word((1 + dice.roll(3)).to_string()),
                _ => command.word("open"),
            }
        }
    }
}

fn crew(dice: &mut Dice, verb: &str) -> Command {
    Command::bare(verb).with("by", 4 + dice.roll(2))
}

fn work(dice: &mut Dice, character: &Character) -> Command {
    Command::new("work", queue(dice, character))
        .with("by", 4 + dice.roll(2))
        .with("turns", 4 + dice.roll(40))
        .with("concurrency", 1 + dice.roll(4))
        .with("prefetch", dice.roll(5))
        .with("character", dice.roll(1000))
}

#[cfg(test)]
mod tests {
    use super::script;

    #[test]
    fn the_same_seed_gives_the_same_script_and_every_step_survives_being_written_down() {
        assert_eq!(script(7, 300), script(7, 300));
        assert_ne!(script(7, 300), script(8, 300));
        for command in script(3, 2000) {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
    }
}
