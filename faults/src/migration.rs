//! The power goes while a store that holds messages is brought to the next version of its schema.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sickbay_core::StoreError;
use sickbay_testkit::ManualClock;

use crate::dice::Dice;
use crate::disk::{Disk, Image, Replay};
use crate::fixture::DiskFixture;
use crate::observe::{Seen, difference, observe};
use crate::power::{Outcome, Plan, next_number, record};
use crate::runtime;
use crate::script::Expected;
use crate::vfs::Drive;

/// A step that touches every message: a table that is filled from theirs, and an index on it.
const NEXT: &str = "CREATE TABLE added_later (place INTEGER PRIMARY KEY, pushed_at INTEGER NOT NULL) STRICT;
INSERT INTO added_later SELECT place, pushed_at FROM message;
CREATE INDEX message_added_later ON message (pushed_at);
CREATE INDEX waiting_added_later ON waiting (due_at, number);";
/// What an older program answers to a newer file.
const NEWER: &str = "SB0008";

/// Which version of the schema a program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    This,
    Next,
}

/// Runs a script, closes the store, opens it with the next schema, and cuts the power at every operation of that.
pub fn run(drive: &Arc<Drive>, seed: u64, plan: Plan) -> Outcome {
    let recording = record(drive, seed, plan.steps);
    let Some(expected) = recording.expected.last() else { return Outcome::default() };
    let migration = Migration { drive, expected, numbers: recording.numbers };
    let mut outcome = Outcome::default();
    let (image, ops) = match migration.record(seed) {
        Ok(recorded) => recorded,
        Err(error) => {
            outcome.findings.push(format!("seed {seed}: the next version cannot open it: {error}"));
            return outcome;
        }
    };
    let mut dice = Dice::new(seed);
    let mut replay = Replay::new(image, &ops, plan.lies);
    while replay.step() && outcome.findings.len() < plan.findings_max {
        outcome.operations += 1;
        for _ in 0..plan.variants {
            outcome.cuts += 1;
            if let Err(finding) = migration.look(&replay.cut(&mut dice)) {
                let at = replay.at();
                outcome.findings.push(format!("seed {seed}, operation {at} of the migration:\n{finding}"));
            }
        }
    }
    outcome
}

struct Migration<'a> {
    drive: &'a Arc<Drive>,
    expected: &'a Expected,
    numbers: u64,
}

impl Migration<'_> {
    fn open(&self, version: Version) -> Result<DiskFixture, StoreError> {
        let clock = ManualClock::at(self.expected.at);
        DiskFixture::open_with(self.drive.clone(), clock, |options| match version {
            Version::This => options,
            Version::Next => options.with_next_schema(NEXT),
        })
    }

    /// What the disk held before, and all that the migration did to it. Every second store was closed tidily; the others
    /// are what a killed program leaves, with a log to recover.
    fn record(&self, seed: u64) -> Result<(Image, Vec<crate::disk::Op>), StoreError> {
        if seed.is_multiple_of(2) {
            self.open(Version::This)?.close(true);
        }
        let image = self.drive.disk().image();
        let disk = Disk::of(image.clone());
        disk.record();
        self.drive.insert(disk.clone());
        self.open(Version::Next)?.close(true);
        Ok((image, disk.recorded()))
    }

    /// The old program finds everything, or a newer file, which it leaves alone; the new one always finds everything.
    fn look(&self, image: &Image) -> Result<(), String> {
        let with = |version| {
            self.drive.insert(Disk::of(image.clone()));
            let found = catch_unwind(AssertUnwindSafe(|| self.found(version)));
            found.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                Err((String::new(), format!("panic: {text}")))
            })
        };
        match with(Version::This) {
            Err((code, _)) if code == NEWER => {}
            found => self.compare(Version::This, found)?,
        }
        self.compare(Version::Next, with(Version::Next))
    }

    fn found(&self, version: Version) -> Result<(Seen, u64), (String, String)> {
        let told = |error: StoreError| (error.code().to_owned(), error.to_string());
        let fixture = self.open(version).map_err(told)?;
        runtime().block_on(async {
            let seen = observe(&fixture, self.numbers).await.map_err(told)?;
            Ok((seen, next_number(&fixture).await.unwrap_or(0)))
        })
    }

    fn compare(&self, version: Version, found: Result<(Seen, u64), (String, String)>) -> Result<(), String> {
        let (seen, next) = found.map_err(|(code, text)| format!("{version:?}: refused: {code} {text}"))?;
        let last = self.expected.last_number;
        if seen != self.expected.seen {
            return Err(format!("{version:?}:\n{}", difference(&seen, &self.expected.seen)));
        }
        (next == last + 1).then_some(()).ok_or_else(|| format!("{version:?}: number {next} after {last}"))
    }
}
