//! What the disk can do: the yardstick for durable commits.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::Deadline;

/// How large the file is that is written to; it does not grow.
const FILE_BYTES: usize = 16 << 20;
const PAGE_BYTES: usize = 4096;

/// How often a second a page of a file can be overwritten and synced.
pub(super) fn fdatasync_rate(folder: &Path, time: Duration) -> anyhow::Result<f64> {
    let path = folder.join("fdatasync");
    let mut file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    file.write_all(&vec![0; FILE_BYTES])?;
    file.sync_all()?;
    let page = [7; PAGE_BYTES];
    let deadline = Deadline::after(time);
    let mut count = 0u64;
    while !deadline.is_over() {
        let at = count % (FILE_BYTES / PAGE_BYTES) as u64 * PAGE_BYTES as u64;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(deadline.rate(count))
}

/// True if the folder is in memory, so that its figures say nothing about a disk.
#[cfg(target_os = "linux")]
pub(super) fn is_in_memory(folder: &Path) -> bool {
    /// The numbers of tmpfs and ramfs.
    const IN_MEMORY: [i128; 2] = [0x0102_1994, 0x8584_58f6];
    rustix::fs::statfs(folder).is_ok_and(|found| IN_MEMORY.contains(&found.f_type.into()))
}

/// Other systems do not say.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_memory(_folder: &Path) -> bool {
    false
}
