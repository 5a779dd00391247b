//! The file: opening it, owning it, keeping its log from growing, and reopening it after an error.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use sickbay_core::{ErrorKind, StoreError};

use super::failure::{Translate, io, owned};
use super::schema;

/// The oldest SQLite without the bug that resets a log which is still needed.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// A checkpoint is due after so many pages of log.
const CHECKPOINT_PAGES: i64 = 4000;

/// The store's file, open for writing by this process alone.
pub(super) struct File {
    pub(super) connection: Connection,
    path: PathBuf,
    log_bytes: u64,
    file_bytes_max: Option<u64>,
    /// Held as long as the store is open.
    _lock: fs::File,
}

impl File {
    /// Takes possession of the file and brings it to this program's version.
    pub(super) fn open(path: &Path, log_bytes: u64, file_bytes_max: Option<u64>) -> Result<Self, StoreError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            let message =
                format!("SQLite {} can lose its log; 3.51.3 or newer is needed", rusqlite::version());
            return Err(StoreError::new(ErrorKind::Stop, "SB0014", message));
        }
        let lock = lock(path)?;
        let connection = connect(path)?;
        schema::migrate(&connection, path)?;
        let file = Self { connection, path: path.to_owned(), log_bytes, file_bytes_max, _lock: lock };
        file.limit()?;
        file.grow_log()?;
        Ok(file)
    }

    /// Closes and opens the connection: after an error of the disk nothing in memory is trusted.
    pub(super) fn reopen(&mut self) -> Result<(), StoreError> {
        self.connection = connect(&self.path)?;
        self.limit()
    }

    /// Keeps the file from growing beyond its limit.
    fn limit(&self) -> Result<(), StoreError> {
        let Some(bytes) = self.file_bytes_max else { return Ok(()) };
        let page: u64 = self.connection.query_row("PRAGMA page_size", [], |row| row.get(0)).translated()?;
        let pages = (bytes / page.max(1)).max(1);
        let pragma = format!("PRAGMA max_page_count = {pages}");
        self.connection.query_row(&pragma, [], |row| row.get::<_, i64>(0)).map(drop).translated()
    }

    /// Writes the log to its full size once, so that later commits overwrite instead of append:
    /// that is twice as fast on a calm disk, and many times on a busy one.
    fn grow_log(&self) -> Result<(), StoreError> {
        if self.log_bytes == 0 {
            return Ok(());
        }
        // The log exists only after something was written.
        self.connection.execute_batch("BEGIN IMMEDIATE; UPDATE mark SET one = one; COMMIT").translated()?;
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        let path = PathBuf::from(path);
        let grow = || -> std::io::Result<()> {
            let mut log = fs::OpenOptions::new().write(true).open(&path)?;
            let size = log.seek(SeekFrom::End(0))?;
            let zeros = vec![0u8; 1 << 20];
            let mut missing = self.log_bytes.saturating_sub(size);
            while missing > 0 {
                let part = missing.min(zeros.len() as u64);
                log.write_all(&zeros[..part as usize])?;
                missing -= part;
            }
            log.sync_all()
        };
        match grow() {
            // A log that cannot be grown only makes commits slower.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            other => other.map_err(|error| io(&path, &error)),
        }
    }
}

/// Opens a connection for the writer.
fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).translated()?;
    connection.busy_timeout(Duration::from_secs(5)).translated()?;
    connection.set_prepared_statement_cache_capacity(256);
    let version: Result<i64, _> = connection.query_row("PRAGMA schema_version", [], |row| row.get(0));
    version.translated()?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).translated()?;
    let synchronous = if sickbay_core::bug!(FsyncSkipped) { "OFF" } else { "FULL" };
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA cache_size = -65536;
             PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = OFF"
        ))
        .translated()?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).translated()?;
    if !mode.eq_ignore_ascii_case("wal") || synchronous != 2 && !sickbay_core::bug!(FsyncSkipped) {
        let message =
            format!("{} cannot be written durably here (journal {mode}, sync {synchronous})", path.display());
        return Err(StoreError::new(ErrorKind::Stop, "SB0006", message));
    }
    Ok(connection)
}

/// Opens a connection that only reads.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).translated()?;
    connection.busy_timeout(Duration::from_secs(5)).translated()?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192").translated()?;
    Ok(connection)
}

/// Takes the lock beside the file, or says who has it.
fn lock(path: &Path) -> Result<fs::File, StoreError> {
    let mut name = path.to_owned().into_os_string();
    name.push(".lock");
    let name = PathBuf::from(name);
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut lock = options.open(&name).map_err(|error| io(&name, &error))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            drop(lock.read_to_string(&mut holder));
            let holder: String = holder.chars().filter(char::is_ascii_digit).take(10).collect();
            let by = if holder.is_empty() { String::new() } else { format!(" ({holder})") };
            return Err(owned(path, &by));
        }
        Err(fs::TryLockError::Error(error)) => return Err(io(&name, &error)),
    }
    let write = || -> std::io::Result<()> {
        lock.set_len(0)?;
        lock.seek(SeekFrom::Start(0))?;
        lock.write_all(std::process::id().to_string().as_bytes())
    };
    let mut write = write;
    // Who holds it is a courtesy; a full disk must not keep us from opening.
    drop(write());
    Ok(lock)
}
