//! The SQLite store keeps every promise.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_store::{SqliteEffect, SqliteOptions, SqliteStore};
use sickbay_testkit::{Fixture, ManualClock};
use tempfile::TempDir;

/// A folder in memory where there is one: these tests are about what is written, not about disks.
fn folder() -> TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// A store in a folder of its own.
pub(crate) struct SqliteFixture {
    clock: ManualClock,
    store: Option<SqliteStore>,
    folder: TempDir,
}

impl SqliteFixture {
    pub(crate) fn new() -> Self {
        let mut fixture = Self { clock: ManualClock::new(), store: None, folder: folder() };
        fixture.open();
        fixture
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn open(&mut self) {
        let options = SqliteOptions::new(Arc::new(self.clock.clone())).log_bytes(0);
        self.store = Some(SqliteStore::open(self.path(), options).unwrap());
    }

    fn opened(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }

    /// A connection behind the store's back.
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        connection
    }
}

impl Fixture for SqliteFixture {
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
            // Fails after it has written, so that the write must be undone.
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

sickbay_testkit::conformance!(SqliteFixture::new());
