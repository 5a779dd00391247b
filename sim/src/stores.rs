//! The stores that can be simulated.

mod postgres;

pub(crate) use postgres::enter;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use sickbay_core::MessageId;
use sickbay_core::port::{ProcessId, Store};
use sickbay_core::verdict::Effect;
use sickbay_store::{MemoryEffect, MemoryStore, SqliteEffect, SqliteOptions, SqliteStore};
use sickbay_testkit::{Fixture, ManualClock};
use tempfile::TempDir;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory.
    Memory,
    /// In an SQLite file, in a folder in memory where there is one.
    Sqlite,
    /// In a schema of its own on the server that `SICKBAY_TEST_POSTGRES` names.
    Postgres,
}

impl Kind {
    /// A new, empty store, and the folder of its files if it has any.
    pub fn open(self) -> (Box<dyn Fixture>, Option<PathBuf>) {
        match self {
            Self::Memory => (Box::new(Memory::new()), None),
            Self::Sqlite => {
                let store = Sqlite::new();
                let folder = store.folder.path().to_owned();
                (Box::new(store), Some(folder))
            }
            Self::Postgres => (Box::new(postgres::Postgres::new()), None),
        }
    }

    /// Its name in commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

struct Memory {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    written: Arc<Mutex<Vec<String>>>,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        Self { clock, store, written: Arc::default() }
    }
}

impl Fixture for Memory {
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

struct Sqlite {
    clock: ManualClock,
    store: Option<SqliteStore>,
    folder: TempDir,
}

fn folder() -> TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.unwrap_or_else(|error| panic!("a folder for the simulation: {error}"))
}

impl Sqlite {
    fn new() -> Self {
        let mut made = Self { clock: ManualClock::new(), store: None, folder: folder() };
        made.open();
        made
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn open(&mut self) {
        let options = SqliteOptions::new(Arc::new(self.clock.clone())).log_bytes(0);
        let opened = SqliteStore::open(self.path(), options);
        self.store = Some(opened.unwrap_or_else(|error| panic!("the store cannot be opened: {error}")));
    }

    fn opened(&self) -> &SqliteStore {
        match &self.store {
            Some(store) => store,
            None => unreachable!("it is open between calls"),
        }
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(self.path())?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        Ok(connection)
    }

    fn written(&self) -> rusqlite::Result<Vec<String>> {
        let connection = self.connect()?;
        let mut statement = connection.prepare("SELECT key FROM handled ORDER BY rowid")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        rows.collect()
    }
}

impl Fixture for Sqlite {
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
            if key == "fail" { Err(rusqlite::Error::InvalidQuery) } else { Ok(()) }
        })
    }

    fn effects(&self) -> Vec<String> {
        self.written().unwrap_or_default()
    }

    fn damage(&self, id: MessageId) {
        let sql =
            "UPDATE message SET payload = CAST(payload || 'x' AS BLOB) WHERE place & ((1 << 40) - 1) = ?1";
        let done = self.connect().and_then(|connection| connection.execute(sql, [id.number() as i64]));
        assert_eq!(done, Ok(1), "one payload is changed");
    }
}
