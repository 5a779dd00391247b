//! `sickbay worker`: who works on the store.

use sickbay::{Clock as _, SystemClock};
use sickbay_server::wire::process::Processes;

use super::Env;
use super::reach::Missing;
use super::watch::Watch;
use crate::output::{Output, Result, Table, ago, count, escape};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the processes that work on the store, with what they hold
    List(Arguments),
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: Watch,
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        let Self::List(arguments) = self;
        let look = async || Ok(env.client(Missing::Fail).await?.processes().await?);
        arguments.watch.show(env, look, table).await
    }
}

fn table(found: &Processes, out: &Output) -> String {
    if found.processes.is_empty() {
        out.say("nobody works on the store; run the handlers of a configuration with `sickbay work`");
        return String::new();
    }
    let now = SystemClock::new().now();
    let mut table = Table::new(["PROCESS", "NAME", "HOLDS", "SEEN", "QUEUES", "WORKERS"]);
    for process in &found.processes {
        let queues: Vec<&str> = process.queues.iter().map(sickbay::QueueName::as_str).collect();
        let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { escape(&text) };
        table.row(vec![
            process.process.clone(),
            or_none(process.name.clone().unwrap_or_default()),
            count(process.holds),
            format!("{} ago", ago(now.since(process.seen_at.0))),
            or_none(queues.join(", ")),
            or_none(process.workers.join(", ")),
        ]);
    }
    table.render(out)
}
