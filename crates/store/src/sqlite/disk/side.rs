//! Files beside the store, reached through the same VFS as the store itself: what holds for the store's
//! file (a test's disk that tears writes, say) holds for them.
#![expect(unsafe_code, reason = "SQLite's files are reached through C functions")]

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use rusqlite::ffi;

/// What a file is for; it decides how the VFS treats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum Purpose {
    /// A small file of our own. Its permissions are those of the store.
    Own,
    /// The store's log.
    Log,
}

/// An open file. It is closed when it is dropped.
pub(in crate::sqlite) struct SideFile {
    /// Memory for the VFS's own structure, aligned for anything.
    memory: Box<[u64]>,
    name: *const std::ffi::c_char,
}

// SAFETY: a file without locks has no ties to a thread, and every call takes `&mut self`.
unsafe impl Send for SideFile {}

impl SideFile {
    /// Opens a file or makes it. `vfs` is the name of the VFS, or none for the default one.
    pub(in crate::sqlite) fn open(vfs: Option<&str>, path: &str, purpose: Purpose) -> Result<Self, i32> {
        let name = vfs.map(CString::new).transpose().map_err(|_| ffi::SQLITE_MISUSE)?;
        let path = CString::new(path).map_err(|_| ffi::SQLITE_MISUSE)?;
        // SAFETY: the name is null or ends with a zero.
        let vfs = unsafe {
            ffi::sqlite3_vfs_find(name.as_deref().map_or(std::ptr::null(), std::ffi::CStr::as_ptr))
        };
        if vfs.is_null() {
            return Err(ffi::SQLITE_NOTFOUND);
        }
        let kind = match purpose {
            Purpose::Own => ffi::SQLITE_OPEN_MAIN_JOURNAL,
            Purpose::Log => ffi::SQLITE_OPEN_WAL,
        };
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | kind;
        // SAFETY: a registered VFS is never taken away; its functions get what they ask for: a file name made by
        // SQLite (which lives until `drop`), and zeroed memory of the size it wants.
        unsafe {
            let name = ffi::sqlite3_create_filename(path.as_ptr(), c"".as_ptr(), c"".as_ptr(), 0, null_mut());
            if name.is_null() {
                return Err(ffi::SQLITE_NOMEM);
            }
            let words = usize::try_from((*vfs).szOsFile).unwrap_or(0).div_ceil(8).max(1);
            let mut file = Self { memory: vec![0u64; words].into_boxed_slice(), name };
            let Some(open) = (*vfs).xOpen else { return Err(ffi::SQLITE_MISUSE) };
            let mut granted = 0;
            let code = open(vfs, name, file.raw(), flags, &raw mut granted);
            if code == ffi::SQLITE_OK { Ok(file) } else { Err(code) }
        }
    }

    fn raw(&mut self) -> *mut ffi::sqlite3_file {
        self.memory.as_mut_ptr().cast()
    }

    /// The file's functions; null if it could not be opened.
    fn methods(&mut self) -> Result<ffi::sqlite3_io_methods, i32> {
        // SAFETY: the memory begins with the pointer to the methods; zero means that there are none.
        unsafe { (*self.raw()).pMethods.as_ref().copied().ok_or(ffi::SQLITE_CANTOPEN) }
    }

    /// Reads; what is beyond the end is zero.
    pub(in crate::sqlite) fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), i32> {
        let read = self.methods()?.xRead.ok_or(ffi::SQLITE_MISUSE)?;
        // SAFETY: the file is open, and the buffer is as long as is said.
        let code = unsafe {
            read(self.raw(), bytes.as_mut_ptr().cast::<c_void>(), bytes.len() as i32, offset as i64)
        };
        if code == ffi::SQLITE_IOERR_SHORT_READ { Ok(()) } else { checked(code) }
    }

    /// Writes.
    pub(in crate::sqlite) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        let write = self.methods()?.xWrite.ok_or(ffi::SQLITE_MISUSE)?;
        // SAFETY: the file is open, and the buffer is as long as is said.
        checked(unsafe {
            write(self.raw(), bytes.as_ptr().cast::<c_void>(), bytes.len() as i32, offset as i64)
        })
    }

    /// Makes what was written durable.
    pub(in crate::sqlite) fn sync(&mut self) -> Result<(), i32> {
        let sync = self.methods()?.xSync.ok_or(ffi::SQLITE_MISUSE)?;
        // SAFETY: the file is open.
        checked(unsafe { sync(self.raw(), ffi::SQLITE_SYNC_NORMAL) })
    }

    /// How long the file is.
    pub(in crate::sqlite) fn size(&mut self) -> Result<u64, i32> {
        let size = self.methods()?.xFileSize.ok_or(ffi::SQLITE_MISUSE)?;
        let mut bytes = 0;
        // SAFETY: the file is open, and the number outlives the call.
        checked(unsafe { size(self.raw(), &raw mut bytes) })?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}

impl Drop for SideFile {
    fn drop(&mut self) {
        if let Ok(methods) = self.methods()
            && let Some(close) = methods.xClose
        {
            // SAFETY: the file is open and is not used afterwards.
            unsafe { close(self.raw()) };
        }
        // SAFETY: the name was made by `sqlite3_create_filename` and nobody has it any more.
        unsafe { ffi::sqlite3_free_filename(self.name) };
    }
}

fn checked(code: i32) -> Result<(), i32> {
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
}
