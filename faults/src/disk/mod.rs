//! A disk in memory that knows what was synced and what was not, writes down every operation, and can be told to
//! fail. [`cut`] makes of its record what a disk may hold after the power went.

mod content;
mod cut;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use content::Content;
pub use cut::{Lie, Replay};

/// A file's number. Names come and go; a file that is open lives on without its name.
pub type Inode = usize;

/// Something that happened to the disk.
#[derive(Clone, Debug)]
pub enum Op {
    /// A name was given to a new file.
    Create(String, Inode),
    /// Bytes were written.
    Write(Inode, usize, Arc<[u8]>),
    /// A file was made shorter or longer.
    Truncate(Inode, usize),
    /// What was written to a file is durable.
    Sync(Inode),
    /// A file could not be synced: what was written to it since the last time may be lost, and no later sync saves it.
    SyncFailed(Inode),
    /// Which names there are is durable.
    SyncNames,
    /// A name was taken away.
    Delete(String),
    /// So many commands of the script were answered by now.
    Answered(usize),
}

/// The files of a disk at one moment.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Which names there are.
    pub names: BTreeMap<String, Inode>,
    /// What the files hold.
    pub files: Vec<Content>,
}

impl Image {
    /// A number that other images hardly ever have.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        for (name, inode) in &self.names {
            hasher.update(name.as_bytes());
            self.files[*inode].add_to(&mut hasher);
        }
        hasher.digest()
    }

    /// The file with this name.
    pub fn file(&mut self, name: &str) -> Option<&mut Content> {
        let inode = *self.names.get(name)?;
        self.files.get_mut(inode)
    }
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// The device reports an error.
    Broken,
    /// There is no room. What needs some fails: to make, write, resize and sync files.
    Full,
}

/// From which operation on how many fail, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The number of the first operation that fails.
    pub at: u64,
    /// So many fail.
    pub count: u64,
    /// How.
    pub how: Failing,
}

/// Locks of a file, as SQLite takes them on its main file.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) shared: u32,
    pub(crate) reserved: bool,
    pub(crate) pending: bool,
    pub(crate) exclusive: bool,
}

/// What all connections to a file share.
#[derive(Debug, Default)]
pub(crate) struct Shm {
    pub(crate) regions: Vec<Box<[u64]>>,
    pub(crate) shared: [u32; 8],
    pub(crate) exclusive: [bool; 8],
    pub(crate) users: u32,
}

/// Everything behind the lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) image: Image,
    pub(crate) locks: Vec<Locks>,
    pub(crate) shm: BTreeMap<Inode, Shm>,
    record: Option<Vec<Op>>,
    operations: u64,
    fault: Option<Fault>,
    hits: u64,
    /// Files whose name is not durable yet and becomes so with their first sync.
    new_names: Vec<Inode>,
}

/// A disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

impl Disk {
    /// A disk that holds this.
    pub fn of(image: Image) -> Self {
        let locks = image.files.iter().map(|_| Locks::default()).collect();
        let state = State { image, locks, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write down what happens.
    pub fn record(&self) {
        self.lock().record = Some(Vec::new());
    }

    /// What has happened so far; it goes on writing down.
    pub fn recorded_so_far(&self) -> Vec<Op> {
        self.lock().record.clone().unwrap_or_default()
    }

    /// What has happened since.
    pub fn recorded(&self) -> Vec<Op> {
        self.lock().record.take().unwrap_or_default()
    }

    /// Writes down that so many commands were answered.
    pub fn answered(&self, commands: usize) {
        self.lock().note(|| Op::Answered(commands));
    }

    /// What is on it now, synced or not.
    pub fn image(&self) -> Image {
        self.lock().image.clone()
    }

    /// Makes operations fail.
    pub fn fail(&self, fault: Fault) {
        self.lock().fault = Some(fault);
    }

    /// Fails no more. Answers how often it did.
    pub fn heal(&self) -> u64 {
        let mut state = self.lock();
        state.fault = None;
        std::mem::take(&mut state.hits)
    }

    /// How often an operation failed since it was last well.
    pub fn hits(&self) -> u64 {
        self.lock().hits
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }
}

impl State {
    fn note(&mut self, op: impl FnOnce() -> Op) {
        if let Some(record) = &mut self.record {
            record.push(op());
        }
    }

    /// Counts an operation; an error if it is one that fails.
    pub(crate) fn operate(&mut self, needs_room: bool) -> Result<(), Failing> {
        let number = self.operations;
        self.operations += 1;
        match self.fault {
            Some(fault) if (fault.at..fault.at + fault.count).contains(&number) => {
                if fault.how == Failing::Full && !needs_room {
                    return Ok(());
                }
                self.hits += 1;
                Err(fault.how)
            }
            _ => Ok(()),
        }
    }

    /// The file with a name; a new one if there is none and it is wanted.
    pub(crate) fn open(&mut self, name: &str, create: bool, journal: bool) -> Option<Inode> {
        if let Some(inode) = self.image.names.get(name) {
            return Some(*inode);
        }
        if !create {
            return None;
        }
        let inode = self.image.files.len();
        self.image.files.push(Content::default());
        self.locks.push(Locks::default());
        self.image.names.insert(name.to_owned(), inode);
        if journal {
            self.new_names.push(inode);
        }
        self.note(|| Op::Create(name.to_owned(), inode));
        Some(inode)
    }

    pub(crate) fn write(&mut self, inode: Inode, offset: usize, bytes: &[u8]) {
        self.image.files[inode].write(offset, bytes);
        self.note(|| Op::Write(inode, offset, bytes.into()));
    }

    pub(crate) fn truncate(&mut self, inode: Inode, size: usize) {
        self.image.files[inode].truncate(size);
        self.note(|| Op::Truncate(inode, size));
    }

    pub(crate) fn sync(&mut self, inode: Inode) {
        self.note(|| Op::Sync(inode));
        if let Some(at) = self.new_names.iter().position(|new| *new == inode) {
            self.new_names.swap_remove(at);
            self.note(|| Op::SyncNames);
        }
    }

    pub(crate) fn fail_to_sync(&mut self, inode: Inode) {
        self.note(|| Op::SyncFailed(inode));
    }

    pub(crate) fn delete(&mut self, name: &str, sync: bool) -> bool {
        let there = self.image.names.remove(name).is_some();
        if there {
            self.note(|| Op::Delete(name.to_owned()));
        }
        if sync {
            self.note(|| Op::SyncNames);
        }
        there
    }
}
