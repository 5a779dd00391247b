//! What the disk can do: the yardstick for durable commits.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How often a second 4 KiB of a file that does not grow can be overwritten and synced.
pub(crate) fn fdatasync_rate(folder: &Path, time: Duration) -> Result<f64> {
    let mut file = std::fs::File::create(folder.join("fdatasync"))?;
    file.write_all(&vec![0u8; 16 << 20])?;
    file.sync_all()?;
    let page = [7u8; 4096];
    let (begin, mut count) = (Instant::now(), 0u32);
    while begin.elapsed() < time {
        file.seek(SeekFrom::Start(u64::from(count % 4096) * 4096))?;
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}
