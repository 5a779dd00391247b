//! `cargo xtask faults` runs this and reads the document that it prints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sickbay_faults::power::{self, Plan};
use sickbay_faults::vfs::Drive;

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|t| t.parse().ok()).unwrap_or(2);
    let (cuts, ops) = (AtomicU64::new(0), AtomicU64::new(0));
    sickbay_faults::in_parallel(
        2,
        0,
        |thread| Arc::new(Drive::new(&format!("faults-{thread}"))),
        |drive, seed| {
            if seed >= seeds {
                return false;
            }
            let outcome = power::run(drive, seed, Plan::default());
            cuts.fetch_add(outcome.cuts, Ordering::Relaxed);
            ops.fetch_add(outcome.operations, Ordering::Relaxed);
            for finding in outcome.findings.iter().take(2) {
                println!("{finding}");
            }
            true
        },
    );
    println!("{cuts:?} cuts, {ops:?} operations");
}
