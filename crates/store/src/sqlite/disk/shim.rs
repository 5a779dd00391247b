//! A VFS over another one that compares the pages of the store's file with their sums.
//!
//! Everything but reading, writing, cutting and syncing the main file is the other VFS's business.
#![expect(unsafe_code, reason = "a VFS is a table of C functions")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "one argument for all of them, below")]
// SAFETY, for every function here: SQLite calls them with a file that `open` has filled in and `close` has not
// seen yet, or with the VFS that was registered; buffers are as long as they are said to be. The other VFS's file
// lies behind ours in the same memory, of which `szOsFile` asks for enough.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

use super::sums::{PAGE_BYTES, Sums};

type Shared = Arc<Mutex<Sums>>;
type Key = (Option<String>, PathBuf);

/// The names of the VFSs made so far, by what they lie over.
static NAMES: LazyLock<Mutex<HashMap<Option<String>, String>>> = LazyLock::new(Mutex::default);
/// The sums of files that are open, by VFS and path.
static OPEN: LazyLock<Mutex<HashMap<Key, Weak<Mutex<Sums>>>>> = LazyLock::new(Mutex::default);

/// What a VFS of ours knows.
struct Over {
    other: *mut sqlite3_vfs,
    name: Option<String>,
}

#[repr(C)]
struct Checked {
    methods: *const sqlite3_io_methods,
    /// `Arc::into_raw`.
    sums: *const Mutex<Sums>,
}

/// The name of the checking VFS over this one (none is the default one). It is made when it is asked for first.
pub(in crate::sqlite) fn name_over(other: Option<&str>) -> Result<String, i32> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names.get(&other.map(str::to_owned)) {
        return Ok(name.clone());
    }
    let name = other.map_or("sickbay".to_owned(), |other| format!("sickbay-over-{other}"));
    let wanted = other.map(CString::new).transpose().map_err(|_| ffi::SQLITE_MISUSE)?;
    unsafe {
        ffi::sqlite3_initialize();
        let base = ffi::sqlite3_vfs_find(wanted.as_deref().map_or(std::ptr::null(), CStr::as_ptr));
        let Some(base) = base.as_mut() else { return Err(ffi::SQLITE_NOTFOUND) };
        let over = Over { other: base, name: other.map(str::to_owned) };
        // A registered VFS lives as long as the program.
        let vfs = Box::leak(Box::new(sqlite3_vfs {
            szOsFile: base.szOsFile + size_of::<Checked>() as c_int,
            pNext: std::ptr::null_mut(),
            zName: CString::new(name.clone()).map_err(|_| ffi::SQLITE_MISUSE)?.into_raw(),
            pAppData: Box::into_raw(Box::new(over)).cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_path),
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_int),
            iVersion: 2,
            ..*base
        }));
        let code = ffi::sqlite3_vfs_register(vfs, 0);
        if code != ffi::SQLITE_OK {
            return Err(code);
        }
    }
    names.insert(other.map(str::to_owned), name.clone());
    Ok(name)
}

unsafe fn over<'a>(vfs: *mut sqlite3_vfs) -> &'a Over {
    unsafe { &*(*vfs).pAppData.cast::<Over>() }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    granted: *mut c_int,
) -> c_int {
    unsafe {
        let over = over(vfs);
        let Some(open) = (*over.other).xOpen else { return ffi::SQLITE_MISUSE };
        if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 || name.is_null() {
            return open(over.other, name, file, flags, granted);
        }
        let checked = file.cast::<Checked>();
        (*checked).methods = std::ptr::null();
        let code = open(over.other, name, inner(file), flags, granted);
        if (*inner(file)).pMethods.is_null() || code != ffi::SQLITE_OK {
            return code;
        }
        let path = PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned());
        match shared(over, path) {
            Ok(sums) => (*checked).sums = Arc::into_raw(sums),
            Err(code) => {
                if let Some(close) = (*(*inner(file)).pMethods).xClose {
                    close(inner(file));
                }
                return code;
            }
        }
        (*checked).methods = &raw const METHODS;
        code
    }
}

/// The sums of a file, the same for all that have it open.
fn shared(over: &Over, path: PathBuf) -> Result<Shared, i32> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (over.name.clone(), path.clone());
    if let Some(sums) = open.get(&key).and_then(Weak::upgrade) {
        return Ok(sums);
    }
    open.retain(|_, sums| sums.strong_count() > 0);
    let sums = Arc::new(Mutex::new(Sums::open(path, over.name.as_deref())?));
    open.insert(key, Arc::downgrade(&sums));
    Ok(sums)
}

unsafe fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    unsafe { file.cast::<Checked>().add(1).cast() }
}

/// The sums of an open file.
unsafe fn sums<'a>(file: *mut sqlite3_file) -> std::sync::MutexGuard<'a, Sums> {
    unsafe { (*(*file.cast::<Checked>()).sums).lock().unwrap_or_else(PoisonError::into_inner) }
}

/// Calls the same method of the other VFS's file.
macro_rules! forward {
    ($file:expr, $method:ident $(, $argument:expr)*) => {
        unsafe {
            let inner = inner($file);
            match (*(*inner).pMethods).$method {
                Some(method) => method(inner $(, $argument)*),
                None => ffi::SQLITE_MISUSE,
            }
        }
    };
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let code = forward!(file, xClose);
    let sums = unsafe { Arc::from_raw((*file.cast::<Checked>()).sums) };
    if Arc::strong_count(&sums) == 1 {
        // What was learned by reading is worth keeping.
        let _ = sums.lock().unwrap_or_else(PoisonError::into_inner).sync();
    }
    code
}

/// The page that a read or write is about, if it is exactly one.
fn page(bytes: c_int, offset: i64) -> Option<usize> {
    let whole = bytes as usize == PAGE_BYTES && offset % PAGE_BYTES as i64 == 0;
    whole.then(|| (offset / PAGE_BYTES as i64) as usize)
}

unsafe extern "C" fn read(file: *mut sqlite3_file, bytes: *mut c_void, count: c_int, offset: i64) -> c_int {
    let code = forward!(file, xRead, bytes, count, offset);
    if code == ffi::SQLITE_OK
        && let Some(page) = page(count, offset)
    {
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), PAGE_BYTES) };
        if !unsafe { sums(file) }.check(page, bytes) {
            return ffi::SQLITE_CORRUPT;
        }
    }
    code
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    if unsafe { sums(file) }.before_write().is_err() {
        return ffi::SQLITE_IOERR_WRITE;
    }
    let code = forward!(file, xWrite, bytes, count, offset);
    let mut sums = unsafe { sums(file) };
    match page(count, offset) {
        Some(page) if code == ffi::SQLITE_OK => {
            let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), PAGE_BYTES) };
            sums.written(page, bytes);
        }
        _ => {
            let first = offset as usize / PAGE_BYTES;
            sums.unknown(first..(offset as usize + count as usize).div_ceil(PAGE_BYTES));
        }
    }
    code
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    if unsafe { sums(file) }.before_write().is_err() {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    let code = forward!(file, xTruncate, size);
    unsafe { sums(file) }.truncated(size as usize / PAGE_BYTES);
    code
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    let code = forward!(file, xSync, flags);
    if code == ffi::SQLITE_OK && unsafe { sums(file) }.sync().is_err() {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    code
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    forward!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    forward!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    forward!(file, xUnlock, level)
}

unsafe extern "C" fn is_reserved(file: *mut sqlite3_file, answer: *mut c_int) -> c_int {
    forward!(file, xCheckReservedLock, answer)
}

unsafe extern "C" fn control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    forward!(file, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    forward!(file, xSectorSize)
}

unsafe extern "C" fn characteristics(file: *mut sqlite3_file) -> c_int {
    forward!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    memory: *mut *mut c_void,
) -> c_int {
    forward!(file, xShmMap, region, size, extend, memory)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    forward!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    unsafe {
        let inner = inner(file);
        if let Some(barrier) = (*(*inner).pMethods).xShmBarrier {
            barrier(inner);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    forward!(file, xShmUnmap, delete)
}

/// No page is ever mapped: a mapped page would not be compared.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
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
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Calls the same function of the other VFS.
macro_rules! of_other {
    ($vfs:expr, $function:ident, $none:expr $(, $argument:expr)*) => {
        unsafe {
            let other = over($vfs).other;
            match (*other).$function {
                Some(function) => function(other $(, $argument)*),
                None => $none,
            }
        }
    };
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    of_other!(vfs, xDelete, ffi::SQLITE_MISUSE, name, sync)
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    answer: *mut c_int,
) -> c_int {
    of_other!(vfs, xAccess, ffi::SQLITE_MISUSE, name, flags, answer)
}

unsafe extern "C" fn full_path(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    path: *mut c_char,
) -> c_int {
    of_other!(vfs, xFullPathname, ffi::SQLITE_MISUSE, name, size, path)
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, count: c_int, bytes: *mut c_char) -> c_int {
    of_other!(vfs, xRandomness, 0, count, bytes)
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, micros: c_int) -> c_int {
    of_other!(vfs, xSleep, 0, micros)
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, time: *mut f64) -> c_int {
    of_other!(vfs, xCurrentTime, ffi::SQLITE_MISUSE, time)
}

unsafe extern "C" fn last_error(vfs: *mut sqlite3_vfs, count: c_int, text: *mut c_char) -> c_int {
    of_other!(vfs, xGetLastError, 0, count, text)
}

unsafe extern "C" fn current_time_int(vfs: *mut sqlite3_vfs, time: *mut i64) -> c_int {
    of_other!(vfs, xCurrentTimeInt64, ffi::SQLITE_MISUSE, time)
}
