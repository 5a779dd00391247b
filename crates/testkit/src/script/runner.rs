//! Carries commands out on a store and answers in words.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::clock::Clock;
use sickbay_core::port::{Claim, Exchange, ProcessId, Store};
use sickbay_core::quarantine::{MessageView, PageRequest, QuarantineFilter};
use sickbay_core::stats::StreamDetail;
use sickbay_core::{
    Delivery, LeaseToken, MessageId, QueueName, QueuePolicy, StoreError, Timestamp, WorkerName,
};

use super::answer;
use super::command::{self, Command};
use crate::fixture::Fixture;

/// What a command of a script may fail with: the code of the store's error, or what is wrong with it.
pub(super) type Answer = Result<String, String>;

/// A script under way.
pub struct Runner<'f> {
    pub(super) fixture: &'f mut dyn Fixture,
    /// The messages pushed so far: m0, m1, ….
    pub(super) ids: Vec<MessageId>,
    /// Every delivery so far.
    pub(super) deliveries: Vec<Delivery>,
    /// Payloads are told apart by their number.
    pub(super) pushes: usize,
    /// Deliveries are told with all that a worker sees of them.
    pub(super) in_full: bool,
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
pub(super) fn code(error: StoreError) -> String {
    error.code().to_owned()
}

pub(super) fn name<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no name"))
}

impl<'f> Runner<'f> {
    /// Makes the queues `q` and `r` with the default policy.
    ///
    /// # Panics
    ///
    /// If the store cannot make a queue.
    pub async fn new(fixture: &'f mut dyn Fixture) -> Self {
        for queue in ["q", "r"] {
            let defined = match QueueName::new(queue) {
                Ok(queue) => fixture.store().define_queue(&queue, QueuePolicy::default()).await,
                Err(error) => panic!("{error}"),
            };
            assert!(defined.is_ok(), "{defined:?}");
        }
        Self { fixture, ids: Vec::new(), deliveries: Vec::new(), pushes: 0, in_full: false }
    }

    /// Carries a command out. The verbs:
    ///
    /// `queue`, `push`, `adopt`, `lease`, `done`, `fail`, `release`, `defer`, `renew`; `crash`, `die`,
    /// `reopen`, `expire`, `advance`; `replay`, `dead-letter`, `discard`, `restore`, `purge`, `cancel`,
    /// `hasten`, `reset`, `pause`, `resume`, `trip`, `probe`, `release-followers`; `show`, `history`, `stats`,
    /// `streams`, `quarantine`, `effects`.
    pub async fn run(&mut self, command: &Command) -> String {
        let answer = match command.verb.as_str() {
            "queue" => self.define(command).await,
            "push" => self.push(command).await,
            "adopt" => self.adopt(command).await,
            "lease" => self.lease(command).await,
            "done" | "fail" | "release" | "defer" => self.settle(command).await,
            "renew" => self.renew(command).await,
            "crash" | "die" => self.die(command).await,
            "reopen" => {
                self.fixture.reopen();
                Ok("ok".to_owned())
            }
            "expire" => self.expire().await,
            "advance" => self.advance(command).await,
            "replay" | "dead-letter" | "discard" | "restore" | "cancel" | "hasten" | "reset" => {
                self.act(command).await
            }
            "purge" => self.purge(command).await,
            "pause" | "resume" | "trip" | "probe" => self.gate(command).await,
            "release-followers" => self.release_followers(command).await,
            "show" => self.show(command).await,
            "history" => self.history(command).await,
            "stats" => self.stats(command).await,
            "streams" => self.streams(command).await,
            "quarantine" => self.quarantine(command).await,
            "effects" => Ok(answer::list(self.fixture.effects())),
            verb => Err(format!("there is no command {verb:?}")),
        };
        answer.unwrap_or_else(|error| error)
    }

    /// How many messages were made so far.
    pub fn messages(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.fixture.store()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.fixture.clock().now()
    }

    pub(super) fn queue(&self, command: &Command) -> Result<QueueName, String> {
        name(command.option("in").unwrap_or("q"))
    }

    /// `as=2` is a process of its own; without it, it is the one that owns the store.
    pub(super) fn process(&self, command: &Command) -> ProcessId {
        let other = command.option("as").and_then(|text| text.parse::<u64>().ok());
        other.map_or_else(|| self.fixture.process(), |number| ProcessId(1_000_000 + number))
    }

    /// The message a word like `m3` means; beyond the last one it begins again, so that a script
    /// stays a script when lines are taken out of it.
    pub(super) fn message(&self, command: &Command) -> Result<MessageId, String> {
        let word = command.words.first().and_then(|word| word.strip_prefix('m'));
        let index = word.and_then(|digits| digits.parse::<usize>().ok()).ok_or("which message?")?;
        let known = index.checked_rem(self.ids.len()).and_then(|index| self.ids.get(index));
        known.copied().ok_or_else(|| "no message yet".to_owned())
    }

    pub(super) fn name_of(&self, id: MessageId) -> String {
        match self.ids.iter().position(|known| *known == id) {
            Some(index) => format!("m{index}"),
            None => format!("unknown message {}", id.number()),
        }
    }

    /// The last delivery of a message, or with `old` the first.
    pub(super) fn delivery(&self, command: &Command) -> Result<&Delivery, String> {
        let id = self.message(command)?;
        let mut of_message = self.deliveries.iter().filter(|delivery| delivery.message.id == id);
        let found = if command.has("old") { of_message.next() } else { of_message.next_back() };
        found.ok_or_else(|| "never leased".to_owned())
    }

    pub(super) fn token(&self, command: &Command) -> Result<LeaseToken, String> {
        Ok(self.delivery(command)?.token())
    }

    async fn lease(&mut self, command: &Command) -> Answer {
        let process = self.process(command);
        let claim = Claim {
            queue: self.queue(command)?,
            worker: WorkerName::new(
                command.option("as").map_or("worker/own".to_owned(), |n| format!("worker/{n}")),
            )
            .map_err(|error| error.to_string())?,
            process,
            max: command.words.first().and_then(|word| word.parse().ok()).unwrap_or(1),
            wait: Duration::ZERO,
            lease: command.duration("for").unwrap_or(Duration::from_secs(30)),
        };
        let exchanged = self.store().exchange(Exchange::claim(claim)).await.map_err(code)?;
        let tell = |delivery: &Delivery| {
            let name = self.name_of(delivery.message.id);
            if self.in_full {
                answer::delivery_in_full(&name, delivery, self.now())
            } else {
                answer::delivery(&name, delivery)
            }
        };
        let answer = answer::list(exchanged.deliveries.iter().map(tell));
        self.deliveries.extend(exchanged.deliveries);
        Ok(answer)
    }

    async fn advance(&self, command: &Command) -> Answer {
        let by = command.words.first().and_then(|word| command::duration(word)).ok_or("how long?")?;
        self.fixture.clock().advance(by);
        self.store().sweep().await.map_err(code)?;
        Ok("ok".to_owned())
    }

    pub(super) async fn find(&self, id: MessageId) -> Result<Option<MessageView>, String> {
        let prefix = id.to_string().parse().map_err(|_| "no prefix".to_owned())?;
        self.store().find(prefix).await.map_err(code)
    }

    async fn show(&self, command: &Command) -> Answer {
        let view = self.find(self.message(command)?).await?;
        Ok(view.map_or_else(|| "gone".to_owned(), |view| answer::view(&view, self.now())))
    }

    async fn history(&self, command: &Command) -> Answer {
        let view = self.find(self.message(command)?).await?;
        let rows = view.into_iter().flat_map(|view| view.history);
        Ok(answer::list(rows.map(|row| answer::attempt(&row, self.now()))))
    }

    async fn stats(&self, command: &Command) -> Answer {
        let stats = self.store().stats(&self.queue(command)?).await.map_err(code)?;
        Ok(answer::stats(&stats, self.now()))
    }

    async fn streams(&self, command: &Command) -> Answer {
        let queue = self.queue(command)?;
        let mut told = Vec::new();
        for view in self.store().streams(&queue, 100).await.map_err(code)? {
            let head = view.head.map(|head| self.name_of(head)).unwrap_or_default();
            let line = format!("{} {:?} {head} of {}", view.key, view.state, view.length);
            let detail = match self.in_full {
                true => self.store().stream(&queue, &view.key, 100).await.map_err(code)?,
                false => None,
            };
            told.push(detail.map_or(line.clone(), |detail| self.stream_in_full(&line, &detail)));
        }
        Ok(answer::list(told))
    }

    fn stream_in_full(&self, line: &str, detail: &StreamDetail) -> String {
        let time = |at| answer::time(at, self.now());
        let due = detail.view.due_at.map(|at| format!(" due {}", time(at))).unwrap_or_default();
        let holds =
            detail.holds.iter().map(|hold| format!("{} since {}", self.name_of(hold.id), time(hold.since)));
        let entries = detail.entries.iter().map(|entry| {
            let (name, status) = (self.name_of(entry.id), entry.status.as_str());
            let (due, deferred, failures) = (time(entry.due_at), entry.deferred, entry.failures);
            format!(
                "{name} {status} due {due} deferred {deferred} failures {failures} {:?}",
                entry.message_type
            )
        });
        format!("{line}{due} [{}] [{}]", answer::list(holds), answer::list(entries))
    }

    async fn quarantine(&self, command: &Command) -> Answer {
        let filter = QuarantineFilter { discarded: command.has("discarded"), ..QuarantineFilter::default() };
        let page = self.store().quarantine(&filter, PageRequest::default()).await.map_err(code)?;
        Ok(answer::list(page.rows.iter().map(|row| {
            let name = self.name_of(row.id);
            if self.in_full { answer::dead(&name, row, self.now()) } else { name }
        })))
    }

    /// Everything that can be seen of the store, and the history of the message that the last command
    /// was about.
    pub(crate) async fn observe(&mut self, last: &Command) -> Vec<String> {
        self.in_full = true;
        let mut looks: Vec<Command> = Vec::new();
        for verb in ["stats", "streams"] {
            looks.extend([Command::bare(verb), Command::bare(verb).with("in", "r")]);
        }
        looks.extend([Command::bare("quarantine"), Command::new("quarantine", "discarded")]);
        looks.extend((0..self.ids.len()).map(|index| Command::new("show", format!("m{index}"))));
        looks.extend(self.message(last).ok().map(|id| Command::new("history", self.name_of(id))));
        looks.push(Command::bare("effects"));
        let mut seen = Vec::new();
        for look in looks {
            seen.push(format!("{look}: {}", self.run(&look).await));
        }
        seen
    }
}
