//! `sickbay push`.

use std::io::{BufRead, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sickbay::core::message::Priority;
use sickbay::{Key, MessageType, NewMessage, QueueName, StreamKey};
use sickbay_server::Client;
use sickbay_server::wire::message::{LinesAnswer, Push};
use sickbay_server::wire::{Problem, Span};

use super::Env;
use super::reach::Missing;
use crate::output::{Exit, Failure, Output, Result, count, plural};

/// So many lines, or so many bytes of them, travel at once.
const LINES_MAX: u64 = 1000;
const BYTES_MAX: usize = 1 << 20;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sickbay push orders '{\"order\": 7}'
  sickbay push orders --file order.json --type OrderPaid --key order-7
  sickbay push orders --ndjson < messages.ndjson

With --ndjson each line is an object: {\"payload\": \"…\"} or {\"payload_base64\": \"…\"}, and if wanted
\"queue\", \"type\", \"stream\", \"key\", \"priority\", \"delay\", \"deadline\", \"headers\".")]
pub(crate) struct Arguments {
    /// Where it goes; may be left out if every line of --ndjson says it
    #[arg(required_unless_present = "ndjson")]
    queue: Option<QueueName>,
    /// The payload [default: what stands on stdin]
    #[arg(conflicts_with_all = ["file", "ndjson"])]
    payload: Option<String>,
    /// Take the payload, or the lines, from this file
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Push one message per line of JSON
    #[arg(long, conflicts_with_all = ["message_type", "key", "stream", "priority", "delay", "deadline", "header"])]
    ndjson: bool,
    /// Leave out so many lines, to go on where a push stopped
    #[arg(long, value_name = "LINES", default_value_t = 0, requires = "ndjson")]
    skip: u64,
    /// What kind of message it is
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<MessageType>,
    /// Its idempotency key: a second push with the same one stores nothing
    #[arg(long)]
    key: Option<Key>,
    /// The stream whose order it keeps
    #[arg(long)]
    stream: Option<StreamKey>,
    /// 0 to 9, 9 first
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,
    /// Not delivered before this long from now, like 30s
    #[arg(long, value_name = "DURATION")]
    delay: Option<Span>,
    /// Not handled later than this long from now
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Span>,
    /// A header that travels with it, NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
}

fn header(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(arguments: Arguments, env: &Env) -> Result {
    if arguments.ndjson {
        return run_lines(&arguments, env).await;
    }
    let payload = match (&arguments.payload, &arguments.file) {
        (Some(payload), _) => Bytes::from(payload.clone()),
        (None, Some(path)) => std::fs::read(path).map_err(|error| Failure::file(path, &error))?.into(),
        (None, None) => read_stdin(env)?,
    };
    let message = arguments.message(payload)?;
    let client = env.client(Missing::MakeIfConfigured).await?;
    let answer = client.push(&Push { queue: None, messages: vec![message.into()] }).await?;
    env.out.answer(&answer, |out| {
        let text = answer.pushed.iter().map(|pushed| match pushed.duplicate {
            false => format!("{}\n", pushed.id),
            true => {
                out.say("its key is known already: nothing was stored");
                format!("{}\n", pushed.id)
            }
        });
        text.collect()
    })?;
    Ok(Exit::Done)
}

impl Arguments {
    fn message(self, payload: Bytes) -> Result<NewMessage> {
        let queue = self.queue.ok_or_else(|| Failure::usage("no queue is named"))?;
        let mut message = NewMessage::new(queue, payload);
        message.message_type = self.message_type;
        message.key = self.key;
        message.stream = self.stream;
        message.priority = Priority::new(self.priority).unwrap_or_default();
        message.delay = self.delay.unwrap_or_default().into();
        message.deadline = self.deadline.map(Into::into);
        message.headers = self.header;
        Ok(message)
    }
}

fn read_stdin(env: &Env) -> Result<Bytes> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        env.out.say("reading the payload from the keyboard; end it with Ctrl-D");
    }
    let mut payload = Vec::new();
    stdin
        .read_to_end(&mut payload)
        .map_err(|error| Failure::new(Exit::Failed, format!("stdin cannot be read: {error}")))?;
    Ok(payload.into())
}

async fn run_lines(arguments: &Arguments, env: &Env) -> Result {
    let mut input: Box<dyn BufRead> = match &arguments.file {
        Some(path) => Box::new(std::io::BufReader::new(open(path)?)),
        None => Box::new(std::io::stdin().lock()),
    };
    let client = env.client(Missing::MakeIfConfigured).await?;
    let mut lines = Lines { client: &client, queue: arguments.queue.as_ref(), total: LinesAnswer::default() };
    lines.skip(&mut input, arguments.skip)?;
    let sent = lines.send(&mut input, &env.out).await;
    env.out.progress("");
    sent?;
    let LinesAnswer { new, duplicates, .. } = lines.total;
    env.out.answer(&lines.total, |_| {
        let known =
            if duplicates > 0 { format!(", {} known already", count(duplicates)) } else { String::new() };
        format!("{} pushed{known}\n", plural(new, "message"))
    })?;
    Ok(Exit::Done)
}

fn open(path: &Path) -> Result<std::fs::File> {
    std::fs::File::open(path).map_err(|error| Failure::file(path, &error))
}

/// Lines on their way.
struct Lines<'a> {
    client: &'a Client,
    queue: Option<&'a QueueName>,
    total: LinesAnswer,
}

impl Lines<'_> {
    fn skip(&mut self, input: &mut dyn BufRead, lines: u64) -> Result<()> {
        let mut skipped = Vec::new();
        while self.total.lines_stored < lines {
            skipped.clear();
            if read_line(input, &mut skipped)? == 0 {
                break;
            }
            self.total.lines_stored += 1;
        }
        Ok(())
    }

    async fn send(&mut self, input: &mut dyn BufRead, out: &Output) -> Result<()> {
        loop {
            let mut part = Vec::new();
            let mut lines = 0;
            while lines < LINES_MAX && part.len() < BYTES_MAX && read_line(input, &mut part)? > 0 {
                lines += 1;
            }
            if lines == 0 {
                return Ok(());
            }
            match self.client.push_lines(self.queue, part).await {
                Ok(answer) => self.add(answer),
                Err(problem) => return Err(self.stopped(problem)),
            }
            out.progress(&format!("{} stored", plural(self.total.lines_stored, "line")));
        }
    }

    fn add(&mut self, answer: LinesAnswer) {
        self.total.lines_stored += answer.lines_stored;
        self.total.new += answer.new;
        self.total.duplicates += answer.duplicates;
    }

    /// The problem in terms of the whole input, with the way to go on.
    fn stopped(&self, mut problem: Problem) -> Failure {
        let before = self.total.lines_stored;
        if let Some(line) = problem.line {
            let told = problem.detail.strip_prefix(&format!("line {line}: ")).unwrap_or(&problem.detail);
            problem.detail = format!("line {}: {told}", before + line);
        }
        let stored = before + problem.lines_stored.unwrap_or(0);
        let wrong_line = problem.line.map(|line| before + line);
        let mut failure = Failure::from(problem);
        if failure.exit == Exit::Usage {
            failure.exit = Exit::Failed;
        }
        let known =
            if stored == 0 { "nothing is stored".to_owned() } else { plural(stored, "line") + " stored" };
        let correct = wrong_line.map(|line| format!("correct line {line} and ")).unwrap_or_default();
        let skip = if stored == 0 { String::new() } else { format!(" with --skip {stored}") };
        failure.hint(format!("{known}; {correct}go on{skip}"))
    }
}

/// Reads one line, its end included.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<usize> {
    input
        .read_until(b'\n', line)
        .map_err(|error| Failure::new(Exit::Failed, format!("the lines cannot be read: {error}")))
}
