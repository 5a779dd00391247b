//! kill -9, again and again: while a child opens its store, pushes, claims and settles.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sickbay_core::MessageId;
use sickbay_core::port::Overview;
use sickbay_core::quarantine::{AttemptEnd, MessageView};
use sickbay_store::SqliteStore;

use super::child::{ASKS, HOLDS, options, queue};
use super::{folder, start_complaining_to, wait};
use crate::dice::Dice;

const SIGKILL: i32 = 9;
/// Look at everything after so many kills.
const LOOK_EVERY: u64 = 40;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Kills {
    /// So many processes were killed.
    pub kills: u64,
    /// So many pushes were acknowledged.
    pub pushed: u64,
    /// So many ends of deliveries are on record.
    pub ends: u64,
    /// Acknowledged and gone, or done twice, or a number given twice.
    pub lost: Vec<String>,
    /// Deliveries that nobody knows the end of.
    pub unexplained: Vec<String>,
    /// So often a process died with several messages in its hands: none of them may be charged for it.
    pub deaths_in_company: u64,
    /// Messages that were quarantined although nothing was poison, and charges for deaths in company.
    pub blamed: u64,
}

/// What the children said, of all lives.
#[derive(Default)]
struct Words {
    /// Numbers of messages whose push was acknowledged.
    pushed: HashSet<u64>,
    /// How often each message was in the hands of a process that died with others in its hands, too.
    in_company: HashMap<u64, u64>,
}

/// Kills a child so many times.
pub fn kills(count: u64, seed: u64) -> Result<Kills> {
    let folder = folder()?;
    let store = folder.path().join("store.db");
    let mut outcome = Kills::default();
    let (mut words, mut settled) = (Words::default(), HashSet::new());
    let mut dice = Dice::new(seed);
    while outcome.kills < count {
        live_and_die(&store, &mut dice, &mut words, &mut outcome)?;
        outcome.kills += 1;
        if outcome.kills.is_multiple_of(LOOK_EVERY) || outcome.kills == count {
            look(&store, &words, &mut settled, &mut outcome)?;
        }
    }
    outcome.pushed = words.pushed.len() as u64;
    Ok(outcome)
}

/// Starts a child, lets it live for a moment, and kills it. What it said was pushed is added.
fn live_and_die(store: &Path, dice: &mut Dice, words: &mut Words, outcome: &mut Kills) -> Result<()> {
    let complaints = store.with_extension("complaints");
    let mut child = start_complaining_to("child-busy", store, File::create(&complaints)?.into())?;
    let output = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut left = 1 + dice.roll(40);
    if dice.once_in(4) {
        // Perhaps it is still opening its store.
        wait(Duration::from_micros(dice.roll(6000) as u64));
        child.kill()?;
    }
    // What is certainly in its hands; nothing while it asks for more.
    let mut holds = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        if let Some(numbers) = line.strip_prefix(HOLDS) {
            holds = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        } else if line == ASKS {
            holds.clear();
        } else if let Ok(number) = line.parse() {
            if !words.pushed.insert(number) {
                outcome.lost.push(format!("the number {number} was given twice"));
            }
        } else {
            // A line that was cut off was not said.
            continue;
        }
        left = left.saturating_sub(1);
        if left == 0 {
            // What is still in the pipe was said before and counts.
            child.kill()?;
        }
    }
    if holds.len() > 1 {
        outcome.deaths_in_company += 1;
        holds.into_iter().for_each(|number: u64| *words.in_company.entry(number).or_default() += 1);
    }
    let status = child.wait()?;
    if status.signal() != Some(SIGKILL) {
        let complaints = std::fs::read_to_string(complaints)?;
        outcome
            .lost
            .push(format!("a process was not killed, but ended by itself, {status}: {}", complaints.trim()));
    }
    Ok(())
}

fn handled(store: &Path) -> Result<HashMap<u64, u64>> {
    let connection = rusqlite::Connection::open(store)?;
    let Ok(mut statement) = connection.prepare("SELECT number, count(*) FROM handled GROUP BY number") else {
        return Ok(HashMap::new());
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Charges beyond the deaths at which the message may have been alone in its process's hands.
fn blamed(view: &MessageView, in_company: u64) -> u64 {
    let crashes = view.history.iter().filter(|attempt| attempt.end == AttemptEnd::Crashed).count() as u64;
    u64::from(view.counters.charges).saturating_sub(crashes.saturating_sub(in_company))
}

/// Everything that was acknowledged is done once, or there, and nobody is charged for a death in company.
fn look(store: &Path, words: &Words, settled: &mut HashSet<u64>, outcome: &mut Kills) -> Result<()> {
    let effects = store;
    // Before anybody else touches the file: this is how a program finds it whose predecessor was killed.
    let store = SqliteStore::open(store, options())?;
    for (number, count) in handled(effects)? {
        settled.insert(number);
        if count > 1 {
            outcome.lost.push(format!("the effect of message {number} was committed {count} times"));
        }
    }
    crate::runtime().block_on(async {
        for number in words.pushed.difference(settled) {
            let id = MessageId::from_number(*number).context("a number that is none")?;
            match store.find(id.to_string().parse()?).await? {
                None => outcome.lost.push(format!("message {number} was acknowledged and is gone")),
                // Nobody holds it now, so each of its deliveries has ended, and each end is on record.
                Some(view) if view.counters.deliveries as usize != view.history.len() => {
                    outcome.unexplained.push(format!("message {number}: {:?}", view.history));
                }
                Some(view) => {
                    outcome.ends += view.history.len() as u64;
                    outcome.blamed += blamed(&view, words.in_company.get(number).copied().unwrap_or(0));
                }
            }
        }
        let stats = store.stats(&queue()?).await?;
        if !stats.adds_up() {
            outcome.lost.push(format!("the counts do not add up: {stats:?}"));
        }
        outcome.blamed += stats.dead;
        Ok(())
    })
}
