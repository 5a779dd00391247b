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
use sickbay_store::SqliteStore;

use super::child::{options, queue};
use super::{folder, start_complaining_to, wait};
use crate::dice::Dice;

const SIGKILL: i32 = 9;
/// Look at everything after so many kills.
const LOOK_EVERY: u64 = 200;

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
    /// Messages that were quarantined although nothing was poison.
    pub blamed: u64,
}

/// Kills a child so many times.
pub fn kills(count: u64, seed: u64) -> Result<Kills> {
    let folder = folder()?;
    let store = folder.path().join("store.db");
    let mut outcome = Kills::default();
    let (mut pushed, mut settled) = (HashSet::new(), HashSet::new());
    let mut dice = Dice::new(seed);
    while outcome.kills < count {
        live_and_die(&store, &mut dice, &mut pushed, &mut outcome)?;
        outcome.kills += 1;
        if outcome.kills.is_multiple_of(LOOK_EVERY) || outcome.kills == count {
            look(&store, &pushed, &mut settled, &mut outcome)?;
        }
    }
    outcome.pushed = pushed.len() as u64;
    Ok(outcome)
}

/// Starts a child, lets it live for a moment, and kills it. What it said was pushed is added.
fn live_and_die(store: &Path, dice: &mut Dice, pushed: &mut HashSet<u64>, outcome: &mut Kills) -> Result<()> {
    let complaints = store.with_extension("complaints");
    let mut child = start_complaining_to("child-busy", store, File::create(&complaints)?.into())?;
    let output = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut left = 1 + dice.roll(40);
    if dice.once_in(4) {
        // Perhaps it is still opening its store.
        wait(Duration::from_micros(dice.roll(6000) as u64));
        child.kill()?;
    }
    for line in output.lines().map_while(Result::ok) {
        // A line that was cut off was not said.
        let Ok(number) = line.parse() else { continue };
        if !pushed.insert(number) {
            outcome.lost.push(format!("the number {number} was given twice"));
        }
        left = left.saturating_sub(1);
        if left == 0 {
            // What is still in the pipe was said before and counts.
            child.kill()?;
        }
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

/// Everything that was acknowledged is done once, or there.
fn look(store: &Path, pushed: &HashSet<u64>, settled: &mut HashSet<u64>, outcome: &mut Kills) -> Result<()> {
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
        for number in pushed.difference(settled) {
            let id = MessageId::from_number(*number).context("a number that is none")?;
            match store.find(id.to_string().parse()?).await? {
                None => outcome.lost.push(format!("message {number} was acknowledged and is gone")),
                // Nobody holds it now, so each of its deliveries has ended, and each end is on record.
                Some(view) if view.counters.deliveries as usize != view.history.len() => {
                    outcome.unexplained.push(format!("message {number}: {:?}", view.history));
                }
                Some(view) => outcome.ends += view.history.len() as u64,
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
