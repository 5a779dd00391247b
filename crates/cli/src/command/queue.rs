//! `sickbay queue`.

use std::fmt::Write as _;

use sickbay::core::policy::{Backoff, RetryPolicy};
use sickbay::{MessageType, QueueName, QueuePolicy};
use sickbay_server::wire::Span;
use sickbay_server::wire::policy::Policy;
use sickbay_server::wire::queue::{Queue, QueueView};
use sickbay_server::wire::stats::QueueStats;

use super::Env;
use super::policy::describe;
use super::reach::Missing;
use super::stats;
use super::watch::Watch;
use crate::output::{Exit, Failure, Output, Result, count};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List all queues
    List {
        #[command(flatten)]
        watch: Watch,
    },
    /// Show one queue: its policy and its figures
    Show {
        /// Which one
        queue: QueueName,
        #[command(flatten)]
        watch: Watch,
    },
    /// Create a queue, or change what it does about failures
    Define(Define),
    /// Stop deliveries
    Pause(Part),
    /// Let deliveries go on
    Resume(Part),
}

#[derive(clap::Args)]
pub(crate) struct Define {
    /// Its name
    queue: QueueName,
    /// How often a message is tried
    #[arg(long)]
    attempts: Option<u32>,
    /// The same pause after every failure, like 10s
    #[arg(long, value_name = "DURATION", conflicts_with = "backoff")]
    cooldown: Option<Span>,
    /// The pause after the first failure; it doubles with each
    #[arg(long, value_name = "DURATION")]
    backoff: Option<Span>,
    /// How long a handler may run
    #[arg(long, value_name = "DURATION")]
    time_budget: Option<Span>,
    /// How long a worker holds a message unless it says that it still works on it
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,
}

#[derive(clap::Args)]
pub(crate) struct Part {
    /// Which queue
    queue: QueueName,
    /// Only messages of this type
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<MessageType>,
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        match self {
            Self::List { watch } => stats::list(watch, env).await,
            Self::Show { queue, watch } => show(&queue, watch, env).await,
            Self::Define(define) => define.run(env).await,
            Self::Pause(part) => {
                let client = env.client(Missing::Fail).await?;
                client.pause(&part.queue, part.message_type.clone()).await?;
                part.tell(env, "is paused: what workers hold is finished, nothing new is delivered")
            }
            Self::Resume(part) => {
                let client = env.client(Missing::Fail).await?;
                client.resume(&part.queue, part.message_type.clone()).await?;
                part.tell(env, "goes on")
            }
        }
    }
}

impl Part {
    fn tell(&self, env: &Env, what: &str) -> Result {
        let value = serde_json::json!({ "queue": self.queue, "type": self.message_type });
        env.out.answer(&value, |_| match &self.message_type {
            Some(message_type) => format!("{message_type} in {} {what}\n", self.queue),
            None => format!("{} {what}\n", self.queue),
        })?;
        Ok(Exit::Done)
    }
}

impl Define {
    async fn run(self, env: &Env) -> Result {
        let client = env.client(Missing::Make).await?;
        let known = match client.queue(&self.queue).await {
            Ok(view) => Some(view),
            Err(problem) if problem.code == "SB0001" => None,
            Err(problem) => return Err(problem.into()),
        };
        let is_new = known.is_none();
        let mut policy: QueuePolicy = known.map(|view| view.policy).unwrap_or_default().into();
        self.change(&mut policy)?;
        let queue = Queue { name: self.queue, policy: Policy::from(policy) };
        client.define_queue(&queue).await?;
        env.out.answer(&queue, |_| {
            let done = if is_new { "created" } else { "changed" };
            format!("{} is {done}: {}\n", queue.name, describe(&queue.policy.retry.into()))
        })?;
        Ok(Exit::Done)
    }

    fn change(&self, policy: &mut QueuePolicy) -> Result<()> {
        let RetryPolicy { attempts, backoff, .. } = &mut policy.retry;
        if let Some(wanted) = self.attempts {
            if wanted == 0 {
                return Err(Failure::usage("a message is tried at least once: --attempts 1"));
            }
            *attempts = wanted;
        }
        if let Some(cooldown) = self.cooldown {
            *backoff = Backoff::Cooldown(cooldown.into());
        }
        if let Some(base) = self.backoff {
            *backoff = Backoff::Exponential(base.into());
        }
        if let Some(budget) = self.time_budget {
            policy.time_budget = budget.into();
        }
        if let Some(lease) = self.lease {
            policy.lease = lease.into();
        }
        Ok(())
    }
}

async fn show(queue: &QueueName, watch: Watch, env: &Env) -> Result {
    let look = async || Ok(env.client(Missing::Fail).await?.queue(queue).await?);
    watch.show(env, look, describe_queue).await
}

fn describe_queue(view: &QueueView, out: &Output) -> String {
    let mut text = format!("{}\n", out.bold(view.name.as_str()));
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<18} {value}");
    };
    let stats = &view.stats;
    line("retry", describe(&view.policy.retry.into()));
    line("lease", view.policy.lease.to_string());
    line("time budget", view.policy.time_budget.to_string());
    line("crash budget", view.policy.crash_budget.to_string());
    if !view.policy.classification.is_empty() {
        line("own rules", view.policy.classification.len().to_string());
    }
    line("state", state(stats));
    for (name, number) in [
        ("pending", stats.pending),
        ("scheduled", stats.scheduled),
        ("to retry", stats.failed),
        ("active", stats.active),
        ("dead", stats.dead),
        ("discarded", stats.discarded),
        ("pushed", stats.pushed),
        ("completed", stats.completed),
        ("failed attempts", stats.failures),
        ("replayed", stats.replayed),
        ("duplicates", stats.duplicates),
    ] {
        line(name, count(number));
    }
    for (reason, number) in &stats.reasons {
        line(&format!("dead: {}", crate::output::escape(reason)), count(*number));
    }
    text
}

/// Whether messages are delivered.
pub(super) fn state(stats: &QueueStats) -> String {
    let held = stats
        .paused_types
        .iter()
        .map(|held| format!("{} {}", held.message_type, crate::output::words(&held.gate)));
    let held: Vec<String> = held.collect();
    match (stats.paused, held.is_empty()) {
        (true, _) => "paused".to_owned(),
        (false, true) => "open".to_owned(),
        (false, false) => held.join(", "),
    }
}
