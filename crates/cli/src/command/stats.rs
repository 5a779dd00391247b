//! `sickbay stats`, and the list of queues.

use sickbay_server::wire::stats::Stats;

use super::Env;
use super::queue::state;
use super::reach::Missing;
use super::watch::Watch;
use crate::output::{Output, Result, Table, count};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    list(arguments.watch, env).await
}

pub(super) async fn list(watch: Watch, env: &Env) -> Result {
    let look = async || Ok(env.client(Missing::Fail).await?.stats().await?);
    watch.show(env, look, table).await
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
