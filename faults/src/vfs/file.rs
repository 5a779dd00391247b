//! An open file.
#![expect(unsafe_code, reason = "the methods of a file are C functions")]
// SAFETY, for every function here: SQLite calls them with a file that `open` has filled in and `close` has not seen
// yet; buffers are as long as they are said to be.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods};

use super::shm;
use crate::disk::{Disk, Failing, Inode};

/// Our part of SQLite's file.
#[repr(C)]
pub(super) struct OpenFile {
    methods: *const sqlite3_io_methods,
    pub(super) disk: Disk,
    pub(super) inode: Inode,
    delete: Option<String>,
    level: c_int,
    /// What this connection has of the shared memory.
    pub(super) shm: Option<shm::Held>,
}

impl OpenFile {
    pub(super) fn new(
        methods: *const sqlite3_io_methods,
        disk: Disk,
        inode: Inode,
        delete: Option<String>,
    ) -> Self {
        Self { methods, disk, inode, delete, level: ffi::SQLITE_LOCK_NONE, shm: None }
    }
}

pub(super) unsafe fn this<'a>(file: *mut sqlite3_file) -> &'a mut OpenFile {
    unsafe { &mut *file.cast::<OpenFile>() }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    unsafe {
        unlock(file, ffi::SQLITE_LOCK_NONE);
        let this = this(file);
        if let Some(name) = &this.delete {
            this.disk.lock().delete(name, false);
        }
        std::ptr::drop_in_place(this);
        (*file).pMethods = std::ptr::null();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, bytes: *mut c_void, count: c_int, offset: i64) -> c_int {
    let (this, bytes) = unsafe {
        (this(file), std::slice::from_raw_parts_mut(bytes.cast::<u8>(), usize::try_from(count).unwrap_or(0)))
    };
    let mut state = this.disk.lock();
    if state.operate(false).is_err() {
        return ffi::SQLITE_IOERR_READ;
    }
    let there = state.image.files[this.inode].read(offset as usize, bytes);
    if there < bytes.len() { ffi::SQLITE_IOERR_SHORT_READ } else { ffi::SQLITE_OK }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    let (this, bytes) = unsafe {
        (this(file), std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(count).unwrap_or(0)))
    };
    let mut state = this.disk.lock();
    if let Err(failing) = state.operate(true) {
        // A write that fails may have written a part.
        state.write(this.inode, offset as usize, &bytes[..bytes.len() / 2]);
        let full = failing == Failing::Full;
        return if full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR_WRITE };
    }
    state.write(this.inode, offset as usize, bytes);
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    let this = unsafe { this(file) };
    let mut state = this.disk.lock();
    if state.operate(true).is_err() {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    state.truncate(this.inode, size as usize);
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    let this = unsafe { this(file) };
    let mut state = this.disk.lock();
    if state.operate(true).is_err() {
        state.fail_to_sync(this.inode);
        return ffi::SQLITE_IOERR_FSYNC;
    }
    state.sync(this.inode);
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    let this = unsafe { this(file) };
    let mut state = this.disk.lock();
    if state.operate(false).is_err() {
        return ffi::SQLITE_IOERR_FSTAT;
    }
    unsafe { *size = state.image.files[this.inode].size() as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    let this = unsafe { this(file) };
    if this.level >= level {
        return ffi::SQLITE_OK;
    }
    let mut state = this.disk.lock();
    let locks = &mut state.locks[this.inode];
    let own = u32::from(this.level >= ffi::SQLITE_LOCK_SHARED);
    match level {
        ffi::SQLITE_LOCK_SHARED => {
            if locks.pending || locks.exclusive {
                return ffi::SQLITE_BUSY;
            }
            locks.shared += 1;
        }
        ffi::SQLITE_LOCK_RESERVED => {
            if locks.reserved {
                return ffi::SQLITE_BUSY;
            }
            locks.reserved = true;
        }
        _ => {
            if locks.reserved && this.level < ffi::SQLITE_LOCK_RESERVED {
                return ffi::SQLITE_BUSY;
            }
            if locks.shared > own {
                // Nobody new comes in while we wait for the others to leave.
                locks.pending = true;
                this.level = this.level.max(ffi::SQLITE_LOCK_PENDING);
                return ffi::SQLITE_BUSY;
            }
            (locks.exclusive, locks.reserved) = (true, true);
        }
    }
    this.level = level;
    ffi::SQLITE_OK
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    let this = unsafe { this(file) };
    if this.level <= level {
        return ffi::SQLITE_OK;
    }
    let mut state = this.disk.lock();
    let locks = &mut state.locks[this.inode];
    if this.level >= ffi::SQLITE_LOCK_PENDING {
        (locks.exclusive, locks.pending) = (false, false);
    }
    if this.level >= ffi::SQLITE_LOCK_RESERVED {
        locks.reserved = false;
    }
    if level == ffi::SQLITE_LOCK_NONE && this.level >= ffi::SQLITE_LOCK_SHARED {
        locks.shared -= 1;
    }
    this.level = level;
    ffi::SQLITE_OK
}

unsafe extern "C" fn is_reserved(file: *mut sqlite3_file, answer: *mut c_int) -> c_int {
    let this = unsafe { this(file) };
    let reserved = this.disk.lock().locks[this.inode].reserved;
    unsafe { *answer = c_int::from(reserved) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    4096
}

/// What the system's own VFS says of itself: a write leaves its neighbours alone.
unsafe extern "C" fn characteristics(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

pub(super) static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm::map),
    xShmLock: Some(shm::lock),
    xShmBarrier: Some(shm::barrier),
    xShmUnmap: Some(shm::unmap),
    xFetch: None,
    xUnfetch: None,
};
