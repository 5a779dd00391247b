//! A VFS of SQLite on a [`Disk`]: what SQLite takes for the file system.
#![expect(unsafe_code, reason = "a VFS is a table of C functions")]

mod file;
mod shm;

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_vfs};

use crate::disk::Disk;
use file::{METHODS, OpenFile};

/// A registered VFS and the disk that it shows. Another disk can be put in; files that are open stay with theirs.
pub struct Drive {
    name: String,
    shown: Arc<Mutex<Disk>>,
}

impl Drive {
    /// Registers a VFS under this name, with an empty disk. A name is registered once in a program's life.
    ///
    /// # Panics
    ///
    /// If SQLite does not take it.
    pub fn new(name: &str) -> Self {
        let shown = Arc::new(Mutex::new(Disk::default()));
        let label = CString::new(name).unwrap_or_default().into_raw();
        let vfs = sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<OpenFile>() as c_int,
            mxPathname: 512,
            pNext: std::ptr::null_mut(),
            zName: label,
            pAppData: Arc::into_raw(shown.clone()).cast_mut().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_path),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_int),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        };
        // SAFETY: the VFS and all it points at live as long as the program.
        let code = unsafe {
            ffi::sqlite3_initialize();
            ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 0)
        };
        assert_eq!(code, ffi::SQLITE_OK, "the VFS {name}");
        Self { name: name.to_owned(), shown }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a disk in.
    pub fn insert(&self, disk: Disk) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = disk;
    }

    /// The disk that is in.
    pub fn disk(&self) -> Disk {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

unsafe fn disk(vfs: *mut sqlite3_vfs) -> Disk {
    // SAFETY: `Drive::new` put an `Arc` there that is never taken away.
    let shown = unsafe { &*(*vfs).pAppData.cast::<Mutex<Disk>>() };
    shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

unsafe fn text(name: *const c_char) -> String {
    // SAFETY: SQLite's names end with a zero.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    granted: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives memory of `szOsFile` bytes and, if it wants to know what was granted, a place for it.
    unsafe {
        (*file).pMethods = std::ptr::null();
        let disk = disk(vfs);
        let name = if name.is_null() { format!("temporary {file:p}") } else { text(name) };
        let journal = flags
            & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL)
            != 0;
        let opened = {
            let mut state = disk.lock();
            let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
            let creates = create && !state.image.names.contains_key(&name);
            if state.operate(creates).is_err() {
                return ffi::SQLITE_CANTOPEN;
            }
            state.open(&name, create, journal)
        };
        let Some(inode) = opened else { return ffi::SQLITE_CANTOPEN };
        if !granted.is_null() {
            *granted = flags;
        }
        let delete = (flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0).then_some(name);
        file.cast::<OpenFile>().write(OpenFile::new(&raw const METHODS, disk, inode, delete));
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: as SQLite calls it.
    let (disk, name) = unsafe { (disk(vfs), text(name)) };
    let mut state = disk.lock();
    if state.operate(false).is_err() {
        return ffi::SQLITE_IOERR_DELETE;
    }
    if state.delete(&name, sync != 0) { ffi::SQLITE_OK } else { ffi::SQLITE_IOERR_DELETE_NOENT }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    _: c_int,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: as SQLite calls it.
    unsafe {
        let (disk, name) = (disk(vfs), text(name));
        *answer = c_int::from(disk.lock().image.names.contains_key(&name));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    path: *mut c_char,
) -> c_int {
    // SAFETY: `path` has room for `size` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > size as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), path, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut sqlite3_vfs, count: c_int, bytes: *mut c_char) -> c_int {
    use std::hash::{BuildHasher, Hasher};
    for at in 0..count as usize {
        let byte = std::hash::RandomState::new().build_hasher().finish() as u8;
        // SAFETY: there is room for `count` bytes.
        unsafe { bytes.add(at).write(byte as c_char) };
    }
    count
}

unsafe extern "C" fn sleep(_: *mut sqlite3_vfs, micros: c_int) -> c_int {
    std::thread::yield_now();
    micros
}

unsafe extern "C" fn current_time(_: *mut sqlite3_vfs, time: *mut f64) -> c_int {
    // SAFETY: there is a place for the answer.
    unsafe { *time = 2_461_041.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int(_: *mut sqlite3_vfs, time: *mut i64) -> c_int {
    // SAFETY: there is a place for the answer.
    unsafe { *time = 212_633_985_600_000 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_: *mut sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
