//! The high-water mark: how far the store had got, in a small file beside it (`…-mark`).
//!
//! SQLite takes a damaged or missing log for the end of the log: commits that were acknowledged are gone, and
//! nobody is told. The mark is written after each commit, so it never says more than what was durable, and is
//! synced about once a second. A file that knows less than its mark has lost its tail, or is an older copy.

use sickbay_core::{ErrorKind, StoreError};
use xxhash_rust::xxh3::xxh3_64;

use super::disk::{Purpose, SideFile};

/// Two places, written in turn: a torn write leaves the other.
const PLACES: [u64; 2] = [0, 512];
const BYTES: usize = 48;
const MAGIC: u64 = 0x6b72_616d_4b43_4953;
/// How long what is marked may be on no disk.
const SYNC_EVERY_MS: i64 = 1000;

/// How far a store has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// Which store it is: a random number, given when it was made.
    pub(super) store: u64,
    /// How many commits there were.
    pub(super) commits: u64,
    /// The last number given to a message.
    pub(super) last_number: u64,
    /// How often the store was opened.
    pub(super) epoch: u64,
}

/// The open file.
pub(super) struct Mark {
    file: SideFile,
    next: usize,
    synced_at: i64,
    unsynced: bool,
}

/// What is missing from a store's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// So many commits that had been acknowledged: pushes, deliveries and settlements.
    pub commits: u64,
    /// The numbers of the first and the last message that had been pushed and is gone; none if only deliveries and
    /// settlements are gone.
    pub messages: Option<(u64, u64)>,
}

impl Mark {
    /// Opens the file beside a store and reads how far that had got.
    pub(super) fn open(vfs: Option<&str>, store: &str) -> Result<(Self, Option<Reached>), i32> {
        let mut file = SideFile::open(vfs, &format!("{store}-mark"), Purpose::Own)?;
        let mut found: Option<(Reached, usize)> = None;
        for (index, place) in PLACES.into_iter().enumerate() {
            let mut bytes = [0; BYTES];
            file.read(place, &mut bytes)?;
            if let Some(reached) = Reached::read(&bytes)
                && found.is_none_or(|(known, _)| known.commits < reached.commits)
            {
                found = Some((reached, index));
            }
        }
        let next = found.map_or(0, |(_, index)| 1 - index);
        Ok((Self { file, next, synced_at: i64::MIN, unsynced: false }, found.map(|(reached, _)| reached)))
    }

    /// Writes down how far the store has got. It is on the disk later, or after the next [`Self::sync`].
    pub(super) fn write(&mut self, reached: Reached) {
        // A mark that cannot be written notices less; that is no reason to stop.
        let _ = self.file.write(PLACES[self.next], &reached.bytes());
        self.next = 1 - self.next;
        self.unsynced = true;
    }

    /// When it is to be made durable next; the end of time if it is.
    pub(super) fn sync_due(&self) -> i64 {
        if self.unsynced { self.synced_at.saturating_add(SYNC_EVERY_MS) } else { i64::MAX }
    }

    /// Makes the mark durable if that was long ago.
    pub(super) fn sync_at(&mut self, now: i64) {
        if self.unsynced && now.saturating_sub(self.synced_at) >= SYNC_EVERY_MS {
            self.synced_at = now;
            self.sync();
        }
    }

    /// Makes the mark durable.
    pub(super) fn sync(&mut self) {
        let _ = self.file.sync();
        self.unsynced = false;
    }
}

impl Reached {
    fn bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let words = [MAGIC, self.store, self.commits, self.last_number, self.epoch];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let check = xxh3_64(&bytes[..BYTES - 8]);
        bytes[BYTES - 8..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |at: usize| bytes[at * 8..at * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
        let good = word(0) == MAGIC && word(5) == xxh3_64(&bytes[..BYTES - 8]);
        good.then(|| Self { store: word(1), commits: word(2), last_number: word(3), epoch: word(4) })
    }

    /// What a file that has got this far lacks against its mark.
    pub(super) fn lacks(self, marked: Self) -> Option<Lost> {
        let commits = marked.commits.checked_sub(self.commits).filter(|missing| *missing > 0)?;
        let messages = (marked.last_number > self.last_number)
            .then(|| (self.last_number.saturating_add(1), marked.last_number));
        Some(Lost { commits, messages })
    }
}

/// The error that says what is lost and what can be done.
pub(super) fn lost_tail(path: &str, lost: Lost) -> StoreError {
    let messages = match lost.messages {
        Some((first, last)) if first == last => format!("message number {first} is gone"),
        Some((first, last)) => format!("messages number {first} to {last} are gone"),
        None => "no message is gone, but deliveries or settlements are".to_owned(),
    };
    let message = format!(
        "{path} lacks the last {} commits that were acknowledged: {messages}; its log was damaged or removed, or it is \
         an older copy. Put the right files back, or open it once accepting the loss",
        lost.commits
    );
    StoreError::new(ErrorKind::Corrupt, "SB0016", message)
}

/// The error for a file that is not the one the mark was made for.
pub(super) fn other_store(path: &str) -> StoreError {
    let message = format!(
        "{path} is another store than the one that {path}-mark was written for. Put the right file back, or open it \
         once accepting the loss"
    );
    StoreError::new(ErrorKind::Stop, "SB0016", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_marks_the_later_good_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db").display().to_string();
        std::fs::write(&path, "").unwrap();
        let reached = |commits| Reached { store: 7, commits, last_number: commits * 2, epoch: 1 };
        let (mut mark, found) = Mark::open(None, &path).unwrap();
        assert_eq!(found, None);
        for commits in 1..=5 {
            mark.write(reached(commits));
        }
        mark.sync();
        drop(mark);
        assert_eq!(Mark::open(None, &path).unwrap().1, Some(reached(5)));
        let beside = format!("{path}-mark");
        let mut bytes = std::fs::read(&beside).unwrap();
        bytes[20] ^= 4;
        std::fs::write(&beside, &bytes).unwrap();
        let (mut mark, found) = Mark::open(None, &path).unwrap();
        assert_eq!(found, Some(reached(4)));
        mark.write(reached(6));
        drop(mark);
        assert_eq!(Mark::open(None, &path).unwrap().1, Some(reached(6)));
    }

    #[test]
    fn a_mark_that_was_written_is_to_be_synced_a_second_after_the_last_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db").display().to_string();
        std::fs::write(&path, "").unwrap();
        let (mut mark, _) = Mark::open(None, &path).unwrap();
        assert_eq!(mark.sync_due(), i64::MAX, "there is nothing to sync");
        mark.write(Reached::default());
        mark.sync_at(5000);
        assert_eq!(mark.sync_due(), i64::MAX);
        mark.write(Reached::default());
        mark.sync_at(5999);
        assert_eq!(mark.sync_due(), 6000);
        mark.sync_at(6000);
        assert_eq!(mark.sync_due(), i64::MAX);
    }

    #[test]
    fn what_is_lacking_is_named() {
        let reached = |commits, last_number| Reached { store: 1, commits, last_number, epoch: 1 };
        assert_eq!(reached(5, 9).lacks(reached(5, 9)), None);
        assert_eq!(reached(6, 9).lacks(reached(5, 9)), None, "the mark may lag");
        let lost = reached(3, 4).lacks(reached(5, 9)).unwrap();
        assert_eq!((lost.commits, lost.messages), (2, Some((5, 9))));
        assert!(lost_tail("x", lost).to_string().contains("messages number 5 to 9 are gone"));
        assert_eq!(reached(3, 9).lacks(reached(5, 9)).unwrap().messages, None);
    }
}
