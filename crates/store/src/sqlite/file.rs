//! The file: opening it, owning it, keeping its log from growing, and reopening it after an error.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, ffi};
use sickbay_core::{ErrorKind, StoreError};

use super::SqliteOptions;
use super::disk::{Purpose, SideFile, name_over};
use super::failure::{Translate, io, owned};
use super::mark::{self, Lost, Mark, Reached};
use super::schema;

/// The oldest SQLite without the bug that resets a log which is still needed.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How often we look whether the file is still ours.
const LOOK_EVERY_MS: i64 = 1000;

/// How the file is reached and kept.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) path: PathBuf,
    pub(super) log_bytes: u64,
    pub(super) file_bytes_max: Option<u64>,
    /// A checkpoint is due after so many pages of log.
    pub(super) checkpoint_pages: u32,
    /// A VFS of SQLite instead of the system's files, for tests.
    pub(super) vfs: Option<String>,
    /// What the file lacks is accepted as lost.
    pub(super) accept_loss: bool,
    /// A step of the schema that only a later version knows, for tests.
    pub(super) next_schema: Option<&'static str>,
}

impl Setup {
    pub(super) fn new(path: &Path, options: &SqliteOptions) -> Self {
        Self {
            path: path.to_owned(),
            log_bytes: options.log_bytes,
            file_bytes_max: options.file_bytes_max,
            checkpoint_pages: options.checkpoint_pages,
            vfs: options.vfs.clone(),
            accept_loss: options.accept_loss,
            next_schema: options.next_schema,
        }
    }
}

/// The store's file, open for writing by this process alone.
pub(super) struct File {
    pub(super) connection: Connection,
    pub(super) mark: Option<Mark>,
    /// How far the file had got according to its mark, where that is further than the file itself.
    pub(super) lost: Option<(Lost, Reached)>,
    setup: Setup,
    identity: Identity,
    looked_at: i64,
    /// Held as long as the store is open.
    _lock: Option<fs::File>,
}

impl File {
    /// Takes possession of the file and brings it to this program's version.
    pub(super) fn open(setup: Setup) -> Result<Self, StoreError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            let message =
                format!("SQLite {} can lose its log; 3.51.3 or newer is needed", rusqlite::version());
            return Err(StoreError::new(ErrorKind::Stop, "SB0014", message));
        }
        let lock = if setup.vfs.is_none() { Some(lock(&setup.path)?) } else { None };
        let connection = connect(&setup)?;
        // Until it is clear that nothing is missing, closing the connection must leave the log as it is.
        keep_log(&connection, true)?;
        let (mark, lost) = compare(&connection, &setup)?;
        schema::migrate(&connection, &setup.path, setup.next_schema)?;
        keep_log(&connection, false)?;
        let identity = Identity::of(&setup.path);
        let file = Self { connection, mark, lost, setup, identity, looked_at: i64::MIN, _lock: lock };
        file.limit()?;
        file.grow_log()?;
        Ok(file)
    }

    /// Closes and opens the connection: after an error of the disk nothing in memory is trusted.
    pub(super) fn reopen(&mut self) -> Result<(), StoreError> {
        self.connection = connect(&self.setup)?;
        self.limit()
    }

    /// An error if another file lies where ours was. Looks once a second at most.
    pub(super) fn check_identity(&mut self, now: i64) -> Result<(), StoreError> {
        if self.setup.vfs.is_some() || now.saturating_sub(self.looked_at) < LOOK_EVERY_MS {
            return Ok(());
        }
        self.looked_at = now;
        if Identity::of(&self.setup.path) == self.identity {
            return Ok(());
        }
        Err(super::failure::replaced(&self.setup.path))
    }

    /// True if the disk has so little room left that it is kept for settlements: the log may have to grow to its full
    /// size, and the file by as much when the log is written back.
    pub(super) fn is_nearly_full(&self) -> bool {
        if self.setup.vfs.is_some() {
            return false;
        }
        let margin = 2 * u64::from(self.setup.checkpoint_pages) * 4096 + (1 << 20);
        room(&self.setup.path).is_some_and(|(free, total)| free < margin.min(total / 8))
    }

    /// Keeps the file from growing beyond its limit.
    fn limit(&self) -> Result<(), StoreError> {
        let Some(bytes) = self.setup.file_bytes_max else { return Ok(()) };
        let page: u64 = self.connection.query_row("PRAGMA page_size", [], |row| row.get(0)).translated()?;
        let pages = (bytes / page.max(1)).max(1);
        let pragma = format!("PRAGMA max_page_count = {pages}");
        self.connection.query_row(&pragma, [], |row| row.get::<_, i64>(0)).map(drop).translated()
    }

    /// Writes the log to its full size once, so that later commits overwrite instead of append:
    /// that is twice as fast on a calm disk, and many times on a busy one.
    fn grow_log(&self) -> Result<(), StoreError> {
        if self.setup.log_bytes == 0 {
            return Ok(());
        }
        // The log exists only after something was written.
        self.connection.execute_batch("BEGIN IMMEDIATE; UPDATE mark SET one = one; COMMIT").translated()?;
        let Some(path) = self.connection.path().map(|path| format!("{path}-wal")) else { return Ok(()) };
        let grow = || -> Result<(), i32> {
            let mut log = SideFile::open(self.setup.vfs.as_deref(), &path, Purpose::Log)?;
            let (mut size, zeros) = (log.size()?, vec![0u8; 1 << 20]);
            while size < self.setup.log_bytes {
                let part = (self.setup.log_bytes - size).min(zeros.len() as u64);
                log.write(size, &zeros[..part as usize])?;
                size += part;
            }
            log.sync()
        };
        match grow() {
            // A log that cannot be grown only makes commits slower.
            Ok(()) | Err(ffi::SQLITE_FULL) => Ok(()),
            Err(code) => Err(super::failure::translate(&rusqlite::Error::SqliteFailure(
                ffi::Error::new(code),
                Some(format!("growing {path}")),
            ))),
        }
    }
}

/// Which file lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(Option<(u64, u64)>);

impl Identity {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Self(fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino())))
        }
        #[cfg(not(unix))]
        Self(fs::metadata(path).ok().map(|_| (0, 0)))
    }
}

/// How many bytes the disk has left, and how many it has in all.
#[cfg(unix)]
fn room(path: &Path) -> Option<(u64, u64)> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some((disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)))
}

#[cfg(not(unix))]
fn room(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Whether closing the connection leaves the log alone.
fn keep_log(connection: &Connection, keep: bool) -> Result<(), StoreError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop).translated()
}

type Compared = (Option<Mark>, Option<(Lost, Reached)>);

/// Compares the file with its mark.
fn compare(connection: &Connection, setup: &Setup) -> Result<Compared, StoreError> {
    let Some(path) = connection.path() else { return Ok((None, None)) };
    // A mark that cannot be opened is no reason to refuse the store: what cannot be written is noticed soon enough.
    let Ok((mark, marked)) = Mark::open(setup.vfs.as_deref(), path) else { return Ok((None, None)) };
    let mark = Some(mark);
    let Some(marked) = marked else { return Ok((mark, None)) };
    let reached = schema::reached(connection)?;
    if reached.store != 0 && reached.store != marked.store {
        return if setup.accept_loss { Ok((mark, None)) } else { Err(mark::other_store(path)) };
    }
    match reached.lacks(marked) {
        Some(lost) if !setup.accept_loss => Err(mark::lost_tail(path, lost)),
        lost => Ok((mark, lost.map(|lost| (lost, marked)))),
    }
}

/// Opens a connection for the writer.
fn connect(setup: &Setup) -> Result<Connection, StoreError> {
    let path = &setup.path;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let vfs = checking_vfs(setup.vfs.as_deref())?;
    let connection = Connection::open_with_flags_and_vfs(path, flags, vfs.as_str()).translated()?;
    connection.busy_timeout(Duration::from_secs(5)).translated()?;
    connection.set_prepared_statement_cache_capacity(256);
    let version: Result<i64, _> = connection.query_row("PRAGMA schema_version", [], |row| row.get(0));
    version.translated()?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).translated()?;
    let synchronous = if sickbay_core::bug!(FsyncSkipped) { "OFF" } else { "FULL" };
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = {}; PRAGMA cache_size = -65536;
             PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = OFF",
            setup.checkpoint_pages
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
pub(super) fn connect_reader(path: &Path, vfs: Option<&str>) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let vfs = checking_vfs(vfs)?;
    let connection = Connection::open_with_flags_and_vfs(path, flags, vfs.as_str()).translated()?;
    connection.busy_timeout(Duration::from_secs(5)).translated()?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192").translated()?;
    Ok(connection)
}

/// The VFS that compares pages with their sums.
fn checking_vfs(over: Option<&str>) -> Result<String, StoreError> {
    let failed = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
    name_over(over).map_err(|code| super::failure::translate(&failed(code)))
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
