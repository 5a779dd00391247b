//! `sickbay bench`: what this machine and this folder can do, in a few seconds, measured and not promised.

mod disk;
mod load;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use sickbay::{Clock as _, Sickbay, SystemClock, Timestamp};

use crate::output::{Exit, Failure, Output, Result, Table, count};

/// The messages are this large.
const PAYLOAD_BYTES: usize = 256;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure in this folder, which must be there [default: a temporary one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// How long each of the four measurements takes
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// One figure.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    what: &'static str,
    per_second: f64,
    /// Messages for each time the disk could have synced.
    against_disk: f64,
}

/// All figures; with `--json` this is the document.
#[derive(Debug, Serialize)]
struct Figures {
    folder: PathBuf,
    filesystem_keeps_data: bool,
    payload_bytes: usize,
    seconds_each: u64,
    figures: Vec<Figure>,
}

/// How long something may go on.
#[derive(Clone, Copy)]
struct Deadline {
    begin: Timestamp,
    time: Duration,
}

impl Deadline {
    fn after(time: Duration) -> Self {
        Self { begin: SystemClock::new().now(), time }
    }

    fn elapsed(self) -> Duration {
        SystemClock::new().now().since(self.begin)
    }

    fn is_over(self) -> bool {
        self.elapsed() >= self.time
    }

    /// So many of something in the time that has passed.
    fn rate(self, count: u64) -> f64 {
        count as f64 / self.elapsed().as_secs_f64().max(0.001)
    }
}

pub(crate) async fn run(arguments: &Arguments, out: &Output) -> Result {
    if let Some(dir) = arguments.dir.as_ref().filter(|dir| !dir.is_dir()) {
        let message = format!("there is no folder {}", dir.display());
        return Err(Failure::new(Exit::NotFound, message).hint("make it first, or leave --dir out"));
    }
    let folder = match &arguments.dir {
        Some(dir) => {
            tempfile::tempdir_in(dir).with_context(|| format!("no folder can be made in {}", dir.display()))
        }
        None => tempfile::tempdir().context("no temporary folder could be made"),
    }?;
    let figures = measure(arguments, folder.path(), out).await?;
    out.answer(&figures, |out| table(&figures, out))?;
    if !figures.filesystem_keeps_data {
        let note =
            "note: this folder is in memory, where a sync costs nothing; name one on a disk with --dir";
        out.say(note);
    }
    Ok(Exit::Done)
}

async fn measure(arguments: &Arguments, folder: &Path, out: &Output) -> anyhow::Result<Figures> {
    let time = Duration::from_secs(arguments.seconds);
    let step = |number: u8, what: &str| out.progress(&format!("{number} of 4: {what}"));
    step(1, "the disk");
    let disk = disk::fdatasync_rate(folder, time)?;
    let bay = Sickbay::open(folder.join("bench.db"))?;
    load::prepare(&bay).await?;
    step(2, "one after the other");
    let one = load::one_by_one(&bay, time).await?;
    step(3, "64 at once");
    let many = load::by_many(&bay, time).await?;
    step(4, "in batches, there and back");
    let cycle = load::cycle(&bay, time).await?;
    out.progress("");
    let figure = |name, what, per_second: f64| Figure {
        name,
        what,
        per_second: per_second.round(),
        against_disk: (per_second / disk.max(0.001) * 100.0).round() / 100.0,
    };
    Ok(Figures {
        folder: arguments.dir.clone().unwrap_or_else(std::env::temp_dir),
        filesystem_keeps_data: !disk::is_in_memory(folder),
        payload_bytes: PAYLOAD_BYTES,
        seconds_each: arguments.seconds,
        figures: vec![
            figure("fdatasync", "4 KiB overwritten and synced", disk),
            figure("push_one", "pushed one by one, each durable", one),
            figure("push_64", "pushed by 64 at once, each durable", many),
            figure("cycle_100", "pushed, claimed and done, 100 at a time", cycle),
        ],
    })
}

fn table(figures: &Figures, out: &Output) -> String {
    let mut table = Table::new(["MEASURED", "A SECOND", "PER SYNC"]);
    for figure in &figures.figures {
        table.row([
            figure.what.to_owned(),
            count(figure.per_second as u64),
            format!("{:.2}", figure.against_disk),
        ]);
    }
    table.render(out)
}
