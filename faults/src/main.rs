//! `cargo xtask faults` runs this and reads the document that it prints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sickbay_faults::power::{self, Plan};
use sickbay_faults::vfs::Drive;

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let from: u64 = std::env::args().nth(2).and_then(|t| t.parse().ok()).unwrap_or(0);
    let seeds: u64 = std::env::args().nth(3).and_then(|t| t.parse().ok()).unwrap_or(2);
    let (cuts, ops) = (AtomicU64::new(0), AtomicU64::new(0));
    std::panic::set_hook(Box::new(|_| {}));
    sickbay_faults::in_parallel(
        2,
        from,
        |thread| Arc::new(Drive::new(&format!("faults-{thread}"))),
        |drive, seed| {
            if seed >= from + seeds {
                return false;
            }
            let findings = match what.as_str() {
                "power" => {
                    let outcome = power::run(drive, seed, Plan::default());
                    cuts.fetch_add(outcome.cuts, Ordering::Relaxed);
                    ops.fetch_add(outcome.operations, Ordering::Relaxed);
                    outcome.findings
                }
                "flips" => {
                    let outcome = sickbay_faults::flips::run(drive, seed, 200);
                    println!("{} {} {} {}", outcome.flips, outcome.others, outcome.noticed, outcome.harmless);
                    outcome.findings
                }
                _ => {
                    let outcome = sickbay_faults::broken::run(drive, seed, 200);
                    println!("{} {}", outcome.faults, outcome.went_on);
                    outcome.findings
                }
            };
            for finding in findings.iter().take(3) {
                println!("{finding}");
            }
            true
        },
    );
    println!("{cuts:?} cuts, {ops:?} operations");
}
