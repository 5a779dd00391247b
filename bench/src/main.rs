//! Measures Sickbay; prints figures as one JSON document.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

mod disk;
mod lifecycle;
mod load;
mod raw;

use std::time::Duration;

use anyhow::Result;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for round in 0..3 {
        let fd = disk::fdatasync_rate(folder.path(), Duration::from_secs(1))?;
        let raw = raw::rate(tempfile::tempdir()?.path(), 100_000, 100)?;
        let own = lifecycle::rate(tempfile::tempdir()?.path(), 100_000, 100).await?;
        let p2 = lifecycle::push_rate(tempfile::tempdir()?.path(), 64, Duration::from_secs(2)).await?;
        let p3 = lifecycle::push_rate(tempfile::tempdir()?.path(), 1, Duration::from_secs(2)).await?;
        println!("{round}: fdatasync {fd:.0}/s raw {raw:.0}/s own {own:.0}/s P1 {:.2} P2 {:.1}x ({p2:.0}) P3 {:.2} ({p3:.0})", own / raw, p2 / fd, p3 / fd);
    }
    Ok(())
}
