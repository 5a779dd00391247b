//! `sickbay quarantine`, also `dlq`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use sickbay::core::signature::Signature;
use sickbay::{Clock as _, Kind, MessageType, QueueName, Reason, StreamKey, SystemClock, Timestamp};
use sickbay_server::Client;
use sickbay_server::wire::act::ReplayOne;
use sickbay_server::wire::quarantine::{Bulk, BulkAnswer, DeadLetters, Filter, Query};
use sickbay_server::wire::{Span, Time};

use super::Env;
use super::message;
use super::reach::Missing;
use super::watch::Watch;
use crate::output::{Exit, Failure, Output, Result, Table, ago, count, escape, excerpt, plural};

/// Longer errors are cut in lists.
const ERROR_CHARACTERS_MAX: usize = 100;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List dead letters, newest first
    List(List),
    /// Show everything known of a dead letter
    Show {
        /// Its id, or the beginning of it
        #[arg(value_parser = message::id)]
        id: String,
    },
    /// Send dead letters back to be tried again
    Replay(Replay),
    /// Discard dead letters; they can be restored until they are purged
    Discard(Discard),
    /// Bring discarded dead letters back
    Restore(Selection),
}

#[derive(clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: FilterArguments,
    /// The discarded ones instead of those that wait
    #[arg(long)]
    discarded: bool,
    /// At most so many rows
    #[arg(long, default_value_t = 50, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Go on after the last page, with what it said
    #[arg(long, value_name = "MARK")]
    after: Option<u64>,
    #[command(flatten)]
    watch: Watch,
}

#[derive(clap::Args)]
pub(crate) struct FilterArguments {
    /// Only of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<MessageType>,
    /// Only with this reason, like HandlerException
    #[arg(long)]
    reason: Option<Reason>,
    /// Only of this kind: transient, poison or unknown
    #[arg(long)]
    kind: Option<Kind>,
    /// Only with this signature
    #[arg(long)]
    signature: Option<Signature>,
    /// Only of this stream
    #[arg(long)]
    stream: Option<StreamKey>,
    /// Only where the last error contains this text
    #[arg(long, value_name = "TEXT", value_parser = some_text)]
    error: Option<String>,
    /// Only what was quarantined since then: 24h (ago), or a time like 2026-11-15T09:30:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Time>,
    /// Only what was quarantined before then
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Time>,
}

/// A time, or how long ago it was.
fn time(text: &str) -> std::result::Result<Time, String> {
    if let Ok(time) = text.parse::<Time>() {
        return Ok(time);
    }
    let span = text.parse::<Span>().map_err(|_| "write 24h, or 2026-11-15T09:30:00Z".to_owned())?;
    let back = i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX);
    Ok(Time(Timestamp::from_millis(SystemClock::new().now().millis().saturating_sub(back))))
}

/// An empty text would be found in every error: whoever gave it had a variable without a value.
fn some_text(text: &str) -> std::result::Result<String, String> {
    if text.is_empty() {
        Err("it is empty, and would match every error".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

impl FilterArguments {
    fn filter(self, discarded: bool) -> Result<Filter> {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && until.0 <= since.0
        {
            let message =
                format!("--until {until} is not after --since {since}: nothing can be between them");
            return Err(Failure::usage(message));
        }
        Ok(Filter {
            queue: self.queue,
            message_type: self.message_type,
            reason: self.reason,
            kind: self.kind,
            signature: self.signature,
            stream: self.stream,
            error: self.error,
            since: self.since,
            until: self.until,
            discarded,
        })
    }
}

/// Which dead letters something is done to.
#[derive(clap::Args)]
pub(crate) struct Selection {
    /// Their ids, or the beginnings of them; instead of a filter
    #[arg(value_parser = message::id)]
    ids: Vec<String>,
    #[command(flatten)]
    filter: FilterArguments,
    /// Really all of them
    #[arg(long)]
    all: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(clap::Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    selection: Selection,
    /// To this queue instead of their own
    #[arg(long, value_name = "QUEUE")]
    to: Option<QueueName>,
    /// With the payload in this file, for one dead letter
    #[arg(long, value_name = "PATH")]
    payload: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Discard {
    #[command(flatten)]
    selection: Selection,
    /// Why, in words
    #[arg(long)]
    why: Option<String>,
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        match self {
            Self::List(list) => list.run(env).await,
            Self::Show { id } => message::show(&id, env).await,
            Self::Replay(replay) => replay.run(env).await,
            Self::Discard(Discard { selection, why }) => {
                let (client, mut bulk) = selection.settle("discard", false, env).await?;
                bulk.why = why;
                report(&client.discard_many(&bulk).await?, "discarded", env)
            }
            Self::Restore(selection) => {
                let (client, bulk) = selection.settle("restore", true, env).await?;
                report(&client.restore_many(&bulk).await?, "restored", env)
            }
        }
    }
}

impl List {
    async fn run(self, env: &Env) -> Result {
        let filter = self.filter.filter(self.discarded)?;
        let query = Query { filter, rows: Some(self.limit), after: self.after, count: true };
        let look = async || Ok(env.client(Missing::Fail).await?.quarantine(&query).await?);
        self.watch.show(env, look, list).await
    }
}

fn list(page: &DeadLetters, out: &Output) -> String {
    if page.rows.is_empty() {
        out.say("no dead letters");
        return String::new();
    }
    let now = SystemClock::new().now();
    let mut table =
        Table::new(["ID", "QUEUE", "TYPE", "SET ASIDE", "REASON", "TRIES", "AGE", "SIGNATURE", "ERROR"]);
    for row in &page.rows {
        table.row([
            row.short.clone(),
            row.queue.to_string(),
            row.message_type.as_ref().map(ToString::to_string).unwrap_or_default(),
            row.set_aside.as_str().to_owned(),
            row.reason.to_string(),
            row.counters.deliveries.to_string(),
            ago(now.since(row.quarantined_at.into())),
            row.signature.to_string(),
            excerpt(&row.error, ERROR_CHARACTERS_MAX),
        ]);
    }
    let shown = page.rows.len() as u64;
    if let Some(total) = page.count.filter(|total| *total > shown) {
        let next = page.next.as_ref().map(|next| format!("; go on with --after {next}")).unwrap_or_default();
        out.say(&format!("{} of {} are shown{next}", count(shown), count(total)));
    }
    table.render(out)
}

impl Replay {
    async fn run(self, env: &Env) -> Result {
        if let Some(path) = &self.payload {
            let [id] = self.selection.ids.as_slice() else {
                return Err(Failure::usage("--payload needs the id of one dead letter"));
            };
            let payload = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
            let payload = String::from_utf8(payload)
                .map_err(|_| Failure::usage("the payload is no text; push it as a new message instead"))?;
            let how = ReplayOne { queue: self.to, payload: Some(payload), payload_base64: None };
            let acted = env.client(Missing::Fail).await?.replay(id, &how).await?;
            let answer = BulkAnswer { done: 1, ..BulkAnswer::default() };
            env.out.say(&format!("{} has a new payload", acted.short));
            return report(&answer, "sent back", env);
        }
        let (client, mut bulk) = self.selection.settle("replay", false, env).await?;
        bulk.queue = self.to;
        report(&client.replay_many(&bulk).await?, "sent back", env)
    }
}

impl Selection {
    /// Makes sure that it is meant: an empty filter needs `--all`, and people are asked.
    async fn settle(self, verb: &str, discarded: bool, env: &Env) -> Result<(Client, Bulk)> {
        // Whether they are discarded is said by the verb and is no filter of its own.
        let filter = self.filter.filter(false)?;
        let is_empty = filter == Filter::default();
        if !self.ids.is_empty() {
            if !is_empty || self.all {
                return Err(Failure::usage("name ids or a filter, not both"));
            }
            let client = env.client(Missing::Fail).await?;
            return Ok((client, Bulk { ids: Some(self.ids), ..Bulk::default() }));
        }
        if is_empty && !self.all {
            let hint = format!("name ids, narrow it with a filter like --queue, or say `{verb} --all`");
            let message = format!("nothing is named: that would {verb} every dead letter");
            return Err(Failure::usage(message).hint(hint));
        }
        if !self.yes {
            let counted = Filter { discarded, ..filter.clone() };
            let query = Query { filter: counted, rows: Some(0), after: None, count: true };
            // The store is closed again before somebody is asked: others must not wait for an answer.
            let found = env.client(Missing::Fail).await?.quarantine(&query).await?.count.unwrap_or(0);
            if found > 0 {
                ask(verb, found)?;
            }
        }
        let client = env.client(Missing::Fail).await?;
        Ok((client, Bulk { filter: Some(filter), all: self.all, ..Bulk::default() }))
    }
}

/// Shows the count and waits for a yes.
fn ask(verb: &str, found: u64) -> Result<()> {
    let what = format!("{verb} {}", plural(found, "dead letter"));
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let hint = format!("this would {what}; say --yes if it is meant");
        return Err(Failure::usage("nobody is there to be asked: stdin is no terminal").hint(hint));
    }
    eprint!("{what}? [y/N] ");
    drop(std::io::stderr().flush());
    let mut answer = String::new();
    // What cannot be read is no yes.
    drop(stdin.lock().read_line(&mut answer));
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Refused, "nothing was done")),
    }
}

/// Says what became of it. What was not done to some is told of each.
fn report(answer: &BulkAnswer, done: &str, env: &Env) -> Result {
    for left_out in &answer.left_out {
        env.out.say(&format!("{}: {}", escape(&left_out.id), escape(&left_out.why)));
    }
    env.out.answer(answer, |_| {
        let left = answer.refused + answer.not_found;
        let rest = if left > 0 { format!(", {} not", count(left)) } else { String::new() };
        format!("{} {done}{rest}\n", plural(answer.done, "dead letter"))
    })?;
    Ok(match answer {
        BulkAnswer { refused: 0, not_found: 0, .. } => Exit::Done,
        BulkAnswer { refused: 0, .. } => Exit::NotFound,
        _ => Exit::Refused,
    })
}
