//! Checksums of the pages of the store's file, in a file beside it (`…-sums`).
//!
//! SQLite notices few changed bits by itself. A page's sum is kept when the page is written (by a checkpoint) and
//! compared when it is read. A page whose sum is unknown is learned when it is read first, so a store that has
//! no sums yet, or lost them, gets them by and by.
//!
//! Another program may write the file too (a shell that looks at it writes its log back when it leaves). Its
//! writes move the file's time of change on, which ours record: then every sum is forgotten and learned anew.

use std::path::PathBuf;
use std::time::SystemTime;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::side::{Purpose, SideFile};

/// The size of the pages that have sums.
pub(super) const PAGE_BYTES: usize = 4096;
/// What a disk writes whole: a block of sums carries its own checksum, so it is good or unknown.
const BLOCK_BYTES: usize = 512;
const SUMS_A_BLOCK: usize = BLOCK_BYTES / 8 - 1;
const MAGIC: u64 = 0x736d_7573_4b43_4953;

/// The sums of one file, shared by all of its connections.
pub(super) struct Sums {
    path: PathBuf,
    /// One a page; zero is unknown.
    known: Vec<u64>,
    /// Blocks that differ from the file beside.
    changed: Vec<bool>,
    file: SideFile,
    head: Head,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Head {
    /// We write pages, and their sums are not all on the disk yet.
    writing: bool,
    /// When the file was changed last by us, in nanoseconds.
    changed_at: u64,
}

impl Sums {
    /// Reads the sums beside a file. Without them nothing may be written: they would be wrong from then on.
    pub(super) fn open(path: PathBuf, vfs: Option<&str>) -> Result<Self, i32> {
        let file = SideFile::open(vfs, &format!("{}-sums", path.display()), Purpose::Own)?;
        let mut sums = Self { path, known: Vec::new(), changed: Vec::new(), file, head: Head::default() };
        sums.load()?;
        sums.changed = vec![false; sums.known.len().div_ceil(SUMS_A_BLOCK)];
        // Who dies while writing pages leaves the log that they come from. Without one, somebody else has written it back.
        if sums.head.writing && sums.path.exists() && !log_is_there(&sums.path) {
            sums.head = Head::default();
        }
        sums.forget_if_foreign();
        Ok(sums)
    }

    fn load(&mut self) -> Result<(), i32> {
        let blocks = self.file.size()? as usize / BLOCK_BYTES;
        if blocks == 0 {
            return Ok(());
        }
        let mut bytes = vec![0u8; blocks * BLOCK_BYTES];
        for (at, part) in bytes.chunks_mut(1 << 20).enumerate() {
            self.file.read((at as u64) << 20, part)?;
        }
        let head = words(&bytes[..BLOCK_BYTES]);
        if head[0] != MAGIC || head[3] != xxh3_64(&bytes[..24]) {
            return Ok(());
        }
        self.head = Head { writing: head[1] != 0, changed_at: head[2] };
        for (index, block) in bytes.chunks_exact(BLOCK_BYTES).skip(1).enumerate() {
            let (sums, check) = block.split_at(BLOCK_BYTES - 8);
            let good = words(check)[0] == xxh3_64_with_seed(sums, index as u64 + 1);
            self.known.extend(words(sums).into_iter().map(|sum| if good { sum } else { 0 }));
        }
        Ok(())
    }

    /// True if the page is what was written, as far as is known.
    pub(super) fn check(&mut self, page: usize, bytes: &[u8]) -> bool {
        let sum = sum(page, bytes);
        match self.known.get(page).copied().unwrap_or(0) {
            0 => {
                self.set(page, sum);
                true
            }
            known if known == sum => true,
            _ => {
                let foreign = self.forget_if_foreign();
                if foreign {
                    self.set(page, sum);
                }
                foreign
            }
        }
    }

    /// A page is about to be written.
    pub(super) fn before_write(&mut self) -> Result<(), i32> {
        if self.head.writing {
            return Ok(());
        }
        self.forget_if_foreign();
        self.head.writing = true;
        self.write_head().inspect_err(|_| self.head.writing = false)
    }

    /// A page was written.
    pub(super) fn written(&mut self, page: usize, bytes: &[u8]) {
        self.set(page, sum(page, bytes));
    }

    /// A page was written in part, or could not be written: nothing is known of it.
    pub(super) fn unknown(&mut self, pages: std::ops::Range<usize>) {
        for page in pages.start..pages.end.min(self.known.len()) {
            self.set(page, 0);
        }
    }

    /// The file has so many pages now.
    pub(super) fn truncated(&mut self, pages: usize) {
        self.unknown(pages..self.known.len());
    }

    /// The pages are on the disk; now their sums are. If that fails, the checkpoint has failed, and the log still
    /// has the pages.
    pub(super) fn sync(&mut self) -> Result<(), i32> {
        if !self.head.writing && !self.changed.contains(&true) {
            return Ok(());
        }
        self.save_blocks()?;
        let before = self.head;
        self.head = Head { writing: false, changed_at: changed_at(&self.path) };
        let saved = self.write_head().and_then(|()| self.file.sync());
        match saved {
            Ok(()) => self.changed.iter_mut().for_each(|changed| *changed = false),
            Err(_) => self.head = before,
        }
        saved
    }

    fn save_blocks(&mut self) -> Result<(), i32> {
        for (index, changed) in self.changed.iter().enumerate() {
            if *changed {
                let mut block = [0u8; BLOCK_BYTES];
                let from = index * SUMS_A_BLOCK;
                let known = &self.known[from..self.known.len().min(from + SUMS_A_BLOCK)];
                for (slot, sum) in block.chunks_exact_mut(8).zip(known) {
                    slot.copy_from_slice(&sum.to_le_bytes());
                }
                let check = xxh3_64_with_seed(&block[..BLOCK_BYTES - 8], index as u64 + 1);
                block[BLOCK_BYTES - 8..].copy_from_slice(&check.to_le_bytes());
                self.file.write(((index + 1) * BLOCK_BYTES) as u64, &block)?;
            }
        }
        Ok(())
    }

    fn write_head(&mut self) -> Result<(), i32> {
        let mut block = [0u8; BLOCK_BYTES];
        for (slot, word) in
            block.chunks_exact_mut(8).zip([MAGIC, u64::from(self.head.writing), self.head.changed_at])
        {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let check = xxh3_64(&block[..24]);
        block[24..32].copy_from_slice(&check.to_le_bytes());
        self.file.write(0, &block)
    }

    /// Forgets every sum if somebody else has written the file since we did.
    fn forget_if_foreign(&mut self) -> bool {
        let foreign = !self.head.writing && changed_at(&self.path) > self.head.changed_at;
        if foreign {
            self.known.iter_mut().for_each(|sum| *sum = 0);
            self.changed.iter_mut().for_each(|changed| *changed = true);
            self.head.changed_at = changed_at(&self.path);
        }
        foreign
    }

    fn set(&mut self, page: usize, sum: u64) {
        if page >= self.known.len() {
            self.known.resize(page + 1, 0);
            self.changed.resize(self.known.len().div_ceil(SUMS_A_BLOCK), false);
        }
        if self.known[page] != sum {
            self.known[page] = sum;
            self.changed[page / SUMS_A_BLOCK] = true;
        }
    }
}

/// Never zero. The same bytes have another sum on another page.
fn sum(page: usize, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, page as u64).max(1)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect()
}

fn log_is_there(path: &std::path::Path) -> bool {
    std::fs::metadata(format!("{}-wal", path.display())).is_ok_and(|metadata| metadata.len() > 0)
}

/// When a file was changed last; zero if there is no such file where the system looks for files.
fn changed_at(path: &std::path::Path) -> u64 {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = changed.ok().and_then(|changed| changed.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fill: u8) -> Vec<u8> {
        vec![fill; PAGE_BYTES]
    }

    #[test]
    fn a_page_is_learned_when_first_seen_and_known_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "x").unwrap();
        let mut sums = Sums::open(path.clone(), None).unwrap();
        sums.before_write().unwrap();
        sums.written(70, &page(1));
        assert!(sums.check(3, &page(2)));
        sums.sync().unwrap();
        drop(sums);
        let mut sums = Sums::open(path.clone(), None).unwrap();
        assert!(sums.check(70, &page(1)) && sums.check(3, &page(2)));
        assert!(!sums.check(70, &page(2)) && !sums.check(3, &page(1)));
        sums.truncated(4);
        assert!(sums.check(70, &page(9)), "a page that was cut off is new when it comes again");
    }

    #[test]
    fn what_another_program_wrote_is_learned_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "x").unwrap();
        let mut sums = Sums::open(path.clone(), None).unwrap();
        sums.before_write().unwrap();
        sums.written(1, &page(1));
        sums.sync().unwrap();
        assert!(!sums.check(1, &page(2)));
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(sums.check(1, &page(2)));
        assert!(!sums.check(1, &page(1)), "and known from then on");
    }

    #[test]
    fn who_died_while_writing_is_trusted_unless_somebody_else_has_written_the_log_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "x").unwrap();
        std::fs::write(folder.path().join("a.db-wal"), "log").unwrap();
        let mut sums = Sums::open(path.clone(), None).unwrap();
        sums.before_write().unwrap();
        sums.written(1, &page(1));
        sums.sync().unwrap();
        sums.before_write().unwrap();
        drop(sums);
        assert!(!Sums::open(path.clone(), None).unwrap().check(1, &page(2)));
        std::fs::remove_file(folder.path().join("a.db-wal")).unwrap();
        assert!(Sums::open(path, None).unwrap().check(1, &page(2)));
    }

    #[test]
    fn a_damaged_block_of_sums_is_unknown_and_not_an_alarm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "x").unwrap();
        let mut sums = Sums::open(path.clone(), None).unwrap();
        sums.before_write().unwrap();
        sums.written(1, &page(1));
        sums.written(100, &page(1));
        sums.sync().unwrap();
        drop(sums);
        let beside = folder.path().join("a.db-sums");
        let mut bytes = std::fs::read(&beside).unwrap();
        bytes[BLOCK_BYTES + 8] ^= 1;
        std::fs::write(&beside, bytes).unwrap();
        let mut sums = Sums::open(path, None).unwrap();
        assert!(sums.check(1, &page(2)) && !sums.check(100, &page(2)));
    }
}
