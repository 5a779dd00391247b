//! Random scripts. The same seed always gives the same script.

use crate::script::Command;

/// A small generator of numbers that look random (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// 0 to `below - 1`.
    fn roll(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len() as u64) as usize]
    }

    fn message(&mut self) -> String {
        format!("m{}", self.roll(24))
    }

    fn queue(&mut self, command: Command) -> Command {
        if self.once_in(4) { command.with("in", "r") } else { command }
    }

    fn process(&mut self, command: Command) -> Command {
        if self.once_in(2) { command } else { command.with("as", 2 + self.roll(2)) }
    }
}

/// So many commands: two policies first, then what producers, workers, operators, time and misfortune
/// do to them.
pub fn random_script(seed: u64, steps: usize) -> Vec<Command> {
    let mut dice = Dice(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let mut script = vec![policy(&mut dice), policy(&mut dice).with("in", "r")];
    while script.len() < steps {
        script.push(command(&mut dice));
    }
    script.truncate(steps);
    script
}

fn command(dice: &mut Dice) -> Command {
    match dice.roll(100) {
        0..24 => push(dice),
        24..44 => lease(dice),
        44..56 => settled(dice, "done"),
        56..66 => fail(dice),
        66..71 => settled(dice, "release"),
        71..73 => settled(dice, "defer").word(dice.pick(&["3s", "20s"])),
        73..75 => settled(dice, "renew").word(dice.pick(&["10s", "60s"])),
        75..81 => Command::new("advance", dice.pick(&["1s", "5s", "10s", "31s", "90s"])),
        81..83 => dice_with(dice, "die"),
        83 => Command::bare("crash"),
        84 => Command::bare("expire"),
        85..91 => desk(dice),
        91..94 => replay(dice),
        94 => gate(dice),
        95 => {
            let stream = dice.pick(&["s", "t"]);
            dice.queue(Command::new("release-followers", stream))
        }
        96 => {
            let count = 1 + dice.roll(2);
            let age = dice.pick(&["0s", "0s", "5s", "31s"]);
            dice.queue(Command::new("purge", count.to_string()).with("age", age))
        }
        97 => adopt(dice),
        _ => {
            let command = policy(dice);
            dice.queue(command)
        }
    }
}

fn dice_with(dice: &mut Dice, verb: &str) -> Command {
    Command::bare(verb).with("as", 2 + dice.roll(2))
}

fn policy(dice: &mut Dice) -> Command {
    Command::bare("queue")
        .with("attempts", dice.roll(4))
        .with("cooldown", dice.pick(&["1s", "10s", "60s"]))
        .with("ordering", dice.pick(&["strict", "strict", "available"]))
        .with("head", dice.pick(&["hold", "pass"]))
        .with("run_max", 1 + dice.roll(4))
        .with("crash_budget", 1 + dice.roll(3))
        .with("key_window", dice.pick(&["0s", "20s", "1h"]))
}

fn push(dice: &mut Dice) -> Command {
    let mut command = Command::bare("push");
    if dice.once_in(2) {
        command = command.with("stream", dice.pick(&["s", "s", "t", "u"]));
    }
    if dice.once_in(4) {
        command = command.with("key", dice.pick(&["k", "l"]));
    }
    if dice.once_in(4) {
        command = command.with("type", dice.pick(&["mail", "bill"]));
    }
    if dice.once_in(4) {
        command = command.with("priority", dice.pick(&["0", "5", "9"]));
    }
    if dice.once_in(5) {
        command = command.with("delay", dice.pick(&["1s", "10s", "45s"]));
    }
    dice.queue(command)
}

fn lease(dice: &mut Dice) -> Command {
    let count = 1 + dice.roll(5);
    let command = Command::new("lease", count.to_string()).with("for", dice.pick(&["10s", "30s", "90s"]));
    let command = dice.queue(command);
    dice.process(command)
}

fn settled(dice: &mut Dice, verb: &str) -> Command {
    let mut command = Command::new(verb, dice.message());
    if dice.once_in(12) {
        command = command.word("old");
    }
    if verb == "done" && dice.once_in(6) {
        command = command.with("effect", dice.pick(&["row", "fail"]));
    }
    if dice.once_in(8) && verb != "renew" {
        command = command.with("stage", dice.pick(&["stored", "published"]));
    }
    command
}

fn fail(dice: &mut Dice) -> Command {
    let mut command = settled(dice, "fail").word(dice.pick(&["transient", "transient", "unknown", "poison"]));
    if dice.once_in(4) {
        command = command.word("cascade");
    }
    if dice.once_in(6) {
        command = command.with("after", "7s");
    }
    command
}

fn desk(dice: &mut Dice) -> Command {
    let verb = dice.pick(&[
        "dead-letter",
        "discard",
        "discard",
        "restore",
        "cancel",
        "hasten",
        "hasten",
        "reset",
        "reset",
    ]);
    Command::new(verb, dice.message())
}

fn replay(dice: &mut Dice) -> Command {
    let mut command = Command::new("replay", dice.message());
    if dice.once_in(5) {
        command = command.with("in", dice.pick(&["q", "r"]));
    }
    if dice.once_in(4) {
        command = command.with("payload", dice.pick(&["fixed", "mended"]));
    }
    command
}

fn gate(dice: &mut Dice) -> Command {
    let verb = dice.pick(&["pause", "resume", "resume", "trip", "probe"]);
    let mut command = Command::bare(verb);
    if verb == "probe" {
        command = command.word((1 + dice.roll(3)).to_string());
    }
    if verb == "trip" || verb == "probe" || dice.once_in(2) {
        command = command.with("type", dice.pick(&["mail", "bill"]));
    }
    dice.queue(command)
}

fn adopt(dice: &mut Dice) -> Command {
    let mut command = Command::bare("adopt")
        .with("origin", format!("o{}", dice.roll(6)))
        .with("decision", dice.pick(&["retry", "release", "quarantine"]));
    if dice.once_in(2) {
        command = command.with("stream", dice.pick(&["s", "t"]));
    }
    dice.queue(command)
}
