//! The script that a store is driven with, and what the model says it must look like after each command.

use sickbay_core::clock::{Clock, Timestamp};
use sickbay_testkit::model::random_script;
use sickbay_testkit::script::{Command, Runner};
use sickbay_testkit::{Fixture, ManualClock};

use crate::dice::Dice;
use crate::fixture::ModelFixture;
use crate::observe::{Seen, observe};

/// A random script; now and then the store is closed and opened again.
pub fn script(seed: u64, steps: usize) -> Vec<Command> {
    let mut dice = Dice::new(seed);
    let mut script = random_script(seed, steps);
    for command in script.iter_mut().skip(2) {
        if dice.once_in(30) {
            *command = Command::bare("reopen");
        }
    }
    script.push(Command::bare("reopen"));
    script
}

/// What must be found after a death.
#[derive(Clone, Debug)]
pub struct Expected {
    /// When it happened.
    pub at: Timestamp,
    /// All that can be seen after the next start.
    pub seen: Seen,
    /// All that can be seen if nobody dies.
    pub live: Seen,
    /// The last number given to a message.
    pub last_number: u64,
}

/// What the model looks like if it dies after each command of a script, beginning with none.
pub async fn expected(script: &[Command], numbers: u64) -> Vec<Expected> {
    let mut all = Vec::with_capacity(script.len() + 1);
    for count in 0..=script.len() {
        let mut fixture = ModelFixture::new(ManualClock::new());
        let mut runner = Runner::new(&mut fixture).await;
        for command in &script[..count] {
            model_step(&mut runner, command).await;
        }
        let last_number = runner.messages() as u64;
        let live = look(&fixture, numbers).await;
        fixture.crash();
        all.push(Expected {
            at: fixture.clock().now(),
            seen: look(&fixture, numbers).await,
            live,
            last_number,
        });
    }
    all
}

async fn look(fixture: &ModelFixture, numbers: u64) -> Seen {
    observe(fixture, numbers).await.unwrap_or_else(|error| panic!("the model: {error}"))
}

/// A clean stop gives everything back that is in somebody's hands; the model is told so in words.
pub(crate) async fn model_step(runner: &mut Runner<'_>, command: &Command) -> String {
    if command.verb == "reopen" {
        for index in 0..runner.messages() {
            runner.run(&Command::new("release", format!("m{index}"))).await;
        }
    }
    runner.run(command).await
}

/// What may be found if the power goes before the store was set up: no queue, one or two.
pub async fn expected_before(numbers: u64) -> Vec<Seen> {
    let mut all = Vec::new();
    for count in 0..=2 {
        let fixture = ModelFixture::new(ManualClock::new());
        for queue in ["q", "r"].into_iter().take(count) {
            let Ok(queue) = queue.parse() else { continue };
            let defined = fixture.store().define_queue(&queue, Default::default()).await;
            assert!(defined.is_ok(), "{defined:?}");
        }
        all.push(look(&fixture, numbers).await);
    }
    all
}
