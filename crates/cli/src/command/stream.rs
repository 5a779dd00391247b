//! `sickbay stream`.

use std::fmt::Write as _;

use sickbay::core::stats::StreamState;
use sickbay::{Clock as _, QueueName, StreamKey, SystemClock, Timestamp};
use sickbay_server::wire::Time;
use sickbay_server::wire::stream::{
    Reset, ResetAnswer, ResetWhich, StreamDetail, StreamEntry, StreamView, Streams,
};

use super::Env;
use super::reach::Missing;
use super::watch::Watch;
use crate::output::{Exit, Failure, Output, Result, Table, ago, count, escape, plural, shell_word, words};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the streams of a queue, blocked ones first
    List {
        /// Which queue
        queue: QueueName,
        /// At most so many rows
        #[arg(long, default_value_t = 50, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[command(flatten)]
        watch: Watch,
    },
    /// Show one stream: what holds it, and its messages in order
    Show {
        #[command(flatten)]
        which: Which,
        /// At most so many messages
        #[arg(long, default_value_t = 20, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[command(flatten)]
        watch: Watch,
    },
    /// Let a blocked stream go on without its quarantined or waiting head
    Release(Which),
    /// Give the head of a stream its attempts back and make it due now
    Reset {
        #[command(flatten)]
        which: Which,
        /// Every message of the stream, not its head alone
        #[arg(long)]
        all_entries: bool,
    },
}

#[derive(clap::Args)]
pub(crate) struct Which {
    /// Which queue
    queue: QueueName,
    /// Which stream
    stream: StreamKey,
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        match self {
            Self::List { queue, limit, watch } => {
                let look = async || Ok(env.client(Missing::Fail).await?.streams(&queue, limit).await?);
                watch.show(env, look, list).await
            }
            Self::Show { which: Which { queue, stream }, limit, watch } => {
                let look =
                    async || Ok(env.client(Missing::Fail).await?.stream(&queue, &stream, limit).await?);
                watch.show(env, look, describe).await
            }
            Self::Release(which) => release(&which, env).await,
            Self::Reset { which, all_entries } => reset(&which, all_entries, env).await,
        }
    }
}

async fn release(Which { queue, stream }: &Which, env: &Env) -> Result {
    let client = env.client(Missing::Fail).await?;
    let released = client.release_stream(queue, stream).await?;
    if !released.released {
        let message = format!("stream {stream} of {queue} is not blocked");
        let hint = format!("see its state with `sickbay stream list {queue}`");
        return Err(Failure::new(Exit::Refused, message).hint(hint));
    }
    env.out.answer(&released, |_| format!("{stream} goes on without its head\n"))?;
    Ok(Exit::Done)
}

async fn reset(Which { queue, stream }: &Which, all_entries: bool, env: &Env) -> Result {
    let entries = if all_entries { ResetWhich::All } else { ResetWhich::Head };
    let answer = env.client(Missing::Fail).await?.reset_stream(queue, stream, &Reset { entries }).await?;
    env.out.answer(&answer, |_| told(&answer))?;
    if answer.left > 0 {
        env.out.say(&format!("{} more were not reached; run it again", count(answer.left)));
    }
    Ok(Exit::Done)
}

fn told(answer: &ResetAnswer) -> String {
    let ResetAnswer { entries, attempts_reset, hastened, .. } = answer;
    let (looked_at, reset, hastened) =
        (plural(*entries, "message"), count(*attempts_reset), count(*hastened));
    format!("of {looked_at}, {reset} got the attempts back and {hastened} became due\n")
}

fn list(streams: &Streams, out: &Output) -> String {
    if streams.streams.is_empty() {
        out.say("no streams");
        return String::new();
    }
    let now = SystemClock::new().now();
    let mut table = Table::new(["STREAM", "STATE", "LENGTH", "HEAD", "SINCE", "DUE"]);
    for stream in &streams.streams {
        table.row([
            stream.key.to_string(),
            words(&stream.state),
            count(stream.length),
            stream.head_short.clone().unwrap_or_default(),
            stream.since.map(|since| format!("{} ago", age(since, now))).unwrap_or_default(),
            stream.due_at.map(|due| when(due, now)).unwrap_or_default(),
        ]);
    }
    table.render(out)
}

fn age(since: Time, now: Timestamp) -> String {
    ago(now.since(since.into()))
}

/// When something is due, seen from now.
fn when(due: Time, now: Timestamp) -> String {
    let due: Timestamp = due.into();
    if due <= now { "now".to_owned() } else { format!("in {}", ago(due.since(now))) }
}

fn describe(detail: &StreamDetail, out: &Output) -> String {
    let now = SystemClock::new().now();
    let StreamDetail { stream, holds, entries } = detail;
    let mut text = format!("{} in {}\n", out.bold(&escape(stream.key.as_str())), stream.queue);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {:<8} {}", "state", state(stream, now));
    let _ = writeln!(text, "  {:<8} {}", "length", count(stream.length));
    for way in ways(stream) {
        let _ = writeln!(text, "  {:<8} {way}", "try");
    }
    for hold in holds {
        let _ =
            writeln!(text, "  {:<8} {}, in quarantine for {}", "held by", hold.short, age(hold.since, now));
    }
    if !entries.is_empty() {
        text.push_str(&table(entries, now).render(out));
    }
    let shown = (holds.len() + entries.len()) as u64;
    if shown < stream.length {
        out.say(&format!("{} of {} are shown; more with --limit", count(shown), count(stream.length)));
    }
    text
}

/// What the stream waits for.
fn state(stream: &StreamView, now: Timestamp) -> String {
    let head = stream.head_short.clone().unwrap_or_default();
    match stream.state {
        StreamState::Ready => format!("ready: {head} is next"),
        StreamState::Leased => format!("leased: a worker holds {head}"),
        StreamState::Scheduled => {
            let due = stream.due_at.map(|due| when(due, now)).unwrap_or_default();
            format!("scheduled: {head} is due {due}")
        }
        StreamState::Held => format!("held: {head} is in quarantine"),
    }
}

/// What can be done about a stream that is blocked.
fn ways(stream: &StreamView) -> Vec<String> {
    let (queue, key) = (&stream.queue, shell_word(stream.key.as_str()));
    let head = stream.head_short.clone().unwrap_or_default();
    match stream.state {
        StreamState::Ready | StreamState::Leased => Vec::new(),
        StreamState::Scheduled => vec![
            format!("sickbay stream reset {queue} {key}    # its head now, with all its attempts"),
            format!("sickbay stream release {queue} {key}  # the others without it"),
        ],
        StreamState::Held => vec![
            format!("sickbay quarantine replay {head}  # once the cause is gone"),
            format!("sickbay stream release {queue} {key}  # the others without it"),
        ],
    }
}

fn table(entries: &[StreamEntry], now: Timestamp) -> Table {
    let mut table = Table::new(["ID", "TYPE", "STATE", "FAILURES", "DUE", "ORDER"]);
    for entry in entries {
        table.row([
            entry.short.clone(),
            entry.message_type.as_ref().map(ToString::to_string).unwrap_or_default(),
            entry.status.as_str().to_owned(),
            entry.failures.to_string(),
            when(entry.due_at, now),
            if entry.deferred { "let out" } else { "kept" }.to_owned(),
        ]);
    }
    table
}
