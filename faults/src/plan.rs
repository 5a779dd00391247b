//! What is asked for.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The parts, in the order in which they run.
pub(crate) const PARTS: [&str; 9] =
    ["controls", "power", "disk", "flips", "kills", "processes", "postgres", "interleavings", "bugs"];

/// How much is done of what.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    /// The first seed.
    pub(crate) seed: u64,
    pub(crate) parts: Vec<String>,
    /// Cuts the power for so long instead of so often.
    pub(crate) duration: Option<Duration>,
    pub(crate) power_cuts: u64,
    pub(crate) disk_faults: u64,
    pub(crate) flips: u64,
    pub(crate) kills: u64,
    pub(crate) deploys: u32,
    /// The server is stopped so often.
    pub(crate) server_crashes: u64,
    /// So many schedules of programs that are stopped in the middle.
    pub(crate) interleavings: u64,
    pub(crate) threads: usize,
}

impl Plan {
    /// `[--quick] [--seed N] [--minutes N] [--cuts N] [--threads N] [part …]`
    pub(crate) fn read(arguments: &[String]) -> Result<Self> {
        let mut plan = Self {
            quick: false,
            seed: 0,
            parts: Vec::new(),
            duration: None,
            power_cuts: 400_000,
            disk_faults: 10_000,
            flips: 50_000,
            kills: 3000,
            deploys: 100,
            server_crashes: 25,
            interleavings: 1000,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<u64> {
                let text = arguments.next().with_context(|| format!("{argument} needs a number"))?;
                text.parse().with_context(|| format!("{argument} {text} is no number"))
            };
            match argument.as_str() {
                "--quick" => {
                    plan.quick = true;
                    (plan.power_cuts, plan.disk_faults) = (100_000, 2000);
                    (plan.flips, plan.kills) = (10_000, 1000);
                    (plan.server_crashes, plan.interleavings) = (4, 50);
                }
                "--seed" => plan.seed = number()?,
                "--minutes" => plan.duration = Some(Duration::from_secs(number()? * 60)),
                "--cuts" => plan.power_cuts = number()?,
                "--threads" => plan.threads = number()?.clamp(1, 64) as usize,
                part if PARTS.contains(&part) => plan.parts.push(part.to_owned()),
                other => bail!(
                    "takes --quick, --seed N, --minutes N, --cuts N, --threads N and {}, not {other}",
                    PARTS.join(", ")
                ),
            }
        }
        Ok(plan)
    }

    /// How many workers drain how much of PostgreSQL.
    #[cfg(unix)]
    pub(crate) fn workers(&self) -> sickbay_faults::postgres::Plan {
        let full = sickbay_faults::postgres::Plan {
            workers: 8,
            messages: 100_000,
            streams: 400,
            poisoned: 20,
            kill_every_ms: 300,
            seed: self.seed,
        };
        if !self.quick {
            return full;
        }
        sickbay_faults::postgres::Plan { workers: 4, messages: 4000, streams: 40, poisoned: 4, ..full }
    }

    /// True if a part was asked for, or none was named. Known defects are looked for only when that is asked for.
    pub(crate) fn wants(&self, part: &str) -> bool {
        (self.parts.is_empty() && part != "bugs") || self.parts.iter().any(|known| known == part)
    }
}
