//! The memory that connections to one file share. It is gone when the power goes.
#![expect(unsafe_code, reason = "the methods of a file are C functions")]
// SAFETY, for every function here: as in `file`. The regions are boxes that neither move nor go away while a
// connection uses them.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, sqlite3_file};

use super::file::this;

/// The locks that one connection holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    shared: [bool; 8],
    exclusive: [bool; 8],
}

pub(super) unsafe extern "C" fn map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    memory: *mut *mut c_void,
) -> c_int {
    let this = unsafe { this(file) };
    let mut state = this.disk.lock();
    let shm = state.shm.entry(this.inode).or_default();
    if this.shm.is_none() {
        shm.users += 1;
        this.shm = Some(Held::default());
    }
    let region = region as usize;
    while extend != 0 && shm.regions.len() <= region {
        shm.regions.push(vec![0u64; size as usize / 8].into_boxed_slice());
    }
    let found = shm.regions.get_mut(region).map_or(std::ptr::null_mut(), |found| found.as_mut_ptr().cast());
    unsafe { *memory = found };
    ffi::SQLITE_OK
}

pub(super) unsafe extern "C" fn lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let this = unsafe { this(file) };
    let mut state = this.disk.lock();
    let (Some(held), Some(shm)) = (this.shm.as_mut(), state.shm.get_mut(&this.inode)) else {
        return ffi::SQLITE_IOERR_SHMLOCK;
    };
    let slots = offset as usize..(offset + count) as usize;
    let shared = flags & ffi::SQLITE_SHM_SHARED != 0;
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        for slot in slots {
            if shared && std::mem::take(&mut held.shared[slot]) {
                shm.shared[slot] -= 1;
            }
            if !shared && std::mem::take(&mut held.exclusive[slot]) {
                shm.exclusive[slot] = false;
            }
        }
        return ffi::SQLITE_OK;
    }
    let blocked = |slot: usize| {
        let others = shm.shared[slot] - u32::from(held.shared[slot]);
        (shm.exclusive[slot] && !held.exclusive[slot]) || (!shared && others > 0)
    };
    if slots.clone().any(blocked) {
        return ffi::SQLITE_BUSY;
    }
    for slot in slots {
        if shared && !std::mem::replace(&mut held.shared[slot], true) {
            shm.shared[slot] += 1;
        }
        if !shared {
            (held.exclusive[slot], shm.exclusive[slot]) = (true, true);
        }
    }
    ffi::SQLITE_OK
}

pub(super) unsafe extern "C" fn barrier(file: *mut sqlite3_file) {
    // Taking the lock orders memory.
    drop(unsafe { this(file) }.disk.lock());
}

pub(super) unsafe extern "C" fn unmap(file: *mut sqlite3_file, _: c_int) -> c_int {
    let this = unsafe { this(file) };
    let mut state = this.disk.lock();
    let Some(held) = this.shm.take() else { return ffi::SQLITE_OK };
    if let Some(shm) = state.shm.get_mut(&this.inode) {
        for slot in 0..8 {
            shm.shared[slot] -= u32::from(held.shared[slot]);
            shm.exclusive[slot] &= !held.exclusive[slot];
        }
        shm.users -= 1;
        if shm.users == 0 {
            state.shm.remove(&this.inode);
        }
    }
    ffi::SQLITE_OK
}
