//! `sickbay message`.

use std::fmt::Write as _;

use sickbay::core::message::Status;
use sickbay::core::quarantine::AttemptEnd;
use sickbay_server::wire::act::{Acted, ReplayOne, Why};
use sickbay_server::wire::failure::Attempt;
use sickbay_server::wire::message::MessageView;
use sickbay_server::wire::quarantine::DeadLetter;

use super::Env;
use super::reach::Missing;
use crate::output::{Exit, Output, Result, block, escape, plural, words};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show everything known of a message
    Show(Id),
    /// Try it now: one that waits becomes due, a dead letter is sent back
    Retry(Id),
    /// Set a live message aside
    DeadLetter {
        #[command(flatten)]
        id: Id,
        /// Why, in words
        #[arg(long, default_value = "set aside by hand")]
        why: String,
    },
    /// Remove a message that waits
    Cancel(Id),
}

#[derive(clap::Args)]
pub(crate) struct Id {
    /// Its id, or the beginning of it
    #[arg(value_parser = id)]
    id: String,
}

/// An id or the beginning of one. An empty one begins them all.
pub(super) fn id(text: &str) -> std::result::Result<String, String> {
    if text.trim().is_empty() { Err("it is empty".to_owned()) } else { Ok(text.trim().to_owned()) }
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        match self {
            Self::Show(Id { id }) => show(&id, env).await,
            Self::Retry(Id { id }) => retry(&id, env).await,
            Self::DeadLetter { id: Id { id }, why } => {
                let acted = env.client(Missing::Fail).await?.dead_letter(&id, &Why { why }).await?;
                tell(&acted, "is in quarantine", env)
            }
            Self::Cancel(Id { id }) => {
                let acted = env.client(Missing::Fail).await?.cancel(&id).await?;
                tell(&acted, "is removed", env)
            }
        }
    }
}

fn tell(acted: &Acted, what: &str, env: &Env) -> Result {
    env.out.answer(acted, |_| format!("{} {what}\n", acted.short))?;
    Ok(Exit::Done)
}

async fn retry(id: &str, env: &Env) -> Result {
    let client = env.client(Missing::Fail).await?;
    let view = client.message(id).await?;
    let whole = view.id.to_string();
    if view.status == Status::Dead {
        let acted = client.replay(&whole, &ReplayOne::default()).await?;
        return tell(&acted, &format!("is sent back to {}", view.queue), env);
    }
    let acted = client.hasten(&whole).await?;
    tell(&acted, "is due now", env)
}

pub(super) async fn show(id: &str, env: &Env) -> Result {
    let view = env.client(Missing::Fail).await?.message(id).await?;
    env.out.answer(&view, |out| describe(&view, out))?;
    Ok(Exit::Done)
}

fn describe(view: &MessageView, out: &Output) -> String {
    let mut text = format!("{} {}\n", out.bold(&view.id.to_string()), view.status.as_str());
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<12} {}", escape(&value));
        }
    };
    let counters = &view.counters;
    line("queue", Some(view.queue.to_string()));
    line("type", view.message_type.as_ref().map(ToString::to_string));
    line("stream", view.stream.as_ref().map(ToString::to_string));
    line("key", view.key.as_ref().map(ToString::to_string));
    line("priority", Some(view.priority.get().to_string()));
    line("pushed", Some(view.pushed_at.to_string()));
    line("deadline", view.deadline_at.map(|time| time.to_string()));
    line("due", view.due_at.map(|time| time.to_string()));
    line("held by", view.worker.clone());
    line("stages", Some(view.stages.0.to_string()).filter(|_| !view.stages.is_none()));
    line(
        "counted",
        Some(format!(
            "{}, {}, {}, {}",
            many(counters.deliveries, "delivery"),
            many(counters.failures, "failure"),
            many(counters.crashes, "crash"),
            many(counters.replays, "replay")
        )),
    );
    line("again by", view.cause.map(|cause| cause.as_str().to_owned()));
    line("suspect", view.suspect.then(|| "its worker died with it in hand".to_owned()));
    for (name, value) in &view.headers.0 {
        line("header", Some(format!("{name}: {value}")));
    }
    if let Some(dead) = &view.dead {
        text.push_str(&describe_dead(dead));
    }
    for attempt in &view.history {
        text.push_str(&describe_attempt(attempt));
    }
    payload(&mut text, "payload", view.payload.as_deref(), view.payload_base64.as_deref());
    let (plain, base64) = (&view.original_payload, &view.original_payload_base64);
    payload(&mut text, "pushed with", plain.as_deref(), base64.as_deref());
    text
}

/// "1 delivery", "2 deliveries", "2 crashes".
fn many(number: u32, one: &str) -> String {
    let several = match (one.strip_suffix('y'), one.ends_with("sh")) {
        (Some(stem), _) if !one.ends_with("ay") => format!("{stem}ies"),
        (_, true) => format!("{one}es"),
        _ => format!("{one}s"),
    };
    format!("{number} {}", if number == 1 { one } else { &several })
}

fn describe_dead(dead: &DeadLetter) -> String {
    let aside = dead.set_aside.as_str();
    format!(
        "  {:<12} {} ({aside}: {}, {})\n  {:<12} {}\n",
        "quarantined", dead.quarantined_at, dead.reason, dead.kind, "signature", dead.signature
    )
}

fn describe_attempt(attempt: &Attempt) -> String {
    let ran = attempt.ran.map(|ran| format!(" after {ran}")).unwrap_or_default();
    let worker = if attempt.worker.is_empty() { String::new() } else { format!(" by {}", attempt.worker) };
    // What people did is no attempt.
    let which = match attempt.end {
        AttemptEnd::Replayed | AttemptEnd::Reset => "by hand".to_owned(),
        _ if attempt.worker.is_empty() => "by hand".to_owned(),
        _ => format!("attempt {}", attempt.number),
    };
    let what = match attempt.end {
        AttemptEnd::Reset => "attempts given back".to_owned(),
        end => words(&end),
    };
    let mut text = format!("  {which}: {what}{ran}{} at {}\n", escape(&worker), attempt.ended_at);
    if let Some(failure) = &attempt.failure {
        let code = failure.code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
        text.push_str(&format!("    {} ({}{})\n", failure.reason, failure.kind, escape(&code)));
        text.push_str(&block(&failure.error, "    | "));
    }
    if let Some(output) = &attempt.output {
        text.push_str("    it printed:\n");
        text.push_str(&block(output, "    > "));
    }
    text
}

fn payload(text: &mut String, name: &str, plain: Option<&str>, base64: Option<&str>) {
    match (plain, base64) {
        (Some(plain), _) => {
            text.push_str(&format!("  {name} ({})\n", plural(plain.len() as u64, "byte")));
            text.push_str(&block(plain, "    "));
        }
        (None, Some(base64)) => {
            text.push_str(&format!("  {name} (no text; in base64)\n"));
            text.push_str(&block(base64, "    "));
        }
        (None, None) => {}
    }
}
