//! A store's file on which nobody works: it is copied, or filled with the records of another store.
//!
//! There is no writer: each call is one transaction on a thread of its own, and nothing happens by itself.

mod export;
mod import;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension};
use sickbay_core::port::{Export, Identity, Import, PageSize, Progress};
use sickbay_core::record::{Cursor, Marks, Record, RecordPage};
use sickbay_core::{ErrorKind, StoreError};
use tokio::sync::oneshot;

use super::failure::{Translate, io};
use super::file::{File, Setup};
use super::state::State;
use super::tx::{Hot, Tx};
use super::{SqliteOptions, SqliteStore, load, random};
use crate::copy::{self, MOVED};
use crate::door::Limits;

/// A SQLite store on which nobody works.
pub struct SqliteAtRest {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    path: PathBuf,
    file: File,
    state: State,
    limits: Limits,
    now: i64,
    /// The last fresh message of a band: its number and when it was pushed.
    fresh: HashMap<i64, (u64, i64)>,
}

impl SqliteAtRest {
    /// Opens a store to copy it. What a dead owner held comes back first, as whenever a store is opened; nothing else
    /// of it is changed.
    pub fn open_source(path: impl AsRef<Path>, options: &SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref();
        std::fs::metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let text = format!("there is no store {}", path.display());
                StoreError::new(ErrorKind::NotFound, "SB0006", text)
            }
            _ => io(path, &error),
        })?;
        let source = Inner::open(path, options)?;
        refuse_unfinished(&source.file.connection, path)?;
        let held: bool = source
            .file
            .connection
            .query_row("SELECT EXISTS (SELECT 1 FROM claim)", [], |row| row.get(0))
            .translated()?;
        if !held {
            return Ok(source.shared());
        }
        drop(source);
        drop(SqliteStore::open(path, options.clone())?);
        Ok(Inner::open(path, options)?.shared())
    }

    /// Opens an empty store to fill it, or makes one.
    pub fn open_target(path: impl AsRef<Path>, options: &SqliteOptions) -> Result<Self, StoreError> {
        Inner::open(path.as_ref(), options).map(Inner::shared)
    }

    /// Does something on a thread of its own.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let (answer, answered) = oneshot::channel();
        let thread = std::thread::Builder::new().name("sickbay-copy".to_owned());
        let spawned = thread.spawn(move || {
            let result = work(&mut inner.lock().unwrap_or_else(PoisonError::into_inner));
            drop(inner);
            drop(answer.send(result));
        });
        spawned.map_err(|error| io(Path::new("a thread"), &error))?;
        answered.await.map_err(|_| crate::door::closed())?
    }
}

impl Inner {
    fn open(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let file = File::open(Setup::new(path, options))?;
        let (state, now) = (load::load(&file.connection)?, options.clock.now().millis());
        let limits = options.limits;
        Ok(Self { path: path.to_owned(), file, state, limits, now, fresh: HashMap::new() })
    }

    fn shared(self) -> SqliteAtRest {
        SqliteAtRest { inner: Arc::new(Mutex::new(self)) }
    }

    fn identity(&self) -> Result<Identity, StoreError> {
        let State { store, last_number, last_dead, epoch, .. } = &self.state;
        let store = match store {
            0 => format!("sqlite {}", self.path.display()),
            store => format!("sqlite {store:016x}"),
        };
        let sql = format!("SELECT {MOVED} FROM tally");
        let moved = self.file.connection.query_row(&sql, [], |row| row.get(0)).translated()?;
        let marks = Marks { last_number: *last_number, last_dead: *last_dead as u64, epoch: *epoch };
        Ok(Identity { store, marks, moved })
    }

    /// One transaction: all of it is done, or nothing.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Tx<'_>, &mut HashMap<i64, (u64, i64)>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut open = false;
        let connection = &self.file.connection;
        let mut tx = Tx {
            connection,
            state: &mut self.state,
            now: self.now,
            limits: &self.limits,
            open: &mut open,
            hot: Hot::default(),
        };
        let result = (|| {
            tx.begin()?;
            let done = work(&mut tx, &mut self.fresh)?;
            tx.write_tallies()?;
            tx.execute("COMMIT", [])?;
            Ok(done)
        })();
        drop(tx);
        if result.is_ok() {
            if let Some(mark) = &mut self.file.mark {
                mark.write(self.state.reached());
            }
            return result;
        }
        // What is remembered may be ahead of the file.
        drop(connection.execute_batch("ROLLBACK"));
        self.fresh.clear();
        self.state = load::load(connection)?;
        result
    }

    /// Begins a copy, or goes on with one.
    fn begin(&mut self, source: &Identity) -> Result<Progress, StoreError> {
        let how_to_drop = format!("delete {}", self.path.display());
        match progress(&self.file.connection)? {
            Some((false, begun)) => return copy::go_on(begun, source, &how_to_drop),
            Some((true, done)) => return Err(copy::already(&done, source)),
            None => {}
        }
        if let Some(what) = self.holds()? {
            return Err(copy::not_empty(&what));
        }
        let progress = Progress::begin(source);
        let text = copy::write(&progress)?;
        self.transact(move |tx, _| {
            if tx.state.store == 0 {
                tx.state.store = random().max(1);
                load::set_meta(tx.connection, "store", tx.state.store as i64)?;
            }
            tx.execute("INSERT INTO copy (one, complete, progress) VALUES (1, 0, ?1)", [text])?;
            Ok(())
        })?;
        Ok(progress)
    }

    /// What is in the store, in words; nothing if it is empty.
    fn holds(&self) -> Result<Option<String>, StoreError> {
        let tables = ["queue", "message", "dead", "completed", "key", "origin"];
        for table in tables {
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT 1000)");
            let count: u64 = self.file.connection.query_row(&sql, [], |row| row.get(0)).translated()?;
            if count > 0 {
                return Ok(Some(copy::holding(table, count)));
            }
        }
        Ok(None)
    }
}

/// A copy that was begun here: whether it is complete, and how far it had got.
fn progress(connection: &Connection) -> Result<Option<(bool, Progress)>, StoreError> {
    let mut statement = connection.prepare("SELECT complete, progress FROM copy").translated()?;
    let found: Option<(bool, String)> =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional().translated()?;
    found.map(|(complete, text)| Ok((complete, copy::read(&text)?))).transpose()
}

/// Refuses a store that is a copy which is not complete.
pub(super) fn refuse_unfinished(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let unfinished: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM copy WHERE complete = 0)", [], |row| row.get(0))
        .translated()?;
    match unfinished {
        true => Err(copy::unfinished(
            &path.display().to_string(),
            &format!("delete {} and the files beside it", path.display()),
        )),
        false => Ok(()),
    }
}

#[async_trait]
impl Export for SqliteAtRest {
    async fn identity(&self) -> Result<Identity, StoreError> {
        self.run(|inner| inner.identity()).await
    }

    async fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError> {
        let after = after.clone();
        self.run(move |inner| inner.export(&after, size)).await
    }
}

#[async_trait]
impl Import for SqliteAtRest {
    async fn begin(&self, source: &Identity) -> Result<Progress, StoreError> {
        let source = source.clone();
        self.run(move |inner| inner.begin(&source)).await
    }

    async fn import(&self, records: Vec<Record>, progress: &Progress) -> Result<(), StoreError> {
        let progress = progress.clone();
        self.run(move |inner| inner.import(records, &progress)).await
    }

    async fn arrange(&self, progress: &Progress) -> Result<Progress, StoreError> {
        let progress = progress.clone();
        self.run(move |inner| inner.arrange(&progress)).await
    }

    async fn complete(&self, progress: &Progress) -> Result<(), StoreError> {
        let progress = progress.clone();
        self.run(move |inner| inner.complete(&progress)).await
    }
}
