//! The two stores that are compared: SQLite on a disk that breaks, and memory, which is the model.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags};
use sickbay_core::clock::Clock;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_core::{MessageId, StoreError};
use sickbay_store::{MemoryEffect, MemoryStore, SqliteEffect, SqliteOptions, SqliteStore};
use sickbay_testkit::{Fixture, ManualClock};

use crate::vfs::Drive;

/// Where the store lies on its disk.
pub const STORE: &str = "/store.db";
/// How the handler's own table begins if SQLite refuses to read it.
pub const UNREADABLE: &str = "unreadable";
/// What a fixture says when its store cannot be opened once more.
pub const NOT_AGAIN: &str = "the store could not be opened again";
/// The log is grown to this size: small, so that it is reached and begun again often.
const LOG_BYTES: u64 = 96 << 10;
/// The log is written back after so many pages.
const CHECKPOINT_PAGES: u32 = 20;

/// How a store on a drive is opened.
pub fn options(drive: &Drive, clock: &ManualClock) -> SqliteOptions {
    options_on(drive, Arc::new(clock.clone()))
}

/// The same with any clock.
pub fn options_on(drive: &Drive, clock: Arc<dyn Clock>) -> SqliteOptions {
    SqliteOptions::new(clock).log_bytes(LOG_BYTES).on_test_disk(drive.name(), CHECKPOINT_PAGES)
}

/// A SQLite store on a drive.
pub struct DiskFixture {
    drive: Arc<Drive>,
    clock: ManualClock,
    /// Shared with those that only look on.
    store: Arc<Mutex<Option<SqliteStore>>>,
    looks_on: bool,
}

impl DiskFixture {
    /// Opens the store on the disk that is in the drive.
    pub fn open(drive: Arc<Drive>, clock: ManualClock) -> Result<Self, StoreError> {
        Self::open_with(drive, clock, |options| options)
    }

    /// The same with other options.
    pub fn open_with(
        drive: Arc<Drive>,
        clock: ManualClock,
        change: impl FnOnce(SqliteOptions) -> SqliteOptions,
    ) -> Result<Self, StoreError> {
        let store = SqliteStore::open(STORE, change(options(&drive, &clock)))?;
        Ok(Self { drive, clock, store: Arc::new(Mutex::new(Some(store))), looks_on: false })
    }

    /// The same store for somebody who looks on while another drives it.
    pub fn onlooker(&self) -> Self {
        let (drive, clock, store) = (self.drive.clone(), self.clock.clone(), self.store.clone());
        Self { drive, clock, store, looks_on: true }
    }

    fn slot(&self) -> MutexGuard<'_, Option<SqliteStore>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> SqliteStore {
        let store = self.slot().clone();
        store.unwrap_or_else(|| panic!("{NOT_AGAIN}"))
    }

    fn open_again(&mut self) {
        match SqliteStore::open(STORE, options(&self.drive, &self.clock)) {
            Ok(store) => *self.slot() = Some(store),
            Err(error) => panic!("{NOT_AGAIN}: {error}"),
        }
    }

    /// Closes the store cleanly, or as if its process had died.
    pub fn close(&mut self, tidily: bool) {
        let store = self.slot().take();
        if let Some(store) = store
            && !tidily
        {
            store.crash();
        }
    }
}

impl Drop for DiskFixture {
    fn drop(&mut self) {
        if !self.looks_on {
            self.close(false);
        }
    }
}

impl Fixture for DiskFixture {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.opened())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn process(&self) -> ProcessId {
        self.opened().process()
    }

    fn crash(&mut self) {
        self.close(false);
        self.open_again();
    }

    fn reopen(&mut self) {
        self.close(true);
        self.open_again();
    }

    fn effect(&self, key: &str) -> Effect {
        let key = key.to_owned();
        SqliteEffect::new(move |connection| {
            connection.execute("CREATE TABLE IF NOT EXISTS handled (key TEXT)", [])?;
            connection.execute("INSERT INTO handled VALUES (?1)", [&key])?;
            if key == "fail" { Err(rusqlite::Error::InvalidQuery) } else { Ok(()) }
        })
    }

    fn effects(&self) -> Vec<String> {
        let vfs = format!("sickbay-over-{}", self.drive.name());
        let rows = || -> rusqlite::Result<Vec<String>> {
            let connection =
                Connection::open_with_flags_and_vfs(STORE, OpenFlags::SQLITE_OPEN_READ_ONLY, vfs.as_str())?;
            let mut statement = connection.prepare("SELECT key FROM handled ORDER BY rowid")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        rows().unwrap_or_else(|error| match error.to_string() {
            text if text.contains("no such table") => Vec::new(),
            text => vec![format!("{UNREADABLE}: {text}")],
        })
    }

    fn damage(&self, _: MessageId) {}
}

/// A memory store: the contract in its shortest form. Clones are the same store.
#[derive(Clone)]
pub struct ModelFixture {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    written: Arc<Mutex<Vec<String>>>,
}

impl ModelFixture {
    /// An empty store.
    pub fn new(clock: ManualClock) -> Self {
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        Self { clock, store, written: Arc::default() }
    }
}

impl Fixture for ModelFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn process(&self) -> ProcessId {
        self.store.process()
    }

    fn crash(&mut self) {
        self.store.crash();
    }

    fn reopen(&mut self) {
        self.store.crash();
    }

    fn effect(&self, key: &str) -> Effect {
        let (written, key) = (self.written.clone(), key.to_owned());
        MemoryEffect::effect(move || {
            if key == "fail" {
                return Err("the handler's table is full".to_owned());
            }
            written.lock().unwrap_or_else(PoisonError::into_inner).push(key);
            Ok(())
        })
    }

    fn effects(&self) -> Vec<String> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn damage(&self, id: MessageId) {
        self.store.damage(id);
    }
}
