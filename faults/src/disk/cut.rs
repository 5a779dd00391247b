//! What a disk may hold after the power went.

use std::collections::BTreeMap;

use super::{Content, Image, Inode, Op};
use crate::dice::Dice;

/// What a disk writes whole.
const SECTOR: usize = 512;

/// Goes through a record and can say at every operation what may be left if the power goes during it.
#[derive(Clone)]
pub struct Replay<'a> {
    record: &'a [Op],
    next: usize,
    durable: Image,
    /// What was written to each file since it was synced.
    unsynced: BTreeMap<Inode, Vec<&'a Op>>,
    unsynced_names: Vec<&'a Op>,
    answered: Option<usize>,
    /// Syncs do nothing although they say they did.
    lies: Lie,
    /// Decides what is left of writes that could not be synced.
    dice: Dice,
}

/// Which syncs do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// None: an honest disk.
    Never,
    /// Every one.
    Always,
}

impl<'a> Replay<'a> {
    /// Begins with what a disk held when the record began.
    pub fn new(begin: Image, record: &'a [Op], lies: Lie) -> Self {
        let (unsynced, unsynced_names) = (BTreeMap::new(), Vec::new());
        let dice = Dice::new(record.len() as u64);
        Self { record, next: 0, durable: begin, unsynced, unsynced_names, answered: None, lies, dice }
    }

    /// Goes on to the next operation, which is then under way. False at the end.
    pub fn step(&mut self) -> bool {
        // What was under way is over.
        if let Some(op) = self.next.checked_sub(1).and_then(|last| self.record.get(last)) {
            self.finish(op);
        }
        let Some(op) = self.record.get(self.next) else { return false };
        self.next += 1;
        match op {
            Op::Create(_, inode) => {
                while self.durable.files.len() <= *inode {
                    self.durable.files.push(Content::default());
                }
                self.unsynced_names.push(op);
            }
            Op::Delete(_) => self.unsynced_names.push(op),
            Op::Write(inode, ..) | Op::Truncate(inode, _) => {
                self.unsynced.entry(*inode).or_default().push(op);
            }
            // Of several callers that are answered at once, the last one counts.
            Op::Answered(commands) => self.answered = self.answered.max(Some(*commands)),
            Op::Sync(_) | Op::SyncFailed(_) | Op::SyncNames => {}
        }
        true
    }

    fn finish(&mut self, op: &Op) {
        match op {
            _ if self.lies == Lie::Always => {}
            Op::Sync(inode) => {
                for op in self.unsynced.remove(inode).unwrap_or_default() {
                    apply(&mut self.durable.files[*inode], op);
                }
            }
            Op::SyncFailed(inode) => {
                if let Some(ops) = self.unsynced.remove(inode) {
                    survive(&mut self.durable.files[*inode], &ops, &mut self.dice);
                }
            }
            Op::SyncNames => {
                for op in std::mem::take(&mut self.unsynced_names) {
                    apply_name(&mut self.durable.names, op);
                }
            }
            _ => {}
        }
    }

    /// How many commands have been answered; none before the store was set up.
    pub fn answered(&self) -> Option<usize> {
        self.answered
    }

    /// The number of the operation under way.
    pub fn at(&self) -> usize {
        self.next
    }

    /// True if the operation under way is one of the disk.
    pub fn is_operation(&self) -> bool {
        let op = self.next.checked_sub(1).and_then(|last| self.record.get(last));
        op.is_some_and(|op| !matches!(op, Op::Answered(_)))
    }

    /// How many operations are not durable.
    pub fn pending(&self) -> usize {
        self.unsynced.values().map(Vec::len).sum::<usize>() + self.unsynced_names.len()
    }

    /// Everything that was written, synced or not: what a process leaves that is killed while the machine goes on.
    pub fn everything(&self) -> Image {
        let mut image = self.durable.clone();
        for op in &self.unsynced_names {
            apply_name(&mut image.names, op);
        }
        for (inode, ops) in &self.unsynced {
            ops.iter().for_each(|op| apply(&mut image.files[*inode], op));
        }
        image
    }

    /// One of the things that may be left if the power goes now.
    pub fn cut(&self, dice: &mut Dice) -> Image {
        let mut image = self.durable.clone();
        let names = dice.roll(self.unsynced_names.len() + 1);
        for op in &self.unsynced_names[..names] {
            apply_name(&mut image.names, op);
        }
        for (inode, ops) in &self.unsynced {
            survive(&mut image.files[*inode], ops, dice);
        }
        image
    }
}

fn apply_name(names: &mut BTreeMap<String, Inode>, op: &Op) {
    match op {
        Op::Create(name, inode) => drop(names.insert(name.clone(), *inode)),
        Op::Delete(name) => drop(names.remove(name)),
        _ => {}
    }
}

fn apply(content: &mut Content, op: &Op) {
    match op {
        Op::Write(_, offset, bytes) => content.write(*offset, bytes),
        Op::Truncate(_, size) => content.truncate(*size),
        _ => {}
    }
}

/// Decides what is left of the writes that were not synced.
fn survive(content: &mut Content, ops: &[&Op], dice: &mut Dice) {
    match dice.roll(5) {
        // Nothing, everything, or everything up to a write that is torn.
        0 => {}
        1 => ops.iter().for_each(|op| apply(content, op)),
        2 => {
            let (last, before) = (dice.roll(ops.len()), ops);
            before[..last].iter().for_each(|op| apply(content, op));
            tear(content, ops[last], dice);
        }
        // Some writes, whole.
        3 => ops.iter().filter(|_| dice.once_in(2)).for_each(|op| apply(content, op)),
        // Some sectors of some writes, in any order.
        _ => {
            let mut order: Vec<&Op> = ops.to_vec();
            for at in (1..order.len()).rev() {
                order.swap(at, dice.roll(at + 1));
            }
            order.into_iter().for_each(|op| tear(content, op, dice));
        }
    }
}

/// Leaves some sectors of a write.
fn tear(content: &mut Content, op: &Op, dice: &mut Dice) {
    let Op::Write(_, offset, bytes) = op else {
        if dice.once_in(2) {
            apply(content, op);
        }
        return;
    };
    let mut from = 0;
    while from < bytes.len() {
        let to = (from + SECTOR - (offset + from) % SECTOR).min(bytes.len());
        if dice.once_in(2) {
            content.write(offset + from, &bytes[from..to]);
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    fn write(disk: &Disk, inode: Inode, offset: usize, byte: u8, count: usize) {
        disk.lock().write(inode, offset, &vec![byte; count]);
    }

    fn byte(image: &Image, inode: Inode, at: usize) -> u8 {
        let mut byte = [0];
        image.files.get(inode).map(|file| file.read(at, &mut byte));
        byte[0]
    }

    #[test]
    fn what_was_synced_stays_and_what_was_not_may_go_or_be_torn() {
        let disk = Disk::default();
        disk.record();
        let inode = disk.lock().open("a-wal", true, true).unwrap();
        write(&disk, inode, 0, 1, 2048);
        disk.lock().sync(inode);
        write(&disk, inode, 0, 2, 2048);
        let record = disk.recorded();
        let mut replay = Replay::new(Image::default(), &record, Lie::Never);
        while replay.step() {}
        let mut dice = Dice::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let image = replay.cut(&mut dice);
            assert!(image.names.contains_key("a-wal"), "its name was synced with it");
            seen.insert([0, 511, 512, 1024, 1536].map(|at| byte(&image, inode, at)));
        }
        assert!(seen.iter().all(|sectors| sectors[0] == sectors[1]), "no sector is torn: {seen:?}");
        assert!(
            seen.contains(&[1; 5]) && seen.contains(&[2; 5]) && seen.contains(&[1, 1, 2, 1, 2]),
            "{seen:?}"
        );
    }

    #[test]
    fn a_disk_that_lies_loses_what_was_synced() {
        let disk = Disk::default();
        disk.record();
        let inode = disk.lock().open("a-wal", true, true).unwrap();
        write(&disk, inode, 0, 1, 10);
        disk.lock().sync(inode);
        let record = disk.recorded();
        let mut replay = Replay::new(Image::default(), &record, Lie::Always);
        while replay.step() {}
        let mut dice = Dice::new(1);
        assert!((0..50).any(|_| replay.cut(&mut dice).names.is_empty()));
    }
}
