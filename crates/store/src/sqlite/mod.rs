//! The embedded store: one SQLite file, one process that owns it, one thread that writes.
//!
//! Reading order: [`place`] (how messages lie in the file), `schema.sql`, [`writer`] (group commit),
//! then what happens to a message: [`push`], [`claim`], [`settle`], [`quarantine`], [`stream`].

mod at_rest;
mod attempt;
mod claim;
mod desk;
mod disk;
mod effect;
mod failure;
mod file;
mod hand_out;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings;
mod kept;
mod keys;
mod list;
mod load;
mod mark;
mod overview;
mod pack;
mod place;
mod ports;
mod process;
mod push;
mod quarantine;
mod reader;
mod ready;
mod recover;
mod row;
mod schema;
mod settle;
mod state;
mod stream;
mod stream_view;
mod suspect;
mod sync;
mod tx;
mod view;
mod waiting;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

pub use at_rest::SqliteAtRest;
pub use effect::SqliteEffect;
pub use mark::Lost;
use sickbay_core::port::ProcessId;
use sickbay_core::{Clock, QueueName, QueuePolicy, StoreError};

use self::file::{File, Setup};
use self::reader::Readers;
use self::sync::mpsc::{Sender, channel};
use self::sync::thread::{self, JoinHandle};
use self::sync::{Mutex, RwLock};
use self::tx::{Hot, Tx};
use self::writer::{Op, Writer};
use crate::door::Limits;

/// How to open a store.
#[derive(Clone)]
pub struct SqliteOptions {
    clock: Arc<dyn Clock>,
    limits: Limits,
    log_bytes: u64,
    file_bytes_max: Option<u64>,
    evidence: Option<String>,
    checkpoint_pages: u32,
    vfs: Option<String>,
    accept_loss: bool,
    next_schema: Option<&'static str>,
}

impl SqliteOptions {
    /// Every default, on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            limits: Limits::default(),
            log_bytes: 17 << 20,
            file_bytes_max: None,
            evidence: None,
            checkpoint_pages: 4000,
            vfs: None,
            accept_loss: false,
            next_schema: None,
        }
    }

    /// The clock it was made with.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// How large what is pushed may be. Defaults to 16 MiB of payload and 64 KiB of headers.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How large the log beside the file is made when it is opened. Defaults to 17 MiB, which makes commits
    /// much faster; 0 leaves it alone, for commands that open the store for one act only.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// The file never grows beyond this; pushes are then refused with `SB0005`. Defaults to no limit.
    #[must_use]
    pub fn file_bytes_max(mut self, bytes: u64) -> Self {
        self.file_bytes_max = Some(bytes);
        self
    }

    /// Opens a store although its file lacks what had been acknowledged (`SB0016`): it goes on with what is there. No
    /// number of a lost message is ever given again. [`SqliteStore::lost`] says what was lost. Defaults to refusing.
    #[must_use]
    pub fn accept_loss(mut self) -> Self {
        self.accept_loss = true;
        self
    }

    /// Opens the file through this VFS of SQLite instead of the system's files, and writes the log back after so many
    /// pages. For tests with a disk of their own.
    #[doc(hidden)]
    #[must_use]
    pub fn on_test_disk(mut self, vfs: impl Into<String>, checkpoint_pages: u32) -> Self {
        (self.vfs, self.checkpoint_pages) = (Some(vfs.into()), checkpoint_pages);
        self
    }

    /// Behaves like a later version, whose schema has this step more. For tests of two versions on one file.
    #[doc(hidden)]
    #[must_use]
    pub fn with_next_schema(mut self, step: &'static str) -> Self {
        self.next_schema = Some(step);
        self
    }

    /// What is known of the death of the store's last owner; recorded with what it held.
    #[must_use]
    pub fn evidence(mut self, evidence: impl Into<String>) -> Self {
        self.evidence = Some(evidence.into());
        self
    }
}

/// A store in one SQLite file, owned by this process.
///
/// Cloning it is cheap; the file is closed when the last clone is dropped.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    operations: Sender<Op>,
    writer: Mutex<Option<JoinHandle<()>>>,
    policies: Arc<Policies>,
    readers: Readers,
    process: ProcessId,
    clock: Arc<dyn Clock>,
    lost: Option<Lost>,
}

impl SqliteStore {
    /// Opens the file, or creates it. What a dead owner held becomes suspect at once.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path: PathBuf = path.as_ref().to_owned();
        let mut file = File::open(Setup::new(&path, &options))?;
        at_rest::refuse_unfinished(&file.connection, &path)?;
        let process = ProcessId(random());
        let now = options.clock.now().millis();
        let evidence = options.evidence.as_deref().unwrap_or("the process that held it died");
        let state = take_over(&mut file, process, now, &options.limits, evidence)?;
        let lost = file.lost.map(|(lost, _)| lost);
        let policies = Arc::new(Policies::default());
        let mut writer = Writer::new(file, state, options.clock.clone(), options.limits, policies.clone());
        policies.publish(&mut writer.state);
        let (operations, inbox) = channel();
        let thread = thread::Builder::new().name("sickbay-writer".to_owned());
        let handle = thread.spawn(move || writer.run(&inbox)).map_err(|error| failure::io(&path, &error))?;
        let ticks = operations.clone();
        options.clock.on_tick(Arc::new(move || ticks.send(Op::Tick).is_ok()));
        let readers = Readers::new(path, options.vfs);
        let writer = Mutex::new(Some(handle));
        let inner = Inner { operations, writer, policies, readers, process, clock: options.clock, lost };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// This process, as its leases name it.
    pub fn process(&self) -> ProcessId {
        self.inner.process
    }

    /// What the file lacked when it was opened with [`SqliteOptions::accept_loss`].
    pub fn lost(&self) -> Option<Lost> {
        self.inner.lost
    }

    /// Stops as a killed process would: nothing is given back, nothing is tidied. For tests of recovery.
    #[doc(hidden)]
    pub fn crash(&self) {
        self.inner.stop(false);
    }
}

impl Inner {
    fn stop(&self, tidily: bool) {
        drop(self.operations.send(Op::Close { tidily }));
        let handle = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            drop(handle.join());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.readers.close();
        self.stop(true);
    }
}

/// Begins a new epoch and settles what the last owner left.
fn take_over(
    file: &mut File,
    process: ProcessId,
    now: i64,
    limits: &Limits,
    evidence: &str,
) -> Result<state::State, StoreError> {
    let connection = &file.connection;
    recover::write_log_back(connection)?;
    recover::follow_clock(connection, now)?;
    let mut state = load::load(connection)?;
    let mut epoch = state.epoch + 1;
    let owner = ProcessId(load::meta(connection, "process")?.unwrap_or(0) as u64);
    // What was lost is not given again: no number, and no lease token.
    if let Some((_, marked)) = file.lost {
        epoch = epoch.max(marked.epoch + 1);
        state.last_number = state.last_number.max(marked.last_number);
        state.commits = state.commits.max(marked.commits);
    }
    if state.store == 0 {
        state.store = random().max(1);
    }
    let mut open = false;
    let mut tx = Tx { connection, state: &mut state, now, limits, open: &mut open, hot: Hot::default() };
    // What was in hand was so in the last epoch.
    tx.recover(owner, evidence)?;
    tx.state.epoch = epoch;
    tx.forget_old_keys()?;
    tx.forget_completed()?;
    tx.write_tallies()?;
    load::set_meta(connection, "epoch", tx.state.epoch as i64)?;
    load::set_meta(connection, "process", process.0 as i64)?;
    load::set_meta(connection, "store", tx.state.store as i64)?;
    load::set_meta(connection, "clean", 0)?;
    tx.execute("COMMIT", [])?;
    drop(tx);
    if let Some(mark) = &mut file.mark {
        mark.write(state.reached());
        mark.sync();
    }
    Ok(state)
}

/// A number that no other process has.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() >> 1
}

/// The policies in force, readable without asking the writer, and whether the writer can go on.
#[derive(Default)]
pub(crate) struct Policies {
    by_name: RwLock<HashMap<QueueName, Arc<QueuePolicy>>>,
    failed: Mutex<Option<StoreError>>,
}

impl Policies {
    /// Makes changed policies visible.
    fn publish(&self, state: &mut state::State) {
        if !std::mem::take(&mut state.policies_changed) {
            return;
        }
        let policies =
            state.queues.values().map(|queue| (queue.name.clone(), queue.policy.clone())).collect();
        *self.by_name.write().unwrap_or_else(PoisonError::into_inner) = policies;
    }

    fn get(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        let policies = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        match policies.get(queue) {
            Some(policy) => Ok(policy.clone()),
            None => Err(crate::door::unknown_queue(queue, policies.keys().map(QueueName::as_str))),
        }
    }

    fn fail(&self, error: StoreError) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn check(&self) -> Result<(), StoreError> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
