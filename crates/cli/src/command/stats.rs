//! `sickbay stats`, and the list of queues.

use std::time::Duration;

use sickbay_server::wire::stats::Stats;

use super::Env;
use super::queue::state;
use super::reach::Missing;
use crate::output::{Exit, Failure, Output, Result, Table, count};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Look again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    if !arguments.watch {
        return list(env).await;
    }
    if env.out.json {
        return Err(Failure::usage("--watch shows a picture that changes; --json prints one document"));
    }
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Done),
        }
        // Opened anew each time, so that others can own the store in between.
        let stats = env.client(Missing::Fail).await?.stats().await?;
        let clear = if env.out.width.is_some() { "\x1b[H\x1b[2J" } else { "" };
        env.out.print(&format!("{clear}{}", table(&stats, &env.out)))?;
    }
}

pub(super) async fn list(env: &Env) -> Result {
    let stats = env.client(Missing::Fail).await?.stats().await?;
    env.out.answer(&stats, |out| table(&stats, out))?;
    Ok(Exit::Done)
}

fn table(stats: &Stats, out: &Output) -> String {
    if stats.queues.is_empty() {
        out.say("there are no queues; make one with `sickbay queue define NAME`");
        return String::new();
    }
    let mut table = Table::new([
        "QUEUE",
        "PENDING",
        "SCHEDULED",
        "RETRY",
        "ACTIVE",
        "DEAD",
        "COMPLETED",
        "PUSHED",
        "STATE",
    ]);
    for queue in &stats.queues {
        let figures = &queue.stats;
        let numbers = [
            figures.pending,
            figures.scheduled,
            figures.failed,
            figures.active,
            figures.dead,
            figures.completed,
            figures.pushed,
        ];
        let mut row = vec![queue.name.to_string()];
        row.extend(numbers.map(count));
        row.push(state(figures));
        table.row(row);
    }
    table.render(out)
}
