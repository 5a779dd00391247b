//! `sickbay stream`.

use sickbay::{QueueName, StreamKey};
use sickbay_server::wire::stream::Streams;

use super::Env;
use super::reach::Missing;
use crate::output::{Exit, Failure, Output, Result, Table, count, words};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the streams of a queue, blocked ones first
    List {
        /// Which queue
        queue: QueueName,
        /// At most so many rows
        #[arg(long, default_value_t = 50, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Let a blocked stream go on without its quarantined head
    Release {
        /// Which queue
        queue: QueueName,
        /// Which stream
        stream: StreamKey,
    },
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        let client = env.client(Missing::Fail).await?;
        match self {
            Self::List { queue, limit } => {
                let streams = client.streams(&queue, limit).await?;
                env.out.answer(&streams, |out| list(&streams, out))?;
            }
            Self::Release { queue, stream } => {
                let released = client.release_stream(&queue, &stream).await?;
                if !released.released {
                    let message = format!("stream {stream} of {queue} is not held by a dead letter");
                    let hint = format!("see its state with `sickbay stream list {queue}`");
                    return Err(Failure::new(Exit::Refused, message).hint(hint));
                }
                env.out.answer(&released, |_| format!("{stream} goes on without its head\n"))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn list(streams: &Streams, out: &Output) -> String {
    if streams.streams.is_empty() {
        out.say("no streams");
        return String::new();
    }
    let mut table = Table::new(["STREAM", "STATE", "LENGTH", "HEAD", "SINCE", "DUE"]);
    for stream in &streams.streams {
        table.row([
            stream.key.to_string(),
            words(&stream.state),
            count(stream.length),
            stream.head_short.clone().unwrap_or_default(),
            stream.since.map(|time| time.to_string()).unwrap_or_default(),
            stream.due_at.map(|time| time.to_string()).unwrap_or_default(),
        ]);
    }
    table.render(out)
}
