//! Breaks disks, files and processes under Sickbay and looks whether its promises hold.
//!
//! [`disk`] is a disk in memory that tells synced from unsynced, [`vfs`] lets SQLite write to it, and [`power`] cuts
//! the power at every operation of a recorded script: the store must then look like the model before or after the
//! command under way, and like nothing else. [`group`] does it to several callers at once, and [`migration`] to a store that is
//! brought to the next version of its schema. [`broken`] makes operations fail, [`flips`] turns bits over, [`process`] kills,
//! stops and replaces real processes on real files, and [`postgres`] does it to many workers of one database
//! and to the database.

pub mod broken;
pub mod dice;
pub mod disk;
pub mod fixture;
pub mod flips;
pub mod group;
pub mod migration;
pub mod observe;
#[cfg(unix)]
pub mod postgres;
pub mod power;
#[cfg(unix)]
pub mod process;
pub mod script;
pub mod vfs;

use std::sync::atomic::{AtomicU64, Ordering};

/// Does pieces of work on so many threads, each with its number, until one of them says that it is enough.
/// Answers the number after the last one that was done.
pub fn in_parallel<T: Send>(
    threads: usize,
    begin: u64,
    make: impl Fn(usize) -> T + Sync,
    work: impl Fn(&T, u64) -> bool + Sync,
) -> u64 {
    let (next, end) = (AtomicU64::new(begin), AtomicU64::new(begin));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, end, make, work) = (&next, &end, &make, &work);
            scope.spawn(move || {
                let own = make(thread);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !work(&own, seed) {
                        break;
                    }
                    end.fetch_max(seed + 1, Ordering::Relaxed);
                }
            });
        }
    });
    end.into_inner()
}

/// A runtime of this thread alone.
///
/// # Panics
///
/// If there can be none.
pub fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap_or_else(|error| panic!("a runtime: {error}"))
}
