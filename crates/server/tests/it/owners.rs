//! Stores whose owner answers others.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_store::{MemoryEffect, MemoryStore, SqliteEffect, SqliteOptions, SqliteStore};
use sickbay_testkit::{Fixture, ManualClock};
use tempfile::TempDir;

/// A store in memory.
pub(crate) struct MemoryOwner {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    written: Arc<Mutex<Vec<String>>>,
}

impl MemoryOwner {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        Self { clock, store, written: Arc::default() }
    }
}

impl Fixture for MemoryOwner {
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

    fn reopen(&mut self) {}

    fn effect(&self, key: &str) -> Effect {
        let (written, key) = (self.written.clone(), key.to_owned());
        MemoryEffect::effect(move || {
            if key == "fail" {
                return Err("the handler's table is full".to_owned());
            }
            written.lock().unwrap().push(key);
            Ok(())
        })
    }

    fn effects(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }

    fn damage(&self, id: MessageId) {
        assert!(self.store.damage(id));
    }
}

/// A store in a file.
pub(crate) struct SqliteOwner {
    clock: ManualClock,
    store: Option<SqliteStore>,
    folder: TempDir,
}

impl SqliteOwner {
    pub(crate) fn new() -> Self {
        let mut owner = Self { clock: ManualClock::new(), store: None, folder: TempDir::new().unwrap() };
        owner.open();
        owner
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn open(&mut self) {
        let options = SqliteOptions::new(Arc::new(self.clock.clone())).log_bytes(0);
        self.store = Some(SqliteStore::open(self.path(), options).unwrap());
    }

    fn opened(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        connection
    }
}

impl Fixture for SqliteOwner {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.opened().clone())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn process(&self) -> ProcessId {
        self.opened().process()
    }

    fn crash(&mut self) {
        self.opened().crash();
        self.store = None;
        self.open();
    }

    fn reopen(&mut self) {
        self.store = None;
        self.open();
    }

    fn effect(&self, key: &str) -> Effect {
        let key = key.to_owned();
        SqliteEffect::new(move |connection| {
            connection.execute("CREATE TABLE IF NOT EXISTS handled (key TEXT)", [])?;
            connection.execute("INSERT INTO handled VALUES (?1)", [&key])?;
            if key == "fail" {
                return Err(rusqlite::Error::InvalidQuery);
            }
            Ok(())
        })
    }

    fn effects(&self) -> Vec<String> {
        let connection = self.connect();
        let Ok(mut statement) = connection.prepare("SELECT key FROM handled ORDER BY rowid") else {
            return Vec::new();
        };
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn damage(&self, id: MessageId) {
        let changed = self.connect().execute(
            "UPDATE message SET payload = CAST(payload || 'x' AS BLOB) WHERE place & ((1 << 40) - 1) = ?1",
            [id.number() as i64],
        );
        assert_eq!(changed, Ok(1));
    }
}
